// Reads Erlang's external term format (erlang.org, "External Term Format") without an Erlang VM: Edifice and
// ExPhil save their policies in it. Strict: it accepts numbers, atoms, tuples, lists, binaries and maps, and
// refuses functions, references, ports, processes, bit strings and unknown tags. Depth, counts and sizes are
// checked before memory is allocated. Atoms are read as text, so no atom table grows. Pure functions; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/byte_source.hpp"

namespace exphil::core {

inline constexpr int kMaxTermDepth = 64;
inline constexpr std::size_t kMaxTerms = std::size_t{1} << 20;  // in one external term; 80 MB of ErlangTerm

// One term. Its text points into the bytes it was read from, which must outlive it.
struct ErlangTerm {
  enum class Kind { integer, big, real, atom, tuple, list, binary, map };
  Kind kind = Kind::list;
  std::int64_t integer = 0;  // of an integer; `big` is one beyond 64 bits, without its value
  double real = 0;
  std::string_view text;          // of an atom (UTF-8 or Latin-1, as written) or a binary
  std::vector<ErlangTerm> items;  // of a tuple or list; of a map: key, value, key, value

  bool is_atom(std::string_view name) const { return kind == Kind::atom && text == name; }
  // The value under an atom or binary key with that text; null where this is not a map or lacks the key.
  const ErlangTerm* atom_key(std::string_view name) const { return find(Kind::atom, name); }
  const ErlangTerm* binary_key(std::string_view name) const { return find(Kind::binary, name); }

 private:
  const ErlangTerm* find(Kind kind, std::string_view name) const;
};

// The term and, where it was compressed (131 80), the bytes that its text points into.
struct ExternalTerm {
  ErlangTerm root;
  std::vector<std::uint8_t> inflated;
};

// The bytes must be exactly one external term, starting with 131. Throws invalid_checkpoint with the problem
// and its byte offset; `what` names the term in the error. Uncompressed bytes must outlive the result. What
// is compressed counts towards the file's limit, and may inflate to `most` bytes.
ExternalTerm read_external_term(const std::uint8_t* bytes, std::size_t size, const std::string& what,
                                InflationLimit& limit, std::uint64_t most = InflationLimit::kMost);

}  // namespace exphil::core
