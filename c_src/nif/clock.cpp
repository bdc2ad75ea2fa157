// A frame clock: a Ticker that sends its ticks to the process that started it.
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

}  // namespace

// {handle, ref, start}: tick n is the message {:tick, ref, n}, sent at start + n / fps. `start` is in
// nanoseconds of Erlang's monotonic time.
Term start_clock(Call& call, double fps) {
  const auto receiver = std::make_shared<Receiver>();
  enif_self(call.env(), &receiver->process);
  const Term ref = enif_make_ref(call.env());
  receiver->ref = enif_make_copy(receiver->env, ref);
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t start = enif_monotonic_time(ERL_NIF_NSEC);
  const auto ticker = std::make_shared<core::Ticker>(
      begin, core::micro_hertz(fps), [receiver](std::int64_t number) { return receiver->send(number); });
  return enif_make_tuple3(call.env(), encode_handle(call, ClockHandle{ticker}), ref,
                          encode_integer(call, start));
}

Term stop_clock(Call& call, ClockHandle& clock) {
  clock.ticker->stop();
  return encode_atom(call, "ok");
}

}  // namespace exphil::nif
