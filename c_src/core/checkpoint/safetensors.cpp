#include "core/checkpoint/safetensors.hpp"

#include <utility>

#include "core/checkpoint/file.hpp"
#include "core/checkpoint/safetensors_header.hpp"
#include "core/error.hpp"

namespace exphil::core {

namespace {

constexpr std::uint64_t kLengthBytes = 8;

// Where no header follows the length, the length is the beginning of another kind of file.
void require_header(const File& file, const std::string& path, std::uint64_t file_bytes) {
  char first = 0;
  if (file_bytes > kLengthBytes) file.read(kLengthBytes, &first, 1);
  if (first != '{') {
    fail(ErrorKind::invalid_checkpoint, "path", quote_path(path),
         " is no safetensors file: no '{' follows the 8 bytes of its header's length");
  }
}

std::uint64_t read_header_length(const File& file, const std::string& path, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes) {
    fail(ErrorKind::invalid_checkpoint, "path", quote_path(path), " has ", file_bytes,
         " bytes: too short for a safetensors file");
  }
  require_header(file, path, file_bytes);
  unsigned char raw[kLengthBytes];
  file.read(0, raw, kLengthBytes);
  std::uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | raw[i];
  if (length > kMaxHeaderBytes || length > file_bytes - kLengthBytes) {
    fail(ErrorKind::invalid_checkpoint, "path", quote_path(path), " announces a header of ", length,
         " bytes, but has ", file_bytes, " bytes in all (limit ", kMaxHeaderBytes,
         "): it is truncated or not a safetensors file");
  }
  return length;
}

SafetensorsHeader read_header(const File& file, const std::string& path, std::uint64_t length,
                              std::uint64_t data_bytes) {
  std::string json(length, '\0');
  file.read(kLengthBytes, json.data(), length);
  try {
    return parse_safetensors_header(json, data_bytes);
  } catch (const Error& error) {
    fail(error.kind(), error.argument(), quote_path(path),
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
  const File file(path);
  const std::uint64_t file_bytes = file.size();
  const std::uint64_t header_bytes = read_header_length(file, path, file_bytes);
  const std::uint64_t data_bytes = file_bytes - kLengthBytes - header_bytes;
  SafetensorsHeader header = read_header(file, path, header_bytes, data_bytes);

  auto contents = std::make_unique<Contents>();
  contents->path = path;
  contents->metadata = std::move(header.metadata);
  contents->data = read_bytes(file, path, kLengthBytes + header_bytes, data_bytes);
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
