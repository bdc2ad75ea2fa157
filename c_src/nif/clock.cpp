// A frame clock: a Ticker that sends its ticks to the process that started it, and the wait that warms that
// process shortly before a tick.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "nif/functions.hpp"
#include "nif/own_env.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

// What the ticker thread needs to send {kind, tag, number} to the clock's process, and what that process has
// asked for: at most one message at a time. Shared with the callbacks, which may outlive the handle.
struct TickReceiver {
  enum class Asked { nothing, by_wait, by_next };

  ErlNifPid process{};
  std::mutex mutex;  // of what follows; held for a microsecond
  Asked asked = Asked::nothing;
  const OwnEnv env;         // holds `tag`
  Term tag = 0;             // of the message that is asked for
  std::int64_t taken = -1;  // the last tick that the process was told of
  bool stopped = false;
  bool has_asked_next = false;

  void ask(Asked by, Term with_tag) {
    enif_clear_env(env.get());
    tag = enif_make_copy(env.get(), with_tag);
    asked = by;
  }

  // Tick `number` is due. Returns false where this is to be tried again at the next one.
  bool tick(std::int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (asked == Asked::nothing) return true;
    if (number <= taken) return false;
    if (send("tick", tag, number) == Sent::no_memory) return false;
    if (asked == Asked::by_next) taken = number;
    asked = Asked::nothing;
    core::note_frame();  // one is about to be played
    return true;
  }

  // A process that waits is woken, and finds that the clock has stopped. Returns whether a message with the
  // clock's own reference may be in the mailbox. In a process's call, with a SendingFrom.
  bool stop() {
    const std::lock_guard<std::mutex> lock(mutex);
    stopped = true;
    if (asked == Asked::by_wait) send("tick", tag, taken);
    asked = Asked::nothing;
    return has_asked_next;
  }

  enum class Sent { yes, process_ended, no_memory };

  Sent send(const char* kind, Term with_tag, std::int64_t number) const noexcept {
    try {
      const OwnEnv own;
      ErlNifEnv* const message = own.get();
      const Term term = enif_make_tuple3(message, enif_make_atom(message, kind),
                                         enif_make_copy(message, with_tag), enif_make_int64(message, number));
      const bool alive = enif_send(SendingFrom::env(), &process, message, term) != 0;
      return alive ? Sent::yes : Sent::process_ended;
    } catch (const std::bad_alloc&) {
      return Sent::no_memory;
    }
  }
};

namespace {

using SteadyClock = std::chrono::steady_clock;

// How long before a frame the process of a clock with `warm` is woken: the wake-up of the ticker thread and
// of a scheduler, scratch steps of at most core::kPatience each, and some room. At most a quarter of the
// period. It bounds what the calls of await_tick() for a tick take together. A process that is woken later
// finds everything cold: bench/results/paced.md has frames with other leads.
constexpr std::chrono::microseconds kWarmLead{1000};
// In the last part of that time the process makes steps of the scratch session as it makes its own, so that
// Erlang's code and this library's are in the processor's caches too. What one of them takes, with room.
constexpr std::chrono::microseconds kWholeSteps{150}, kWholeStep{60};
// How long one call polls. Between two of them the scheduler runs the other processes that are ready.
constexpr std::chrono::microseconds kPoll{100};
constexpr std::int64_t kTurn = 1000;  // microseconds after which a process gives way

// The tag of one wait's messages, in an environment of its own.
struct Tag {
  explicit Tag(Term of) : term(enif_make_copy(env.get(), of)) {}
  const OwnEnv env;
  const Term term;
};

// The process sleeps until {:due, tag, number}, at the tick's time.
Term sleep_until(Call& call, ClockHandle& clock, std::int64_t number, Term tag, SteadyClock::time_point due) {
  const auto send = [receiver = clock.receiver, number, own = std::make_shared<Tag>(tag)](std::int64_t) {
    return receiver->send("due", own->term, number) != TickReceiver::Sent::no_memory;
  };
  const auto alarm = std::make_shared<core::Ticker>(due, core::kMostMicroHertz, send);
  alarm->ask(0);
  std::atomic_store(&clock.alarm, alarm);
  return encode_atom(call, "sleep");
}

// Whether a scratch step has come. Where the process was woken late, one that ends shortly before the frame
// is better than none: on an H200 8 to 13% of frames found everything cold without, and 2 to 4% with it,
// where the clock woke 500 us before the frame.
bool warm(ClockHandle& clock, SteadyClock::time_point due, core::PollingPlace& place) {
  if (clock.loaded->replaced.load(std::memory_order_relaxed)) return false;
  return clock.scratch->run_until(due - kWholeSteps, place) ||
         clock.scratch->run_until(due - kWholeStep, place);
}

void require_running(bool stopped) {
  if (stopped) {
    fail(ErrorKind::invalid_argument, "clock", "the clock was stopped; start another one to wait for");
  }
}

// Messages go to the process that started the clock, so that another one would wait for ever.
void require_own(Call& call, const ClockHandle& clock) {
  ErlNifPid self;
  enif_self(call.env(), &self);
  if (enif_compare_pids(&self, &clock.receiver->process) != 0) {
    fail(ErrorKind::invalid_argument, "clock",
         "only the process that started the clock may wait for it; start a clock in each process that waits");
  }
}

std::int64_t microseconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(SteadyClock::now() - begin).count();
}

}  // namespace

