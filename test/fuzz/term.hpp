// One Erlang term as a tree that can be changed and written again. Accepts less than the library's reader: it
// only has to take apart what the seeds and their mutations are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace exphil::fuzz {

struct Term {
  std::uint8_t tag = 106;
  std::string bytes;        // of a number, an atom or a binary, without its length
  std::vector<Term> items;  // of a tuple or list; of a map: key, value, key, value

  std::size_t count() const;    // of this term and everything in it
  Term& at(std::size_t index);  // the index'th of them
  std::string write() const;

  bool is_integer() const { return tag == 97 || tag == 98; }
  std::int64_t integer() const;
  static Term of_integer(std::uint64_t value);
};

// False where the bytes are not one whole term of the accepted kinds.
bool parse_term(const std::string& bytes, Term* term);

}  // namespace exphil::fuzz
