// Turns a plain C++ function with typed arguments into a NIF: decode the arguments, call, encode the result,
// and translate whatever was thrown, in this one place.
//
//   std::string f(Call&, PolicyHandle&, std::int64_t);
//   inline constexpr const char* kArguments[] = {"model", "count"};
//   {"f", 2, Nif<f, kArguments>::scheduled, 0}
//
// Elixir gets {:ok, value} or {:error, {kind, argument, message}}; nothing is ever raised from here.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>

#include "core/work/parallel.hpp"
#include "nif/held.hpp"
#include "nif/queue.hpp"
#include "nif/resources.hpp"
#include "nif/work.hpp"

namespace exphil::nif {

Term encode_ok(Call& call, Term value);
Term encode_queued(Call& call);
// What a function returned: {:ok, value}, or :queued where it returned nothing, because a message will have
// it.
template <class Result>
Term encode_result(Call& call, const Result& result) {
  return encode_ok(call, encode(call, result));
}
inline Term encode_result(Call& call, const std::optional<Term>& result) {
  return result ? encode_ok(call, *result) : encode_queued(call);
}
// For the exception that is being handled. Call only inside a catch block.
Term encode_current_exception(Call& call) noexcept;

// Tells the scheduler what a call took, so that a process which calls often gives way to the others.
void report_time(ErlNifEnv* env, ErlNifTime microseconds);

// Thrown on a normal scheduler by a function whose frame is late: a dirty job finishes it, with this handle
// and the call's arguments.
struct LateCall {
  Term handle;
};

template <auto Function, const auto& Arguments>
struct Nif;

template <class Result, class... Args, Result (*Function)(Call&, Args...), const auto& Arguments>
struct Nif<Function, Arguments> {
  static_assert(std::size(Arguments) == sizeof...(Args), "one name for each argument");

  // Runs where it is called. In a function table this is for calls of a microsecond, or with a dirty flag.
  static Term run(ErlNifEnv* env, int, const Term argv[]) noexcept {
    const HeldTimer held;
    Call call(env);
    try {
      return encode_result(call, apply(call, argv, std::index_sequence_for<Args...>{}));
    } catch (...) {
      return encode_current_exception(call);
    }
  }

  // Runs on the normal scheduler while calls are `short` and nobody else has what they need; otherwise in a
  // dirty job among those that compute, also where it waits for a device: a frame's step is over in some 100
  // us, and all of the ten jobs that wait may be held by batches of windows or by prefills. `Late` is the Nif
  // that finishes a LateCall there.
  template <bool is_short(ErlNifEnv*, const Term[]), class Late = Nif>
  static Term here(ErlNifEnv* env, int argc, const Term argv[]) noexcept {
    const HeldTimer held;
    if (!is_short(env, argv)) {
      core::note_frame();  // before it needs a core, not only after it
      return schedule(env, core::JobKind::compute, argc, argv);
    }
    const ErlNifTime begin = enif_monotonic_time(ERL_NIF_USEC);
    Call call(env, false);
    try {
      const Term answer = encode_result(call, apply(call, argv, std::index_sequence_for<Args...>{}));
      report_time(env, enif_monotonic_time(ERL_NIF_USEC) - begin);
      return answer;
    } catch (const core::WouldWait&) {
      return schedule(env, core::JobKind::compute, argc, argv);
    } catch (const LateCall& late) {
      report_time(env, enif_monotonic_time(ERL_NIF_USEC) - begin);
      Term terms[sizeof...(Args) + 1] = {late.handle};
      std::copy(argv, argv + argc, terms + 1);
      return enif_schedule_nif(env, "exphil_native", dirty_flag(core::JobKind::compute), Late::run, argc + 1,
                               terms);
    } catch (...) {
      return encode_current_exception(call);
    }
  }

  // For calls of which some are short: those run as here() says, the others as queued() does.
  template <bool is_short(ErlNifEnv*, const Term[]), Work estimate(ErlNifEnv*, const Term[])>
  static Term here_or_queued(ErlNifEnv* env, int argc, const Term argv[]) noexcept {
    return is_short(env, argv) ? here<is_short>(env, argc, argv) : queued<estimate>(env, argc, argv);
  }

  // Runs in a dirty job: among those that compute, or among those that wait, as the first argument says. The
  // terms of argv stay as they are; enif_schedule_nif keeps them.
  static Term scheduled(ErlNifEnv* env, int argc, const Term argv[]) noexcept {
    return schedule(env, job_kind(env, argv[0]), argc, argv);
  }

  // Little work runs in a dirty job, much on a background thread. That answers :queued, and the result is
  // sent to the caller. Elixir passes a reference for the message behind the function's own arguments. Much
  // work copies the terms; `copied` is what it copies of the first one.
  template <Work estimate(ErlNifEnv*, const Term[]), Term copied(ErlNifEnv*, Term) = nullptr>
  static Term queued(ErlNifEnv* env, int argc, const Term argv[]) noexcept {
    const HeldTimer held;
    const Work work = estimate(env, argv);
    if (!work.large) {
      if (work.helpers > 0) core::wake_helpers(work.helpers);
      return schedule(env, work.kind, argc, argv);
    }
    try {
      Term terms[sizeof...(Args) + 1];
      std::copy(argv, argv + argc, terms);
      if constexpr (copied != nullptr) terms[0] = copied(env, terms[0]);
      return submit_call(env, work.kind, job_device(env, argv), run, argc, terms);
    } catch (...) {
      Call call(env);
      return encode_current_exception(call);
    }
  }

 private:
  static Term schedule(ErlNifEnv* env, core::JobKind kind, int argc, const Term argv[]) noexcept {
    return enif_schedule_nif(env, "exphil_native", dirty_flag(kind), run, argc, argv);
  }

  template <std::size_t... I>
  static Result apply(Call& call, const Term* argv, std::index_sequence<I...>) {
    // Braces fix the order: the first bad argument is the one that is reported.
    std::tuple<Args...> arguments{Decoder<Args>::decode(call, argv[I], Arguments[I])...};
    return Function(call, std::get<I>(std::move(arguments))...);
  }
};

}  // namespace exphil::nif
