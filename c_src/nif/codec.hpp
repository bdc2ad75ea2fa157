// Converts between Erlang terms and C++ values: one Decoder and one encode() for each type. Used by every NIF
// through dispatch.hpp, so that a NIF is a plain function with typed arguments.
//
// A Decoder throws core::Error (invalid_argument, limit_exceeded) that names the argument. Decoded views
// point into BEAM binaries and are valid as long as the Call.
#pragma once

#include <erl_nif.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/device_ranges.hpp"
#include "core/error.hpp"
#include "core/tensor.hpp"

namespace exphil::nif {

using Term = ERL_NIF_TERM;

// One NIF call: its environment, and aligned copies of inputs. On the calling thread's stack for the duration
// of the call.
class Call {
 public:
  explicit Call(ErlNifEnv* env, bool may_wait = true) : env_(env), may_wait_(may_wait) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ErlNifEnv* env() const { return env_; }
  // False on a normal scheduler: what would wait for another call throws core::WouldWait, having done
  // nothing.
  bool may_wait() const { return may_wait_; }

  // `data` itself, or a copy of it where its address is not a multiple of `alignment`: a sub-binary may start
  // at any byte.
  const void* aligned(const void* data, std::size_t bytes, std::size_t alignment);

  // The arguments that are in device memory; see ScanTensor.
  const core::DeviceRanges& device_ranges() const { return device_ranges_; }
  void add_device_range(core::DeviceRange range) { device_ranges_.push_back(std::move(range)); }

 private:
  ErlNifEnv* env_;
  const bool may_wait_;
  std::vector<std::unique_ptr<unsigned char[]>> copies_;
  core::DeviceRanges device_ranges_;
};

// An atom by its spelling.
struct Atom {
  std::string name;
};

// An integer of 64 bits without a sign; as a bare number it would be a Term.
struct Unsigned {
  std::uint64_t value = 0;
};

// Bytes as an Erlang binary; std::string is UTF-8 text, which is a binary as well.
struct Binary {
  const unsigned char* data = nullptr;
  std::size_t size = 0;
};

// A map with atom keys.
using Map = std::vector<std::pair<Atom, Term>>;

// Throws invalid_argument: "<argument> must be <expected>, got <the term>".
[[noreturn]] void fail_decode(Call& call, Term term, const char* argument, const char* expected);

// The term in Elixir's syntax, cut to one line.
std::string describe(Call& call, Term term);

template <class T>
struct Decoder;

template <>
struct Decoder<Term> {
  static Term decode(Call&, Term term, const char*) { return term; }
};
template <>
struct Decoder<bool> {
  static bool decode(Call& call, Term term, const char* argument);
};
template <>
struct Decoder<std::int64_t> {
  static std::int64_t decode(Call& call, Term term, const char* argument);
};
template <>
struct Decoder<Unsigned> {
  static Unsigned decode(Call& call, Term term, const char* argument);
};
template <>
struct Decoder<double> {
  static double decode(Call& call, Term term, const char* argument);
};
template <>
struct Decoder<std::string> {
  static std::string decode(Call& call, Term term, const char* argument);
};
template <>
struct Decoder<Atom> {
  static Atom decode(Call& call, Term term, const char* argument);
};
template <>
struct Decoder<Binary> {
  static Binary decode(Call& call, Term term, const char* argument);
};
// {type, shape, binary}; the binary has exactly the bytes that type and shape need.
template <>
struct Decoder<core::TensorView> {
  static core::TensorView decode(Call& call, Term term, const char* argument);
};

// A tensor that a scan reads, which may also be in device memory: {type, shape, {:device, address, bytes,
// owner}}. The view then has an address of the device, and its range is one of the call's device_ranges().
// The owner keeps the memory as long as the term exists.
struct ScanTensor : core::TensorView {};
template <>
struct Decoder<ScanTensor> {
  static ScanTensor decode(Call& call, Term term, const char* argument);
};

// In the VM's order of the keys.
template <>
struct Decoder<Map> {
  static Map decode(Call& call, Term term, const char* argument);
};

// nil is an empty optional.
template <class T>
struct Decoder<std::optional<T>> {
  static std::optional<T> decode(Call& call, Term term, const char* argument);
};

template <class T>
struct Decoder<std::vector<T>> {
  static std::vector<T> decode(Call& call, Term term, const char* argument);
};

template <class... Elements>
struct Decoder<std::tuple<Elements...>> {
  static std::tuple<Elements...> decode(Call& call, Term term, const char* argument);
};

// Messages that the library sends in this thread meanwhile are sent by what this environment belongs to, as
// the VM wants it of a thread of its own. Outside of such an object env() is null, as it must be on
// any other thread.
class SendingFrom {
 public:
  explicit SendingFrom(ErlNifEnv* env) : before_(std::exchange(env_, env)) {}
  ~SendingFrom() { env_ = before_; }
  SendingFrom(const SendingFrom&) = delete;
  SendingFrom& operator=(const SendingFrom&) = delete;
  static ErlNifEnv* env() { return env_; }

