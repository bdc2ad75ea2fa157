#include "core/checkpoint/external_term.hpp"

#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "core/error.hpp"

namespace exphil::core {

namespace {

constexpr std::uint8_t kVersion = 131;
constexpr std::size_t kMaxAtomBytes = 255 * 4;  // 255 characters of UTF-8

enum Tag : std::uint8_t {
  kNewFloat = 70,
  kCompressed = 80,
  kSmallInteger = 97,
  kInteger = 98,
  kAtom = 100,
  kSmallTuple = 104,
  kLargeTuple = 105,
  kNil = 106,
  kString = 107,
  kList = 108,
  kBinary = 109,
  kSmallBig = 110,
  kLargeBig = 111,
  kSmallAtom = 115,
  kMap = 116,
  kAtomUtf8 = 118,
  kSmallAtomUtf8 = 119,
};

// What a term with a refused tag holds, for the error.
const char* refused_content(std::uint8_t tag) {
  switch (tag) {
    case 77:
      return " (a bit string)";
    case 88:
    case 103:
      return " (a process id)";
    case 89:
    case 102:
    case 120:
      return " (a port)";
    case 90:
    case 101:
    case 114:
      return " (a reference)";
    case 112:
    case 113:
    case 117:
      return " (a function)";
    default:
      return "";
  }
}

class TermReader {
 public:
  TermReader(const std::uint8_t* bytes, std::size_t size, const std::string& what)
      : begin_(bytes), at_(bytes), end_(bytes + size), what_(what) {}

  ErlangTerm read_whole() {
    ErlangTerm term = read(0);
    if (at_ != end_) bad(static_cast<std::size_t>(end_ - at_), " bytes follow the term");
    return term;
  }

 private:
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(ErrorKind::invalid_checkpoint, "path", what_, ", byte ", at_ - begin_, ": ", parts...);
  }

  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  const std::uint8_t* take(std::size_t bytes) {
    if (bytes > left()) bad("truncated: ", bytes, " bytes are needed and ", left(), " are left");
    const std::uint8_t* taken = at_;
    at_ += bytes;
    return taken;
  }

  // Big-endian, as everything in the format.
  std::uint64_t unsigned_number(std::size_t bytes) {
    const std::uint8_t* from = take(bytes);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | from[i];
    return value;
  }

  // A count of elements that take at least `least` bytes each.
  std::size_t count(std::size_t bytes, std::size_t least) {
    const std::uint64_t value = unsigned_number(bytes);
    if (value * least > left())
      bad("truncated: ", value, " elements are announced and ", left(), " bytes left");
    return static_cast<std::size_t>(value);
  }

  std::string_view text(std::size_t size) { return {reinterpret_cast<const char*>(take(size)), size}; }

  ErlangTerm integer(std::int64_t value) {
    ErlangTerm term;
    term.kind = ErlangTerm::Kind::integer;
    term.integer = value;
    return term;
  }

  ErlangTerm real() {
    const std::uint64_t bits = unsigned_number(8);
    ErlangTerm term;
    term.kind = ErlangTerm::Kind::real;
    std::memcpy(&term.real, &bits, sizeof bits);
    if (!std::isfinite(term.real)) bad("a float that is not finite, which Erlang does not have");
    return term;
  }

  // Sign and little-endian magnitude.
  ErlangTerm big(std::size_t size) {
    const std::uint8_t sign = *take(1);
    if (sign > 1) bad("a large integer has the sign byte ", int{sign});
    const std::uint8_t* digits = take(size);
    while (size > 0 && digits[size - 1] == 0) --size;
    std::uint64_t magnitude = 0;
    for (std::size_t i = size < 8 ? size : 8; i-- > 0;) magnitude = magnitude << 8 | digits[i];
    const std::uint64_t most = static_cast<std::uint64_t>(INT64_MAX) + sign;
    ErlangTerm term = integer(0);
    if (size > 8 || magnitude > most) {
      term.kind = ErlangTerm::Kind::big;
    } else {
      term.integer = static_cast<std::int64_t>(sign != 0 ? std::uint64_t{0} - magnitude : magnitude);
    }
    return term;
  }

  ErlangTerm atom(std::size_t size) {
    if (size > kMaxAtomBytes) bad("an atom of ", size, " bytes; the limit is ", kMaxAtomBytes);
    ErlangTerm term;
    term.kind = ErlangTerm::Kind::atom;
    term.text = text(size);
    return term;
  }