// %{handle, ref, start, scratch}: tick n is due at start + n / fps, in nanoseconds of Erlang's monotonic
// time; ref is the tag of the messages that ask_tick() asks for; scratch is a session of nobody's, nil
// without `warm`.
Term start_clock(Call& call, double fps, std::optional<SessionHandle*> warm) {
  const core::MicroHertz rate = core::micro_hertz(fps, "fps");
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
  clock.receiver = receiver;
  // In this order, so that no tick comes before its time by Erlang's clock where the system takes the core
  // away in between.
  const std::int64_t start = enif_monotonic_time(ERL_NIF_NSEC) + clock.lead.count();
  const auto first = SteadyClock::now();
  clock.ticker = std::make_shared<core::Ticker>(
      first, rate, [receiver](std::int64_t number) { return receiver->tick(number); });
  return encode(call, Map{{{"handle"}, encode_handle(call, std::move(clock))},
                          {{"ref"}, ref},
                          {{"start"}, encode_integer(call, start)},
                          {{"scratch"}, scratch}});
}

Term take_tick(Call& call, ClockHandle& clock, Term tag) {
  require_own(call, clock);
  TickReceiver& receiver = *clock.receiver;
  std::int64_t before = 0;
  {
    const std::lock_guard<std::mutex> lock(receiver.mutex);
    require_running(receiver.stopped);
    const std::int64_t number = clock.ticker->last_due();
    before = receiver.taken;
    if (number > before) {
      receiver.taken = number;
      receiver.asked = TickReceiver::Asked::nothing;
      const std::int64_t missed = before < 0 ? 0 : number - before - 1;
      return enif_make_tuple2(call.env(), encode_integer(call, number), encode_integer(call, missed));
    }
    receiver.ask(TickReceiver::Asked::by_wait, tag);
  }
  clock.ticker->ask(before + 1);
  return encode_atom(call, "later");
}

Term ask_tick(Call& call, ClockHandle& clock, Term ref) {
  require_own(call, clock);
  TickReceiver& receiver = *clock.receiver;
  std::int64_t before = 0;
  {
    const std::lock_guard<std::mutex> lock(receiver.mutex);
    require_running(receiver.stopped);
    before = receiver.taken;
    receiver.ask(TickReceiver::Asked::by_next, ref);
    receiver.has_asked_next = true;
  }
  clock.ticker->ask(before + 1);
  return encode_atom(call, "ok");
}

Term await_tick(Call& call, ClockHandle& clock, std::int64_t number, Term tag) {
  const SteadyClock::time_point begin = SteadyClock::now();
  const SteadyClock::time_point due = clock.ticker->due(std::max<std::int64_t>(number, 0)) + clock.lead;
  if (due <= begin || due > begin + clock.lead) return encode_atom(call, "due");
  core::PollingPlace place;
  if (!place.may_poll()) return sleep_until(call, clock, number, tag, due);
  if (clock.warmed->exchange(number) != number) {
    *clock.warm = warm(clock, due, place);
    if (*clock.warm) clock.session->caller_has_warmed();
  }
  if (*clock.warm && SteadyClock::now() + kWholeStep < due) {
    report_time(call.env(), microseconds_since(begin));
    return encode_atom(call, clock.session->acts() ? "act" : "step");
  }
  clock.session->arm();
  const bool may_poll = place.poll_until(due, kPoll);
  const bool is_due = SteadyClock::now() >= due;
  // Before the tick the processes that are ready have their turn.
  report_time(call.env(), is_due ? microseconds_since(begin) : kTurn);
  if (is_due) return encode_atom(call, "due");
  return may_poll ? encode_atom(call, "again") : sleep_until(call, clock, number, tag, due);
}

// The alarm stays: a process that sleeps until it is woken by it.
Term stop_clock(Call& call, ClockHandle& clock) {
  clock.ticker->stop();
  const SendingFrom from(call.env());
  return encode_atom(call, clock.receiver->stop() ? "asked" : "ok");
}

}  // namespace exphil::nif
