// Reads a map of options from Elixir, each by its name. Used by the Decoders of option structs, so that every
// call has its options as a map and refuses a key that it does not know. Plain data of one call.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nif/codec.hpp"

namespace exphil::nif {

class OptionReader {
 public:
  // Throws invalid_argument unless `term` is a map whose keys are atoms.
  OptionReader(Call& call, Term term, const char* argument)
      : call_(call), argument_(argument), map_(Decoder<Map>::decode(call, term, argument)) {}

  // The value of `key`; empty where it is missing or nil. Errors name `shown`, or else the option ":key".
  template <class T>
  std::optional<T> take(const std::string& key, const std::string& shown = {}) {
    const std::string name = shown.empty() ? ":" + key : shown;
    for (auto entry = map_.begin(); entry != map_.end(); ++entry) {
      if (entry->first.name != key) continue;
      const Term value = entry->second;
      map_.erase(entry);
      return Decoder<std::optional<T>>::decode(call_, value, name.c_str());
    }
    return std::nullopt;
  }

  // Throws invalid_argument for a key that was not taken.
  void finish() const {
    if (map_.empty()) return;
    core::fail(core::ErrorKind::invalid_argument, argument_, argument_,
               " has the unknown key :", map_.front().first.name);
  }

 private:
  Call& call_;
  const char* const argument_;
  Map map_;
};

// The names of the results that a call wants, in its order; none where they are left out.
inline std::vector<std::string> take_results(OptionReader& reader) {
  std::vector<std::string> names;
  for (const Atom& name : reader.take<std::vector<Atom>>("results").value_or(std::vector<Atom>())) {
    names.push_back(name.name);
  }
  return names;
}

}  // namespace exphil::nif
