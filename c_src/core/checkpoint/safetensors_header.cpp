#include "core/checkpoint/safetensors_header.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/checkpoint/errors.hpp"

namespace exphil::core {

namespace {

using Json = nlohmann::json;

std::string tensor(const std::string& name) {
  return "tensor " + quote(name);
}

Dtype parse_tensor_dtype(const std::string& text, const std::string& name) {
  constexpr std::pair<std::string_view, Dtype> kNames[] = {{"F32", Dtype::f32},
                                                           {"F16", Dtype::f16},
                                                           {"BF16", Dtype::bf16},
                                                           {"C64", Dtype::c64},
                                                           {"F64", Dtype::f64},
                                                           {"I32", Dtype::s32},
                                                           {"I64", Dtype::s64},
                                                           {"U8", Dtype::u8},
                                                           {"U16", Dtype::u16},
                                                           {"U32", Dtype::u32},
                                                           {"U64", Dtype::u64},
                                                           {"I8", Dtype::s8},
                                                           {"I16", Dtype::s16},
                                                           {"BOOL", Dtype::boolean},
                                                           {"F8_E4M3", Dtype::f8_e4m3fn},
                                                           {"F8_E5M2", Dtype::f8_e5m2},
                                                           {"F8_E8M0", Dtype::f8_e8m0},
                                                           {"F8_E4M3FNUZ", Dtype::f8_e4m3fnuz},
                                                           {"F8_E5M2FNUZ", Dtype::f8_e5m2fnuz}};
  for (const auto& [known, dtype] : kNames) {
    if (text == known) return dtype;
  }
  bad(tensor(name), " has dtype ", quote(text),
      "; expected F64, F32, F16, BF16, C64, an F8, BOOL, or I or U with 8, 16, 32 or 64");
}

void check_entry(const SafetensorsEntry& entry, std::uint64_t data_bytes) {
  if (entry.begin > entry.end || entry.end > data_bytes) {
    bad("the data_offsets [", entry.begin, ", ", entry.end, "] of ", tensor(entry.name),
        " are out of range: the file holds ", data_bytes, " bytes of data (is it truncated?)");
  }
  std::int64_t bytes = static_cast<std::int64_t>(dtype_size(entry.dtype));
  for (int axis = 0; axis < entry.shape.rank(); ++axis) {
    if (__builtin_mul_overflow(bytes, entry.shape[axis], &bytes)) {
      bad("the shape of ", tensor(entry.name), ", ", entry.shape.to_string(), ", is beyond 2^63 bytes");
    }
  }
  if (static_cast<std::uint64_t>(bytes) != entry.end - entry.begin) {
    bad(tensor(entry.name), " of dtype ", dtype_name(entry.dtype), " and shape ", entry.shape.to_string(),
        " needs ", bytes, " bytes, but its data_offsets span ", entry.end - entry.begin);
  }
}

// Receives a header element by element through nlohmann::json's SAX interface and throws at the first invalid
// one. Keeps only the elements that the result needs.
class HeaderReader {
 public:
  HeaderReader(std::uint64_t data_bytes, std::ptrdiff_t* unread) : data_bytes_(data_bytes), unread_(unread) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() { unexpected(); }
  bool boolean(bool) { unexpected(); }
  bool number_integer(std::int64_t) { bad_number(); }
  bool number_float(double, const std::string&) { bad_number(); }
  bool binary(Json::binary_t&) { unexpected(); }

  bool number_unsigned(std::uint64_t value) {
    if ((place_ != Place::shape && place_ != Place::offsets) || value > std::uint64_t{INT64_MAX})
      bad_number();
    if (place_ == Place::offsets) {
      if (offsets_ == 2) bad_offsets();
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      if (entry_.shape.rank() == Shape::kMaxRank) {
        bad(tensor(entry_.name), " has more than ", Shape::kMaxRank, " dimensions");
      }
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    }
    return next();
  }

  bool string(const std::string& text) {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = text;
    } else if (place_ == Place::entry && field_ == kDtype) {
      entry_.dtype = parse_tensor_dtype(text, entry_.name);
    } else {
      unexpected();
    }
    return next();
  }

  bool start_object(std::size_t) {
    if (place_ == Place::start) {
      place_ = Place::root;
    } else if (place_ == Place::root && key_ == "__metadata__") {
      place_ = Place::metadata;
    } else if (place_ == Place::root) {
      place_ = Place::entry;
      entry_ = {};
      entry_.name = key_;
      seen_ = offsets_ = 0;
    } else {
      unexpected();
    }
    return next();
  }

  bool key(const std::string& text) {
    if (text.size() > kMaxHeaderName) {
      bad("the header has a name of ", text.size(), " bytes, ", quote(text, 40), "; the limit is ",
          kMaxHeaderName);
    }
    if (place_ == Place::entry) {
      field_ = field_named(text);
      if ((seen_ & field_) != 0) twice(text);
      seen_ |= field_;
      return next();
    }
    const bool tensors = place_ == Place::root;
    if ((tensors ? names_.size() : header_.metadata.size()) == kMaxHeaderEntries) {
      bad("the header has more than ", kMaxHeaderEntries, tensors ? " tensors" : " entries in __metadata__");
    }
    if (!(tensors ? names_.insert(text).second : header_.metadata.emplace(text, "").second)) twice(text);
    key_ = text;
    return next();
  }

