#include "core/checkpoint/safetensors.hpp"

#include <string_view>
#include <utility>

#include "core/checkpoint/file.hpp"
#include "core/checkpoint/safetensors_header.hpp"
#include "core/error.hpp"

namespace exphil::core {

namespace {

constexpr std::size_t kLengthBytes = 8;

std::uint64_t header_length(const File& file) {
  if (file.size() < kLengthBytes) {
    fail(ErrorKind::invalid_checkpoint, "path", quote_path(file.path()), " has ", file.size(),
         " bytes: too short for a safetensors file");
  }
  // Where no header follows the length, the length is the beginning of another kind of file.
  if (file.head()[kLengthBytes] != '{') {
    fail(ErrorKind::invalid_checkpoint, "path", quote_path(file.path()),
         " is no safetensors file: no '{' follows the 8 bytes of its header's length");
  }
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | file.head()[i];
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes) {
    fail(ErrorKind::invalid_checkpoint, "path", quote_path(file.path()), " announces a header of ", length,
         " bytes, but has ", file.size(), " bytes in all (limit ", kMaxHeaderBytes,
         "): it is truncated or not a safetensors file");
  }
  return length;
}

SafetensorsHeader read_header(File& file, std::uint64_t length, std::uint64_t data_bytes) {
  std::string json(kLengthBytes + length, '\0');
  file.read(json.data(), json.size());
  try {
    return parse_safetensors_header(std::string_view(json).substr(kLengthBytes), data_bytes);
  } catch (const Error& error) {
    fail(error.kind(), error.argument(), quote_path(file.path()),
         " is a malformed safetensors file: ", error.what());
  }
}

}  // namespace

struct Safetensors::Contents {
  std::string path;
  FileBytes data;
  std::map<std::string, TensorView> tensors;
  std::map<std::string, std::string> metadata;
};

Safetensors Safetensors::open(const std::string& path) {
  File file(path);
  return read(file);
}

Safetensors Safetensors::read(File& file) {
  const std::uint64_t header_bytes = header_length(file);
  const std::uint64_t data_bytes = file.size() - kLengthBytes - header_bytes;
  SafetensorsHeader header = read_header(file, header_bytes, data_bytes);

  auto contents = std::make_unique<Contents>();
  contents->path = file.path();
  contents->metadata = std::move(header.metadata);
  contents->data = read_bytes(file, data_bytes);
  const std::uint8_t* base = contents->data.get();
  for (const SafetensorsEntry& entry : header.entries) {
    contents->tensors[entry.name] =
        TensorView{entry.dtype, entry.shape, base + entry.begin, entry.end - entry.begin};
  }
  return Safetensors(std::move(contents));
}

Safetensors::Safetensors(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
Safetensors::Safetensors(Safetensors&&) noexcept = default;
Safetensors& Safetensors::operator=(Safetensors&&) noexcept = default;
Safetensors::~Safetensors() = default;

const std::string& Safetensors::path() const {
  return contents_->path;
}
const std::map<std::string, TensorView>& Safetensors::tensors() const {
  return contents_->tensors;
}
const std::map<std::string, std::string>& Safetensors::metadata() const {
  return contents_->metadata;
}

const TensorView* Safetensors::find(const std::string& name) const {
  const auto found = contents_->tensors.find(name);
  return found == contents_->tensors.end() ? nullptr : &found->second;
}

}  // namespace exphil::core