 private:
  static inline thread_local ErlNifEnv* env_ = nullptr;
  ErlNifEnv* const before_;
};

// Uninitialised memory that becomes a binary. Throws out_of_memory where the VM has no memory, where
// enif_make_new_binary would abort the VM.
class NewBinary {
 public:
  explicit NewBinary(std::size_t bytes);
  ~NewBinary() {
    if (binary_.data != nullptr) enif_release_binary(&binary_);
  }
  NewBinary(const NewBinary&) = delete;
  NewBinary& operator=(const NewBinary&) = delete;

  unsigned char* data() { return binary_.data; }
  float* floats() { return reinterpret_cast<float*>(binary_.data); }
  Term term(Call& call);  // once; afterwards the VM owns the bytes

 private:
  ErlNifBinary binary_{};
};

Term encode_atom(Call& call, const char* name);
Term encode_bytes(Call& call, const void* data, std::size_t size);

inline Term encode(Call&, Term term) {
  return term;
}
inline Term encode(Call& call, const Atom& atom) {
  return encode_atom(call, atom.name.c_str());
}
inline Term encode(Call& call, const std::string& text) {
  return encode_bytes(call, text.data(), text.size());
}
Term encode(Call& call, const Map& map);
Term encode_map(Call& call, const Term* keys, const Term* values, std::size_t count);
template <std::size_t N>
Term encode_map(Call& call, const std::array<Term, N>& keys, const std::array<Term, N>& values) {
  return encode_map(call, keys.data(), values.data(), N);
}
Term encode(Call& call, const core::Shape& shape);
// Only these overloads: a bool, a count and a Term are all integers to the compiler.
inline Term encode_bool(Call& call, bool value) {
  return encode_atom(call, value ? "true" : "false");
}
inline Term encode_integer(Call& call, std::int64_t value) {
  return enif_make_int64(call.env(), value);
}
// {type, shape, binary}
Term encode_tensor(Call& call, core::Dtype dtype, const core::Shape& shape, Term binary);
Term encode_list(Call& call, const std::vector<Term>& terms);

template <class T>
std::optional<T> Decoder<std::optional<T>>::decode(Call& call, Term term, const char* argument) {
  if (enif_is_identical(term, encode_atom(call, "nil"))) return std::nullopt;
  return Decoder<T>::decode(call, term, argument);
}

template <class T>
std::vector<T> Decoder<std::vector<T>>::decode(Call& call, Term term, const char* argument) {
  unsigned length = 0;
  if (!enif_get_list_length(call.env(), term, &length)) fail_decode(call, term, argument, "a list");
  std::vector<T> elements;
  elements.reserve(length);
  Term head = 0;
  while (enif_get_list_cell(call.env(), term, &head, &term)) {
    elements.push_back(Decoder<T>::decode(call, head, argument));
  }
  return elements;
}

// Braces fix the order of evaluation: the first bad element is reported.
template <class... Elements, std::size_t... I>
std::tuple<Elements...> decode_elements(Call& call, const Term* elements, const char* argument,
                                        std::index_sequence<I...>) {
  return std::tuple<Elements...>{Decoder<Elements>::decode(call, elements[I], argument)...};
}

template <class... Elements>
std::tuple<Elements...> Decoder<std::tuple<Elements...>>::decode(Call& call, Term term,
                                                                 const char* argument) {
  int arity = 0;
  const Term* elements = nullptr;
  if (!enif_get_tuple(call.env(), term, &arity, &elements) || arity != int{sizeof...(Elements)}) {
    fail_decode(call, term, argument, "a tuple of another size");
  }
  return decode_elements<Elements...>(call, elements, argument, std::index_sequence_for<Elements...>{});
}

}  // namespace exphil::nif
