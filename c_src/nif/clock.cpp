// A frame clock: a Ticker that sends its ticks to the process that started it, and the wait that warms that
// process shortly before a tick.
#include <algorithm>
#include <chrono>
#include <memory>

#include "nif/functions.hpp"

namespace exphil::nif {

namespace {

// What the ticker thread needs to send {:tick, ref, number}. Shared with the callback, which may outlive the
// handle.
struct Receiver {
  ErlNifPid process{};
  ErlNifEnv* env = enif_alloc_env();  // holds `ref`
  Term ref = 0;

  Receiver() {
    if (env == nullptr) throw std::bad_alloc();
  }
  ~Receiver() { enif_free_env(env); }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // False where the process has ended. Without memory for the message the tick is skipped.
  bool send(std::int64_t number) const {
    ErlNifEnv* message = enif_alloc_env();
    if (message == nullptr) return true;
    const Term term = enif_make_tuple3(message, enif_make_atom(message, "tick"), enif_make_copy(message, ref),
                                       enif_make_int64(message, number));
    const bool alive = enif_send(nullptr, &process, message, term) != 0;
    enif_free_env(message);
    return alive;
  }
};

// How long before a frame the process of a clock with `warm` is woken: the wake-up of the ticker thread and
// of a scheduler, scratch steps of at most core::kPatience each, and some room. At most a quarter of the
// period. It bounds what await_tick() takes, which must be below the millisecond of a call on a normal
// scheduler.
constexpr std::chrono::microseconds kWarmLead{500};
// In the last part of that time the process makes steps of the scratch session as it makes its own, so that
// Erlang's code and this library's are in the processor's caches too. What one of them takes, with room.
constexpr std::chrono::microseconds kWholeSteps{150}, kWholeStep{60};

}  // namespace

// {handle, ref, start, scratch}: tick n is the message {:tick, ref, n}, sent at start + n / fps. `start` is
// in nanoseconds of Erlang's monotonic time; scratch is a session of nobody's, nil without `warm`.
Term start_clock(Call& call, double fps, std::optional<SessionHandle*> warm) {
  const core::MicroHertz rate = core::micro_hertz(fps);
  core::require_rate(rate, "fps");
  ClockHandle clock;
  Term scratch = encode_atom(call, "nil");
  if (warm) {
    const SessionHandle& session = **warm;
    clock.lead = std::min<std::chrono::nanoseconds>(kWarmLead, core::tick_offset(rate, 1) / 4);
    clock.loaded = session.loaded;
    clock.session = session.session;
    clock.scratch = std::make_shared<core::ScratchStep>(session.loaded->policy);
    clock.scratch->measure();
    SessionHandle own{session.loaded, std::make_shared<core::Session>(session.loaded->policy)};
    *own.step_microseconds = 1;  // so that its first step runs where it is called
    scratch = encode_handle(call, std::move(own));
  }
  const auto receiver = std::make_shared<Receiver>();
  enif_self(call.env(), &receiver->process);
  const Term ref = enif_make_ref(call.env());
  receiver->ref = enif_make_copy(receiver->env, ref);
  const auto first = std::chrono::steady_clock::now();
  const std::int64_t start = enif_monotonic_time(ERL_NIF_NSEC) + clock.lead.count();
  clock.ticker = std::make_shared<core::Ticker>(
      first, rate, [receiver](std::int64_t number) { return receiver->send(number); });
  return enif_make_tuple4(call.env(), encode_handle(call, std::move(clock)), ref, encode_integer(call, start),
                          scratch);
}

Term await_tick(Call& call, ClockHandle& clock, std::int64_t number) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const Clock::time_point due = clock.ticker->due(std::max<std::int64_t>(number, 0)) + clock.lead;
  bool again = false;
  if (due > begin && clock.lead.count() > 0) {
    const Clock::time_point end = std::min(due, begin + clock.lead);
    if (clock.warmed->exchange(number) != number) {
      *clock.warm = !clock.loaded->replaced.load(std::memory_order_relaxed) &&
                    clock.scratch->run_until(end - kWholeSteps);
      if (*clock.warm) clock.session->caller_has_warmed();
    }
    again = *clock.warm && Clock::now() + kWholeStep < end;
    if (!again) core::poll_until(end, clock.lead);
  }
  const auto taken = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  report_time(call.env(), taken.count());
  return encode_bool(call, again);
}

Term stop_clock(Call& call, ClockHandle& clock) {
  clock.ticker->stop();
  return encode_atom(call, "ok");
}

}  // namespace exphil::nif