  bool end_object() {
    if (place_ == Place::entry) {
      for (const auto& [field, name] : kFields) {
        if ((seen_ & field) == 0) bad(tensor(entry_.name), " has no ", name);
      }
      check_entry(entry_, data_bytes_);
      header_.entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::root ? Place::end : Place::root;
    return next();
  }

  bool start_array(std::size_t) {
    if (place_ != Place::entry || field_ == kDtype) unexpected();
    place_ = field_ == kShape ? Place::shape : Place::offsets;
    return next();
  }

  bool end_array() {
    if (place_ == Place::offsets && offsets_ != 2) bad_offsets();
    place_ = Place::entry;
    return next();
  }

  template <class Exception>
  bool parse_error(std::size_t byte, const std::string&, const Exception& error) {
    bad("the header is not valid JSON at byte ", byte, ": ", quote(error.what()));
  }

 private:
  enum class Place { start, root, metadata, entry, shape, offsets, end };
  enum Field : unsigned { kDtype = 1, kShape = 2, kOffsets = 4 };
  static constexpr std::pair<Field, std::string_view> kFields[] = {
      {kDtype, "dtype"}, {kShape, "shape"}, {kOffsets, "data_offsets"}};

  Field field_named(const std::string& text) const {
    for (const auto& [field, name] : kFields) {
      if (text == name) return field;
    }
    bad(tensor(entry_.name), " has an unknown field ", quote(text),
        "; expected dtype, shape and data_offsets");
  }

  // Resets the byte limit for the next element.
  bool next() {
    *unread_ = kMaxHeaderToken;
    return true;
  }

  [[noreturn]] void twice(const std::string& name) const { bad("the header names ", quote(name), " twice"); }
  [[noreturn]] void bad_offsets() const {
    bad("the data_offsets of ", tensor(entry_.name), " are not two numbers");
  }
  [[noreturn]] void bad_number() const {
    if (place_ != Place::shape && place_ != Place::offsets) unexpected();
    bad(tensor(entry_.name), " has a bad number in its ", place_ == Place::shape ? "shape" : "data_offsets");
  }

  // An element of the wrong kind for its position.
  [[noreturn]] void unexpected() const {
    switch (place_) {
      case Place::root:
        if (key_ == "__metadata__") bad("__metadata__ is not an object");
        bad("the header's entry for ", quote(key_), " is not an object");
      case Place::metadata:
        bad("__metadata__ entry ", quote(key_), " is not a string");
      case Place::entry:
        if (field_ == kDtype) bad("the dtype of ", tensor(entry_.name), " is not a string");
        bad("the ", field_ == kShape ? "shape" : "data_offsets", " of ", tensor(entry_.name),
            " is not a list");
      case Place::shape:
      case Place::offsets:
        bad_number();
      default:
        bad("the header is not an object");
    }
  }

  const std::uint64_t data_bytes_;
  std::ptrdiff_t* const unread_;
  SafetensorsHeader header_;
  std::set<std::string> names_;  // of tensors
  Place place_ = Place::start;
  std::string key_;  // the last name in the header or in __metadata__
  SafetensorsEntry entry_;
  Field field_ = kDtype;  // the last name in an entry
  unsigned seen_ = 0;     // fields of the entry
  int offsets_ = 0;       // numbers read of data_offsets
};

// The parser copies a string, a number or a run of blanks before it passes it on. This iterator bounds such a
// copy: it throws when more than *unread bytes are read between two elements.
class BoundedBytes {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  BoundedBytes(const char* at, std::ptrdiff_t* unread) : at_(at), unread_(unread) {}
  reference operator*() const { return *at_; }
  BoundedBytes& operator++() {
    if ((*unread_)-- <= 0) bad("the header has an element of more than ", kMaxHeaderToken, " bytes");
    ++at_;
    return *this;
  }
  BoundedBytes operator++(int) {
    const BoundedBytes before = *this;
    ++*this;
    return before;
  }
  bool operator==(const BoundedBytes& other) const { return at_ == other.at_; }
  bool operator!=(const BoundedBytes& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  std::ptrdiff_t* unread_;
};

void check_coverage(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes) {
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < end) bad(tensor(entry.name), " overlaps the tensor before it");
    if (entry.begin > end) bad("there are unused bytes before ", tensor(entry.name));
    end = entry.end;
  }
  if (end != data_bytes) {
    bad("the tensors cover ", end, " bytes, but the file holds ", data_bytes, " bytes of data");
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes) {
  if (json.empty() || json[0] != '{') bad("the header does not start with '{'");
  std::ptrdiff_t unread = kMaxHeaderToken;
  HeaderReader reader(data_bytes, &unread);
  Json::sax_parse(BoundedBytes(json.data(), &unread), BoundedBytes(json.data() + json.size(), &unread),
                  &reader);
  SafetensorsHeader header = reader.take();
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& left, const SafetensorsEntry& right) {
              return std::make_pair(left.begin, left.end) < std::make_pair(right.begin, right.end);
            });
  check_coverage(header.entries, data_bytes);
  return header;
}

}  // namespace exphil::core
