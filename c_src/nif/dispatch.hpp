// Turns a plain C++ function with typed arguments into a NIF: decode the arguments, call, encode the result,
// and translate whatever was thrown, in this one place.
//
//   std::string f(Call&, PolicyHandle&, std::int64_t);
//   inline constexpr const char* kArguments[] = {"model", "count"};
//   {"f", 2, Nif<f, kArguments>::scheduled, 0}
//
// Elixir gets {:ok, value} or {:error, {kind, argument, message}}; nothing is ever raised from here.
#pragma once

#include <iterator>
#include <tuple>

#include "nif/resources.hpp"

namespace exphil::nif {

Term encode_ok(Call& call, Term value);
// For the exception that is being handled. Call only inside a catch block.
Term encode_current_exception(Call& call) noexcept;

// The dirty scheduler for a call whose first argument is `first`: a model, a session, a list of sessions, or
// a backend's name. IO-bound where the call waits for a GPU, CPU-bound where it computes.
int scheduler_for(ErlNifEnv* env, Term first);

template <auto Function, const auto& Arguments>
struct Nif;

template <class Result, class... Args, Result (*Function)(Call&, Args...), const auto& Arguments>
struct Nif<Function, Arguments> {
  static_assert(std::size(Arguments) == sizeof...(Args), "one name for each argument");

  // Runs where it is called. In a function table this is for calls of a microsecond, or with a dirty flag.
  static Term run(ErlNifEnv* env, int, const Term argv[]) noexcept {
    Call call(env);
    try {
      return encode_ok(call, encode(call, apply(call, argv, std::index_sequence_for<Args...>{})));
    } catch (...) {
      return encode_current_exception(call);
    }
  }

  // Moves to the dirty scheduler that the first argument asks for, and runs there. The terms of argv stay as
  // they are; enif_schedule_nif keeps them.
  static Term scheduled(ErlNifEnv* env, int argc, const Term argv[]) noexcept {
    return enif_schedule_nif(env, "exphil_native", scheduler_for(env, argv[0]), run, argc, argv);
  }

 private:
  template <std::size_t... I>
  static Result apply(Call& call, const Term* argv, std::index_sequence<I...>) {
    // Braces fix the order: the first bad argument is the one that is reported.
    std::tuple<Args...> arguments{Decoder<Args>::decode(call, argv[I], Arguments[I])...};
    return Function(call, std::get<I>(std::move(arguments))...);
  }
};

}  // namespace exphil::nif
