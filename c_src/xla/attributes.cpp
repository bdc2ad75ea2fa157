// The attributes of a call: Frame's readers of them.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/error.hpp"
#include "xla/ffi.hpp"

namespace exphil::xla {

using core::ErrorKind;
using core::fail;

namespace {

// Whether the words of `list`, separated by single spaces, include `word`.
bool has_word(std::string_view list, std::string_view word) {
  for (std::size_t at = list.find(word); at != std::string_view::npos; at = list.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return !word.empty();
  }
  return false;
}

template <class Value>
Value read(const void* from) {
  Value value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

}  // namespace

const void* Frame::attribute(const char* name, XLA_FFI_AttrType type, const char* expected) const {
  const XLA_FFI_Attrs& attrs = frame_->attrs;
  for (std::int64_t i = 0; i < attrs.size; ++i) {
    if (std::string_view(attrs.names[i]->ptr, attrs.names[i]->len) != name) continue;
    if (attrs.types[i] != type)
      fail(ErrorKind::invalid_argument, name, "the attribute ", name, " must be ", expected);
    return attrs.attrs[i];
  }
  return nullptr;
}

const XLA_FFI_Scalar* Frame::scalar(const char* name) const {
  return static_cast<const XLA_FFI_Scalar*>(
      attribute(name, XLA_FFI_AttrType_SCALAR, "a number or a boolean"));
}

std::string Frame::text(const char* name, const std::string& otherwise) const {
  const auto* span =
      static_cast<const XLA_FFI_ByteSpan*>(attribute(name, XLA_FFI_AttrType_STRING, "a string"));
  return span == nullptr ? otherwise : std::string(span->ptr, span->len);
}

std::vector<std::string> Frame::words(const char* name) const {
  constexpr const char* kBetween = " \t\n";
  const std::string list = text(name, "");
  std::vector<std::string> all;
  for (std::size_t begin = list.find_first_not_of(kBetween); begin != std::string::npos;) {
    const std::size_t end = std::min(list.find_first_of(kBetween, begin), list.size());
    all.push_back(list.substr(begin, end - begin));
    begin = list.find_first_not_of(kBetween, end);
  }
  return all;
}

bool Frame::boolean(const char* name, bool otherwise) const {
  const XLA_FFI_Scalar* value = scalar(name);
  if (value == nullptr) return otherwise;
  if (value->dtype == XLA_FFI_DataType_PRED) return read<bool>(value->value);
  return integer(name, otherwise) != 0;
}

std::int64_t Frame::integer(const char* name, std::int64_t otherwise) const {
  const XLA_FFI_Scalar* value = scalar(name);
  if (value == nullptr) return otherwise;
  switch (value->dtype) {
    case XLA_FFI_DataType_S32:
      return read<std::int32_t>(value->value);
    case XLA_FFI_DataType_S64:
      return read<std::int64_t>(value->value);
    default:
      fail(ErrorKind::invalid_argument, name, "the attribute ", name, " must be a 32- or 64-bit integer");
  }
}

double Frame::number(const char* name, double otherwise) const {
  const XLA_FFI_Scalar* value = scalar(name);
  if (value == nullptr) return otherwise;
  if (value->dtype == XLA_FFI_DataType_F32) return static_cast<double>(read<float>(value->value));
  if (value->dtype == XLA_FFI_DataType_F64) return read<double>(value->value);
  return static_cast<double>(integer(name, 0));
}

void Frame::require_known(std::string_view known) const {
  const XLA_FFI_Attrs& attrs = frame_->attrs;
  for (std::int64_t i = 0; i < attrs.size; ++i) {
    const std::string_view name(attrs.names[i]->ptr, attrs.names[i]->len);
    if (!has_word(known, name)) {
      fail(ErrorKind::invalid_argument, std::string(name), "unknown attribute ", name, "; known: ", known);
    }
  }
}

}  // namespace exphil::xla
