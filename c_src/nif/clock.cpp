// A frame clock: a Ticker that sends its ticks to the process that started it, and the wait that warms that
// process shortly before a tick.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "nif/functions.hpp"

namespace exphil::nif {

// What the ticker thread needs to send {kind, ref, number}. Shared with the callbacks, which may outlive the
// handle.
struct TickReceiver {
  ErlNifPid process{};
  ErlNifEnv* env = enif_alloc_env();  // holds `ref`
  Term ref = 0;

  TickReceiver() {
    if (env == nullptr) throw std::bad_alloc();
  }
  ~TickReceiver() { enif_free_env(env); }
  TickReceiver(const TickReceiver&) = delete;
  TickReceiver& operator=(const TickReceiver&) = delete;

  enum class Sent { yes, process_ended, no_memory };

  Sent send(const char* kind, std::int64_t number) const {
    ErlNifEnv* message = enif_alloc_env();
    if (message == nullptr) return Sent::no_memory;
    const Term term = enif_make_tuple3(message, enif_make_atom(message, kind), enif_make_copy(message, ref),
                                       enif_make_int64(message, number));
    const bool alive = enif_send(nullptr, &process, message, term) != 0;
    enif_free_env(message);
    return alive ? Sent::yes : Sent::process_ended;
  }
};

namespace {

using SteadyClock = std::chrono::steady_clock;

// How long before a frame the process of a clock with `warm` is woken: the wake-up of the ticker thread and
// of a scheduler, scratch steps of at most core::kPatience each, and some room. At most a quarter of the
// period. It bounds what the calls of await_tick() for a tick take together.
constexpr std::chrono::microseconds kWarmLead{500};
// In the last part of that time the process makes steps of the scratch session as it makes its own, so that
// Erlang's code and this library's are in the processor's caches too. What one of them takes, with room.
constexpr std::chrono::microseconds kWholeSteps{150}, kWholeStep{60};
// How long one call polls. Between two of them the scheduler runs the other processes that are ready.
constexpr std::chrono::microseconds kPoll{100};
constexpr std::int64_t kTurn = 1000;  // microseconds after which a process gives way

// The process sleeps until {:due, ref, number}, at the tick's time.
Term sleep_until(Call& call, ClockHandle& clock, std::int64_t number, SteadyClock::time_point due) {
  const auto send = [receiver = clock.receiver, number](std::int64_t) {
    return receiver->send("due", number) == TickReceiver::Sent::no_memory;  // tries again then
  };
  std::atomic_store(&clock.alarm, std::make_shared<core::Ticker>(due, core::kMostMicroHertz, send));
  return encode_atom(call, "sleep");
}

std::int64_t microseconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(SteadyClock::now() - begin).count();
}

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
  const auto receiver = std::make_shared<TickReceiver>();
  enif_self(call.env(), &receiver->process);
  const Term ref = enif_make_ref(call.env());
  receiver->ref = enif_make_copy(receiver->env, ref);
  clock.receiver = receiver;
  // In this order, so that no tick comes before its time by Erlang's clock where the system takes the core
  // away in between.
  const std::int64_t start = enif_monotonic_time(ERL_NIF_NSEC) + clock.lead.count();
  const auto first = SteadyClock::now();
  clock.ticker = std::make_shared<core::Ticker>(first, rate, [receiver](std::int64_t number) {
    core::note_frame();  // one is about to be played
    return receiver->send("tick", number) != TickReceiver::Sent::process_ended;
  });
  return enif_make_tuple4(call.env(), encode_handle(call, std::move(clock)), ref, encode_integer(call, start),
                          scratch);
}

Term await_tick(Call& call, ClockHandle& clock, std::int64_t number) {
  const SteadyClock::time_point begin = SteadyClock::now();
  const SteadyClock::time_point due = clock.ticker->due(std::max<std::int64_t>(number, 0)) + clock.lead;
  if (due <= begin || due > begin + clock.lead) return encode_atom(call, "due");
  core::PollingPlace place;
  if (!place.may_poll()) return sleep_until(call, clock, number, due);
  if (clock.warmed->exchange(number) != number) {
    *clock.warm = !clock.loaded->replaced.load(std::memory_order_relaxed) &&
                  clock.scratch->run_until(due - kWholeSteps, place);
    if (*clock.warm) clock.session->caller_has_warmed();
  }
  if (*clock.warm && SteadyClock::now() + kWholeStep < due) {
    report_time(call.env(), microseconds_since(begin));
    return encode_atom(call, "step");
  }
  clock.session->arm();
  const bool may_poll = place.poll_until(due, kPoll);
  const bool is_due = SteadyClock::now() >= due;
  // Before the tick the processes that are ready have their turn.
  report_time(call.env(), is_due ? microseconds_since(begin) : kTurn);
  if (is_due) return encode_atom(call, "due");
  return may_poll ? encode_atom(call, "again") : sleep_until(call, clock, number, due);
}

Term stop_clock(Call& call, ClockHandle& clock) {
  clock.ticker->stop();
  if (const auto alarm = std::atomic_load(&clock.alarm)) alarm->stop();
  return encode_atom(call, "ok");
}

}  // namespace exphil::nif
