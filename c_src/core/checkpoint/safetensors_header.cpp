#include "core/checkpoint/safetensors_header.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.hpp"

namespace exphil::core {

namespace {

using Json = nlohmann::json;

template <class... Parts>
[[noreturn]] void bad(const Parts&... parts) {
  fail(ErrorKind::invalid_checkpoint, "path", parts...);
}

// A header is an object of objects of numbers and arrays of numbers: anything deeper is an attack or a
// mistake.
constexpr int kMaxDepth = 4;

// Refuses what the parser would silently accept: a key that stands twice in one object, and deep nesting.
class StructureCheck {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth) bad("the header is nested too deeply");
    if (event == Json::parse_event_t::object_start) open_.emplace_back();
    if (event == Json::parse_event_t::object_end) open_.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string& key = value.get_ref<const std::string&>();
      if (!open_.back().insert(key).second) bad("the header names \"", key, "\" twice");
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> open_;
};

Json parse(const std::string& text) {
  if (text.empty() || text[0] != '{') bad("the header does not start with '{'");
  StructureCheck check;
  try {
    return Json::parse(
        text, [&](int depth, Json::parse_event_t event, Json& value) { return check(depth, event, value); });
  } catch (const Json::exception& error) {
    bad("the header is not valid JSON: ", error.what());
  }
}

Dtype parse_tensor_dtype(const Json& value, const std::string& name) {
  static const std::map<std::string, Dtype> names = {{"F32", Dtype::f32},
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
  if (!value.is_string()) bad("tensor \"", name, "\" has no dtype");
  const auto found = names.find(value.get<std::string>());
  if (found == names.end()) {
    bad("tensor \"", name, "\" has dtype ", value.dump(-1, ' ', true),
        "; expected F64, F32, F16, BF16, C64, an F8, BOOL, or I or U with 8, 16, 32 or 64");
  }
  return found->second;
}

std::int64_t parse_size(const Json& value, const std::string& name, const char* field) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    bad("tensor \"", name, "\" has a bad number in its ", field);
  }
  return value.get<std::int64_t>();
}

const Json& field(const Json& object, const std::string& name, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) bad("tensor \"", name, "\" has no ", key);
  return *found;
}

Shape parse_shape(const Json& value, const std::string& name) {
  if (!value.is_array()) bad("the shape of tensor \"", name, "\" is not a list");
  if (value.size() > static_cast<std::size_t>(Shape::kMaxRank)) {
    bad("tensor \"", name, "\" has ", value.size(), " dimensions; the limit is ", Shape::kMaxRank);
  }
  Shape shape;
  for (const Json& dim : value) shape.push_back(parse_size(dim, name, "shape"));
  return shape;
}

void check_size(const SafetensorsEntry& entry) {
  std::int64_t bytes = static_cast<std::int64_t>(dtype_size(entry.dtype));
  for (int axis = 0; axis < entry.shape.rank(); ++axis) {
    if (__builtin_mul_overflow(bytes, entry.shape[axis], &bytes)) {
      bad("the shape of tensor \"", entry.name, "\", ", entry.shape.to_string(), ", is beyond 2^63 bytes");
    }
  }
  if (static_cast<std::uint64_t>(bytes) != entry.end - entry.begin) {
    bad("tensor \"", entry.name, "\" of dtype ", dtype_name(entry.dtype), " and shape ",
        entry.shape.to_string(), " needs ", bytes, " bytes, but its data_offsets span ",
        entry.end - entry.begin);
  }
}

SafetensorsEntry parse_entry(const std::string& name, const Json& object, std::uint64_t data_bytes) {
  if (!object.is_object()) bad("the header's entry for \"", name, "\" is not an object");
  SafetensorsEntry entry;
  entry.name = name;
  entry.dtype = parse_tensor_dtype(field(object, name, "dtype"), name);
  entry.shape = parse_shape(field(object, name, "shape"), name);
  const Json& offsets = field(object, name, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    bad("the data_offsets of tensor \"", name, "\" are not two numbers");
  }
  entry.begin = static_cast<std::uint64_t>(parse_size(offsets[0], name, "data_offsets"));
  entry.end = static_cast<std::uint64_t>(parse_size(offsets[1], name, "data_offsets"));
  if (entry.begin > entry.end || entry.end > data_bytes) {
    bad("the data_offsets [", entry.begin, ", ", entry.end, "] of tensor \"", name,
        "\" are out of range: the file holds ", data_bytes, " bytes of data (is it truncated?)");
  }
  check_size(entry);
  return entry;
}

std::map<std::string, std::string> parse_metadata(const Json& object) {
  if (!object.is_object()) bad("__metadata__ is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& item : object.items()) {
    if (!item.value().is_string()) bad("__metadata__ entry \"", item.key(), "\" is not a string");
    metadata[item.key()] = item.value().get<std::string>();
  }
  return metadata;
}

void check_coverage(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes) {
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < end) bad("tensor \"", entry.name, "\" overlaps the tensor before it");
    if (entry.begin > end) bad("there is a hole of unused bytes before tensor \"", entry.name, "\"");
    end = entry.end;
  }
  if (end != data_bytes) {
    bad("the tensors cover ", end, " bytes, but the file holds ", data_bytes, " bytes of data");
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& json, std::uint64_t data_bytes) {
  const Json root = parse(json);
  SafetensorsHeader header;
  for (const auto& item : root.items()) {
    if (item.key() == "__metadata__") {
      header.metadata = parse_metadata(item.value());
    } else {
      header.entries.push_back(parse_entry(item.key(), item.value(), data_bytes));
    }
  }
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& left, const SafetensorsEntry& right) {
              return std::make_pair(left.begin, left.end) < std::make_pair(right.begin, right.end);
            });
  check_coverage(header.entries, data_bytes);
  return header;
}

}  // namespace exphil::core
