#include "safetensors_mutator.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>

#include "numbers.hpp"

// libFuzzer's own mutation of bytes.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace exphil::fuzz {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr const char* kDtypes[] = {"F32",  "F16", "BF16", "F64",     "C64", "I32", "I64",
                                   "BOOL", "U8",  "I8",   "F8_E5M2", "F33", ""};

struct Parts {
  Json header;
  std::string data;
};

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  void change(Parts& parts) {
    Json& header = parts.header;
    if (header.empty() || chance(20)) return add_tensor(parts);
    Json& entry = pick(header);
    switch (below(10)) {
      case 0:
        if (entry.is_object() && entry.contains("dtype")) entry["dtype"] = kDtypes[below(std::size(kDtypes))];
        break;
      case 1:
      case 2:
        if (entry.is_object() && entry.contains("shape")) change_numbers(entry["shape"], 9);
        break;
      case 3:
        if (entry.is_object() && entry.contains("data_offsets")) change_numbers(entry["data_offsets"], 3);
        break;
      case 4:
        header.erase(random_place(header));
        break;
      case 5:
        rename(header);
        break;
      case 6:
        metadata(header)[text(8)] = text(20);
        break;
      case 7:
        metadata(header)["norm_epsilon"] = chance(2) ? std::to_string(below(1000)) : text(6);
        break;
      case 8:
        if (entry.is_object() && !entry.empty()) pick(entry) = odd_value();
        break;
      default:
        change_bytes(parts.data);
    }
  }

  // Contiguous offsets in the order of the names, as long as each tensor needs; the data is as long as they
  // say, if that is little enough.
  void deal_offsets(Parts& parts) {
    std::uint64_t end = 0;
    for (auto& entry : parts.header) {
      if (!entry.is_object() || !entry.contains("shape") || !entry["shape"].is_array()) continue;
      std::uint64_t bytes = element_bytes(entry);
      for (const Json& dim : entry["shape"]) bytes *= dim.is_number_unsigned() ? dim.get<std::uint64_t>() : 1;
      entry["data_offsets"] = {end, end + bytes};
      end += bytes;
    }
    if (end <= (1u << 16)) parts.data.resize(end, '\x3c');
  }

  bool chance(std::size_t one_in) { return below(one_in) == 0; }
  std::size_t below(std::size_t count) { return random_() % count; }

 private:
  static std::uint64_t element_bytes(const Json& entry) {
    const auto found = entry.find("dtype");
    const std::string dtype = found != entry.end() && found->is_string() ? found->get<std::string>() : "F32";
    if (dtype == "F16" || dtype == "BF16") return 2;
    if (dtype == "F64" || dtype == "C64" || dtype == "I64") return 8;
    return dtype == "F32" || dtype == "I32" ? 4 : 1;
  }

  Json::iterator random_place(Json& of) { return std::next(of.begin(), static_cast<long>(below(of.size()))); }
  Json& pick(Json& of) { return *random_place(of); }

  void change_numbers(Json& list, std::size_t most) {
    if (!list.is_array()) return;
    if (list.empty() || (list.size() < most && chance(4))) {
      list.push_back(kNumbers[below(std::size(kNumbers))]);
    } else if (chance(4)) {
      list.erase(below(list.size()));
    } else {
      pick(list) = kNumbers[below(std::size(kNumbers))];
    }
  }

  static Json& metadata(Json& header) {
    Json& object = header["__metadata__"];
    if (!object.is_object()) object = Json::object();
    return object;
  }

  void rename(Json& header) {
    const auto place = random_place(header);
    std::string name = place.key();
    Json entry = *place;
    header.erase(place);
    if (name.empty() || chance(3)) {
      name = text(12);
    } else {
      name[below(name.size())] = static_cast<char>('0' + below(75));
    }
    header[name] = std::move(entry);
  }

  void add_tensor(Parts& parts) {
    parts.header[text(10)] = {{"dtype", "F32"}, {"shape", {below(4)}}, {"data_offsets", {0, 0}}};
  }

  void change_bytes(std::string& data) {
    if (data.empty()) return;
    if (chance(3) && data.size() >= 4) {  // one value that is not finite or extreme
      constexpr std::uint32_t kBits[] = {0x7fc00000, 0x7f800000, 0xff800000,
                                         0x7f7fffff, 0x00000001, 0x80000000};
      std::memcpy(&data[below(data.size() / 4) * 4], &kBits[below(std::size(kBits))], 4);
    } else {
      data[below(data.size())] = static_cast<char>(random_());
    }
  }

  Json odd_value() {
    switch (below(7)) {
      case 0:
        return nullptr;
      case 1:
        return -static_cast<std::int64_t>(below(100));
      case 2:
        return 1.5;
      case 3:
        return text(30);
      case 4:
        return Json::array({Json::array(), 1});
      case 5:
        return Json::object({{"a", 1}});
      default:
        return true;
    }
  }

  std::string text(std::size_t most) {
    std::string made;
    for (std::size_t count = below(most + 1); count > 0; --count) made += static_cast<char>(below(128));
    return made;
  }

  std::minstd_rand random_;
};

bool split(const std::uint8_t* data, std::size_t size, Parts* parts) {
  if (size < kLengthBytes) return false;
  std::uint64_t length = 0;
  std::memcpy(&length, data, kLengthBytes);
  length = std::min<std::uint64_t>(length, size - kLengthBytes);
  const char* const text = reinterpret_cast<const char*>(data) + kLengthBytes;
  parts->header = Json::parse(text, text + length, nullptr, false);
  parts->data.assign(text + length, size - kLengthBytes - length);
  return parts->header.is_object();
}

std::size_t join(const std::string& header, const std::string& data, std::uint8_t* to, std::size_t most) {
  const std::uint64_t length = header.size();
  if (kLengthBytes + header.size() + data.size() > most) return 0;
  std::memcpy(to, &length, kLengthBytes);
  std::copy(header.begin(), header.end(), to + kLengthBytes);
  std::copy(data.begin(), data.end(), to + kLengthBytes + header.size());
  return kLengthBytes + header.size() + data.size();
}

}  // namespace

std::size_t mutate_safetensors(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  Mutator mutator(seed);
  Parts parts;
  // Now and then the bytes as they are, so that broken JSON and lengths come up, too.
  if (mutator.chance(8) || !split(data, size, &parts)) return LLVMFuzzerMutate(data, size, most);
  for (std::size_t changes = 1 + mutator.below(3); changes > 0; --changes) mutator.change(parts);
  if (mutator.chance(2)) mutator.deal_offsets(parts);
  std::string header = parts.header.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (mutator.chance(8)) {  // broken text with the right length
    header.resize(header.size() + 16);
    auto* const bytes = reinterpret_cast<std::uint8_t*>(header.data());
    header.resize(LLVMFuzzerMutate(bytes, header.size() - 16, header.size()));
  }
  const std::size_t made = join(header, parts.data, data, most);
  return made > 0 ? made : LLVMFuzzerMutate(data, size, most);
}

}  // namespace exphil::fuzz
