#include "core/checkpoint/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.hpp"
#include "core/work/background.hpp"

namespace exphil::core {

namespace {

// At a time: some 50 us where the system has the file in memory.
constexpr std::uint64_t kReadBytes = 1 << 18;

}  // namespace

File::File(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) refuse("cannot open");
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::uint64_t File::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) refuse("cannot inspect");
  if (!S_ISREG(status.st_mode))
    fail(ErrorKind::file_error, "path", quote_path(path_), " is not a regular file");
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read(std::uint64_t offset, void* to, std::uint64_t bytes) const {
  char* out = static_cast<char*>(to);
  while (bytes > 0) {
    const auto wanted = static_cast<std::size_t>(std::min(bytes, kReadBytes));
    const ssize_t got = ::pread(descriptor_, out, wanted, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse("cannot read");
    if (got == 0) {
      fail(ErrorKind::invalid_checkpoint, "path", quote_path(path_), " became shorter while it was read");
    }
    out += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
    stop_if_abandoned();
    give_way();
  }
}

void File::refuse(const char* what) const {
  const std::string reason = std::strerror(errno);
  fail(ErrorKind::file_error, "path", what, " ", quote_path(path_), ": ", reason);
}

void FreeBytes::operator()(void* data) const {
  std::free(data);
}

FileBytes read_bytes(const File& file, const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
  FileBytes data(static_cast<std::uint8_t*>(std::malloc(bytes + 1)));
  if (!data) {
    fail(ErrorKind::out_of_memory, "path", "the system refused ", bytes, " bytes to read ", quote_path(path));
  }
  file.read(offset, data.get(), bytes);
  return data;
}

}  // namespace exphil::core
