#include "term.hpp"

#include "support/erlang_writer.hpp"

namespace exphil::fuzz {

namespace {

constexpr int kMostDepth = 80;  // beyond what the library accepts
constexpr std::size_t kMostItems = 1 << 14;

constexpr std::uint8_t kFloat = 70, kSmallInteger = 97, kInteger = 98, kAtom = 100, kSmallTuple = 104,
                       kNil = 106, kList = 108, kBinary = 109, kSmallBig = 110, kMap = 116, kSmallAtom = 119;

// How many bytes the length of a tag's content has; 0 where there is none.
int length_bytes(std::uint8_t tag) {
  if (tag == kSmallTuple || tag == kSmallBig || tag == kSmallAtom) return 1;
  if (tag == kAtom) return 2;
  return tag == kList || tag == kBinary || tag == kMap ? 4 : 0;
}

class Parser {
 public:
  explicit Parser(const std::string& bytes) : bytes_(bytes) {}

  bool whole(Term* term) { return one(term, 0) && at_ == bytes_.size(); }

 private:
  bool one(Term* term, int depth) {
    std::uint64_t length = 0;
    if (depth > kMostDepth || !number(1, &length)) return false;
    term->tag = static_cast<std::uint8_t>(length);
    switch (term->tag) {
      case kNil:
        return true;
      case kSmallInteger:
        return content(1, term);
      case kInteger:
        return content(4, term);
      case kFloat:
        return content(8, term);
      case kAtom:
      case kSmallAtom:
      case kBinary:
        return number(length_bytes(term->tag), &length) && content(length, term);
      case kSmallBig:
        return number(1, &length) && content(length + 1, term);
      case kSmallTuple:
      case kMap:
        return number(length_bytes(term->tag), &length) &&
               items(term->tag == kMap ? 2 * length : length, term, depth);
      case kList:
        return number(4, &length) && items(length, term, depth) && number(1, &length) && length == kNil;
      default:
        return false;
    }
  }

  bool number(int size, std::uint64_t* value) {
    if (bytes_.size() - at_ < static_cast<std::size_t>(size)) return false;
    *value = 0;
    for (int i = 0; i < size; ++i) *value = *value << 8 | static_cast<std::uint8_t>(bytes_[at_++]);
    return true;
  }

  bool content(std::uint64_t size, Term* term) {
    if (bytes_.size() - at_ < size) return false;
    term->bytes = bytes_.substr(at_, size);
    at_ += size;
    return true;
  }

  bool items(std::uint64_t count, Term* term, int depth) {
    total_ += count;
    if (total_ > kMostItems || bytes_.size() - at_ < count) return false;
    for (std::uint64_t i = 0; i < count; ++i) {
      term->items.emplace_back();
      if (!one(&term->items.back(), depth + 1)) return false;
    }
    return true;
  }

  const std::string& bytes_;
  std::size_t at_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace

bool parse_term(const std::string& bytes, Term* term) {
  return Parser(bytes).whole(term);
}

std::size_t Term::count() const {
  std::size_t all = 1;
  for (const Term& item : items) all += item.count();
  return all;
}

Term& Term::at(std::size_t index) {
  if (index == 0) return *this;
  --index;
  for (Term& item : items) {
    const std::size_t inside = item.count();
    if (index < inside) return item.at(index);
    index -= inside;
  }
  return *this;
}

std::string Term::write() const {
  using test::erlang::number;
  std::string out(1, static_cast<char>(tag));
  const bool holds_items = tag == kSmallTuple || tag == kList || tag == kMap;
  std::size_t length = holds_items ? items.size() : bytes.size();
  if (tag == kMap) length /= 2;
  if (tag == kSmallBig && length > 0) --length;  // its sign has a byte of its own
  if (length_bytes(tag) > 0) out += number(length, length_bytes(tag));
  if (!holds_items) return out + bytes;
  for (std::size_t i = 0; i < (tag == kMap ? 2 * length : length); ++i) out += items[i].write();
  return tag == kList ? out + static_cast<char>(kNil) : out;
}

std::int64_t Term::integer() const {
  std::uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<std::uint8_t>(byte);
  return tag == kInteger ? static_cast<std::int32_t>(value) : static_cast<std::int64_t>(value);
}

Term Term::of_integer(std::uint64_t value) {
  using test::erlang::number;
  if (value < 256) return {kSmallInteger, number(value, 1), {}};
  if (value <= INT32_MAX) return {kInteger, number(value, 4), {}};
  Term big{kSmallBig, std::string(1, '\0'), {}};  // little-endian, behind its sign
  for (int i = 0; i < 8; ++i) big.bytes += static_cast<char>(value >> (8 * i));
  return big;
}

}  // namespace exphil::fuzz