  ErlangTerm binary() {
    ErlangTerm term;
    term.kind = ErlangTerm::Kind::binary;
    term.text = text(count(4, 1));
    return term;
  }

  ErlangTerm sequence(ErlangTerm::Kind kind, std::size_t size, int depth) {
    ErlangTerm term;
    term.kind = kind;
    for (std::size_t i = 0; i < size; ++i) term.items.push_back(read(depth + 1));
    return term;
  }

  ErlangTerm list(int depth) {
    ErlangTerm term = sequence(ErlangTerm::Kind::list, count(4, 1), depth);
    if (*take(1) != kNil) bad("an improper list");
    return term;
  }

  // A list of integers from 0 to 255.
  ErlangTerm string() {
    ErlangTerm term;
    for (const char byte : text(count(2, 1))) {
      count_term();
      term.items.push_back(integer(static_cast<std::uint8_t>(byte)));
    }
    return term;
  }

  ErlangTerm map(int depth) {
    const std::size_t pairs = count(4, 2);
    ErlangTerm term;
    term.kind = ErlangTerm::Kind::map;
    std::set<std::string_view> keys;  // as written
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::uint8_t* key = at_;
      term.items.push_back(read(depth + 1));
      const std::string_view written(reinterpret_cast<const char*>(key), static_cast<std::size_t>(at_ - key));
      if (!keys.insert(written).second) bad("a map with a key that appears twice");
      term.items.push_back(read(depth + 1));
    }
    return term;
  }

  void count_term() {
    if (++terms_ > kMaxTerms) bad("more than ", kMaxTerms, " terms");
  }

  ErlangTerm read(int depth) {
    if (depth > kMaxTermDepth) bad("nested more than ", kMaxTermDepth, " deep");
    count_term();
    const std::uint8_t tag = *take(1);
    switch (tag) {
      case kNewFloat:
        return real();
      case kSmallInteger:
        return integer(static_cast<std::int64_t>(unsigned_number(1)));
      case kInteger:
        return integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(unsigned_number(4))));
      case kSmallBig:
        return big(count(1, 1));
      case kLargeBig:
        return big(count(4, 1));
      case kAtom:
      case kAtomUtf8:
        return atom(count(2, 1));
      case kSmallAtom:
      case kSmallAtomUtf8:
        return atom(count(1, 1));
      case kSmallTuple:
        return sequence(ErlangTerm::Kind::tuple, count(1, 1), depth);
      case kLargeTuple:
        return sequence(ErlangTerm::Kind::tuple, count(4, 1), depth);
      case kNil:
        return {};
      case kString:
        return string();
      case kList:
        return list(depth);
      case kBinary:
        return binary();
      case kMap:
        return map(depth);
      default:
        --at_;
        bad("tag ", int{tag}, refused_content(tag), " is not accepted");
    }
  }

  const std::uint8_t *begin_, *at_, *end_;
  const std::string& what_;
  std::size_t terms_ = 0;
};

std::uint32_t announced_size(const std::uint8_t* bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

const ErlangTerm* ErlangTerm::find(Kind key_kind, std::string_view name) const {
  if (kind != Kind::map) return nullptr;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].kind == key_kind && items[i].text == name) return &items[i + 1];
  }
  return nullptr;
}

ExternalTerm read_external_term(const std::uint8_t* bytes, std::size_t size, const std::string& what,
                                InflationLimit& limit, std::uint64_t most) {
  if (size == 0 || bytes[0] != kVersion) {
    fail(ErrorKind::invalid_checkpoint, "path", what,
         " is not an external term: it must start with byte 131, got ",
         size == 0 ? std::string("nothing") : std::to_string(int{bytes[0]}));
  }
  if (size == 1) fail(ErrorKind::invalid_checkpoint, "path", what, " is truncated: nothing follows byte 131");
  ExternalTerm result;
  if (bytes[1] != kCompressed) {
    result.root = TermReader(bytes + 1, size - 1, what).read_whole();
    return result;
  }
  if (size < 6) fail(ErrorKind::invalid_checkpoint, "path", what, " is truncated in its compressed size");
  const std::uint32_t announced = announced_size(bytes + 2);
  if (announced > most) {
    fail(ErrorKind::limit_exceeded, "path", what, " inflates to ", announced, " bytes; the limit is ", most);
  }
  InflatedBytes source(bytes + 6, size - 6, what, limit);
  result.inflated = source.take_owned(announced);
  source.finish();
  result.root = TermReader(result.inflated.data(), result.inflated.size(), what).read_whole();
  return result;
}

}  // namespace exphil::core
