#include "core/checkpoint/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/checkpoint/safetensors_header.hpp"
#include "core/error.hpp"

namespace exphil::core {

namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own library

class File {
 public:
  // Non-blocking, so that a named pipe without a writer cannot hang the caller.
  explicit File(const std::string& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) refuse("cannot open");
  }
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t size() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) refuse("cannot inspect");
    if (!S_ISREG(status.st_mode)) {
      fail(ErrorKind::file_error, "path", "\"", path_, "\" is not a regular file");
    }
    return static_cast<std::uint64_t>(status.st_size);
  }

  void read(std::uint64_t offset, void* to, std::uint64_t bytes) const {
    char* out = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t got = ::pread(descriptor_, out, bytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse("cannot read");
      if (got == 0) {
        fail(ErrorKind::invalid_checkpoint, "path", "\"", path_, "\" became shorter while it was read");
      }
      out += got;
      offset += static_cast<std::uint64_t>(got);
      bytes -= static_cast<std::uint64_t>(got);
    }
  }

 private:
  [[noreturn]] void refuse(const char* what) const {
    const std::string reason = std::strerror(errno);
    fail(ErrorKind::file_error, "path", what, " \"", path_, "\": ", reason);
  }

  std::string path_;
  int descriptor_;
};

struct Free {
  void operator()(void* data) const { std::free(data); }
};
using Bytes = std::unique_ptr<void, Free>;

std::uint64_t read_header_length(const File& file, const std::string& path, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes) {
    fail(ErrorKind::invalid_checkpoint, "path", "\"", path, "\" has ", file_bytes,
         " bytes: too short for a safetensors file");
  }
  unsigned char raw[kLengthBytes];
  file.read(0, raw, kLengthBytes);
  std::uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | raw[i];
  if (length > kMaxHeaderBytes || length > file_bytes - kLengthBytes) {
    fail(ErrorKind::invalid_checkpoint, "path", "\"", path, "\" announces a header of ", length,
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
    fail(error.kind(), error.argument(), "\"", path, "\" is not a sound safetensors file: ", error.what());
  }
}

}  // namespace

struct Safetensors::Contents {
  std::string path;
  Bytes data;
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
  contents->data.reset(std::malloc(data_bytes + 1));
  if (!contents->data) {
    fail(ErrorKind::out_of_memory, "path", "the system refused ", data_bytes, " bytes to read \"", path,
         "\"");
  }
  file.read(kLengthBytes + header_bytes, contents->data.get(), data_bytes);
  const char* base = static_cast<const char*>(contents->data.get());
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
