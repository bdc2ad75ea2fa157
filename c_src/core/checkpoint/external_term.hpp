// Reads Erlang's external term format (erlang.org, "External Term Format") without an Erlang: what Edifice
// and ExPhil save their policies in. Strict: it accepts numbers, atoms, tuples, lists, binaries and maps, and
// refuses functions, references, ports, processes, bit strings and every tag it was not written for. Depth,
// counts and sizes are bounded before memory is taken. Atoms are text here: nothing is added to any atom
// table. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace exphil::core {

inline constexpr int kMaxTermDepth = 64;
inline constexpr std::size_t kMaxTerms = std::size_t{1} << 20;  // in one external term; 80 MB of ErlangTerm

// One term. Text points into the bytes it was read from, which must outlive it.
struct ErlangTerm {
  enum class Kind { integer, big, real, atom, tuple, list, binary, map };
  Kind kind = Kind::list;
  std::int64_t integer = 0;  // of an integer; `big` is one beyond 64 bits, whose value is not kept
  double real = 0;
  std::string_view text;          // of an atom (UTF-8 or Latin-1, as written) or a binary
  std::vector<ErlangTerm> items;  // of a tuple or list; of a map: key, value, key, value

  bool is_atom(std::string_view name) const { return kind == Kind::atom && text == name; }
  // The value under an atom or a binary of that text; null where this is no map or has no such key.
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

// The bytes must be one whole external term, starting with 131. Throws invalid_checkpoint that says what is
// wrong and at which byte; `what` names the term in it. Plain bytes must outlive the result.
ExternalTerm read_external_term(const std::uint8_t* bytes, std::size_t size, const std::string& what);

}  // namespace exphil::core
