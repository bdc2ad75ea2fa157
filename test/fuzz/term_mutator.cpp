#include "term_mutator.hpp"

#include <zlib.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include "numbers.hpp"
#include "support/erlang_writer.hpp"
#include "term.hpp"

// libFuzzer's own mutation of bytes.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace exphil::fuzz {

namespace {

constexpr std::size_t kContainerHead = 5,
                      kNxHead = 12;  // flag, size of the metadata; "nx", version, order, size
constexpr std::size_t kMostInflated = 1 << 18;
constexpr char kExternalTerm = '\x83';

constexpr const char* kWords[] = {
    "mamba",       "mamba_ssd",  "mamba_2",    "exphil_policy", "window_size",   "chunk_size", "num_layers",
    "hidden_size", "state_size", "embed_size", "conv_size",     "expand_factor", "backbone",   "temporal",
    "true",        "false",      "nil",        "config",        "params",        "f",          "bf",
    "s",           "kernel",     "bias",       "arch",          "axis_buckets"};

// What surrounds the terms of a file.
struct Parts {
  bool container = false;  // else one external term, which is `description`
  bool compressed = false;
  Term metadata, description;
  bool has_metadata = false;
  std::string data;
};

std::uint64_t number_at(const std::string& bytes, std::size_t at, int size) {
  std::uint64_t value = 0;
  for (int i = 0; i < size; ++i)
    value = value << 8 | static_cast<std::uint8_t>(bytes[at + static_cast<std::size_t>(i)]);
  return value;
}

bool inflate_all(const std::string& bytes, std::string* out) {
  out->resize(kMostInflated);
  uLongf size = kMostInflated;
  const int status = ::uncompress(reinterpret_cast<Bytef*>(out->data()), &size,
                                  reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  out->resize(size);
  return status == Z_OK;
}

// One external term, plain or compressed.
bool split_term(const std::string& bytes, Term* term, bool* compressed) {
  if (bytes.size() < 2 || bytes[0] != kExternalTerm) return false;
  *compressed = bytes[1] == 80 && bytes.size() > 6;
  std::string body = bytes.substr(1);
  if (*compressed && !inflate_all(bytes.substr(6), &body)) return false;
  return parse_term(body, term);
}

bool split(const std::string& bytes, Parts* parts) {
  if (bytes.size() < kContainerHead) return false;
  if (bytes[0] == kExternalTerm) return split_term(bytes, &parts->description, &parts->compressed);
  parts->container = true;
  parts->compressed = bytes[0] == 1;
  const std::uint64_t metadata = number_at(bytes, 1, 4);
  if (metadata > bytes.size() - kContainerHead) return false;
  parts->has_metadata = metadata > 0;
  bool ignored = false;
  if (metadata > 0 && !split_term(bytes.substr(kContainerHead, metadata), &parts->metadata, &ignored))
    return false;
  std::string tensors = bytes.substr(kContainerHead + metadata);
  if (parts->compressed && !inflate_all(std::string(tensors), &tensors)) return false;
  if (tensors.size() < kNxHead) return false;
  const std::uint64_t description = number_at(tensors, 4, 8);
  if (description > tensors.size() - kNxHead) return false;
  parts->data = tensors.substr(kNxHead + description);
  return split_term(tensors.substr(kNxHead, description), &parts->description, &ignored);
}

std::string join(const Parts& parts) {
  using namespace test::erlang;
  const std::string body = parts.description.write();
  if (!parts.container) return parts.compressed ? compressed_term(body, body.size()) : term(body);
  return container(parts.compressed ? 1 : 0, parts.has_metadata ? term(parts.metadata.write()) : "",
                   serialized(term(body), parts.data));
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  bool chance(std::size_t one_in) { return below(one_in) == 0; }
  std::size_t below(std::size_t count) { return random_() % count; }

  void change(Term& root) {
    Term& term = root.at(below(root.count()));
    switch (below(8)) {
      case 0:  // one term in the place of another
        term = Term(root.at(below(root.count())));
        return;
      case 1:
        if (!term.items.empty())
          term.items.erase(term.items.begin() + static_cast<long>(below(term.items.size())));
        return;
      case 2:
        if (!term.items.empty()) term.items.push_back(Term(term.items[below(term.items.size())]));
        return;
      case 3:
        if (!term.items.empty())
          std::swap(term.items[below(term.items.size())], term.items[below(term.items.size())]);
        return;
      case 4:
        if (term.items.empty()) term = Term::of_integer(kNumbers[below(std::size(kNumbers))]);
        return;
      default:
        if (term.items.empty()) change_content(term);
    }
  }

  // Offsets and sizes as the types and shapes need them; the data is as long as they say, if that is little
  // enough.
  void deal_offsets(Parts& parts) {
    std::uint64_t end = 0;
    deal_offsets(parts.description, &end);
    if (end <= (1u << 16)) parts.data.resize(end, '\x3c');
  }

 private:
  void change_content(Term& term) {
    const bool word = term.tag == 100 || term.tag == 109 || term.tag == 119;
    if (word && chance(2)) {
      term.bytes = kWords[below(std::size(kWords))];
    } else if (word && chance(2)) {
      term.tag = term.tag == 109 ? 119 : 109;
      term.bytes.resize(std::min<std::size_t>(term.bytes.size(), 255));
    } else if (!term.bytes.empty()) {
      auto* const bytes = reinterpret_cast<std::uint8_t*>(term.bytes.data());
      term.bytes.resize(LLVMFuzzerMutate(bytes, term.bytes.size(), term.bytes.size()));
      if (term.is_integer()) term.bytes.resize(term.tag == 97 ? 1 : 4);
    }
  }

  // {:t, shape, type, names, axes, offset, size}, wherever it is
  static void deal_offsets(Term& term, std::uint64_t* end) {
    for (Term& item : term.items) deal_offsets(item, end);
    if (term.tag != 104 || term.items.size() != 7 || term.items[0].bytes != "t") return;
    const Term& type = term.items[2];
    std::uint64_t bytes = type.items.size() == 2 && type.items[1].is_integer()
                              ? static_cast<std::uint64_t>(type.items[1].integer()) / 8
                              : 4;
    for (const Term& dim : term.items[1].items)
      bytes *= dim.is_integer() ? static_cast<std::uint64_t>(dim.integer()) : 1;
    term.items[5] = Term::of_integer(*end);
    term.items[6] = Term::of_integer(bytes);
    *end += bytes;
  }

  std::minstd_rand random_;
};

}  // namespace

std::size_t mutate_terms(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  Mutator mutator(seed);
  Parts parts;
  // Now and then the bytes as they are, so that broken counts and lengths come up, too.
  if (mutator.chance(8) || !split(std::string(data, data + size), &parts))
    return LLVMFuzzerMutate(data, size, most);
  for (std::size_t changes = 1 + mutator.below(3); changes > 0; --changes) {
    mutator.change(parts.has_metadata && mutator.chance(2) ? parts.metadata : parts.description);
  }
  if (parts.container && mutator.chance(2)) mutator.deal_offsets(parts);
  if (mutator.chance(16)) parts.compressed = !parts.compressed;
  if (!parts.data.empty() && mutator.chance(8)) parts.data[mutator.below(parts.data.size())] ^= '\x7f';
  const std::string made = join(parts);
  if (made.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::copy(made.begin(), made.end(), data);
  return made.size();
}

}  // namespace exphil::fuzz
