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
    : path_(path), descriptor_{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)} {
  if (descriptor_.value < 0) refuse("cannot open");
  struct stat status {};
  if (::fstat(descriptor_.value, &status) != 0) refuse("cannot inspect");
  if (!S_ISREG(status.st_mode))
    fail(ErrorKind::file_error, "path", quote_path(path_), " is not a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
  from_system(head_.data(), std::min<std::uint64_t>(size_, kHeadBytes));
}

File::Descriptor::~Descriptor() {
  if (value >= 0) ::close(value);
}

void File::read(void* to, std::uint64_t bytes) {
  char* out = static_cast<char*>(to);
  const std::uint64_t head = std::min<std::uint64_t>(size_, kHeadBytes);
  const std::uint64_t of_head = at_ < head ? std::min(bytes, head - at_) : 0;
  if (of_head > 0) std::memcpy(out, head_.data() + at_, of_head);
  at_ += bytes;
  from_system(out + of_head, bytes - of_head);
}

void File::from_system(void* to, std::uint64_t bytes) {
  char* out = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::read(descriptor_.value, out, std::min(bytes, kReadBytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse("cannot read");
    if (got == 0) {
      fail(ErrorKind::invalid_checkpoint, "path", quote_path(path_), " became shorter while it was read");
    }
    out += got;
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

FileBytes read_bytes(File& file, std::uint64_t bytes) {
  FileBytes data(static_cast<std::uint8_t*>(std::malloc(bytes + 1)));
  if (!data) {
    fail(ErrorKind::out_of_memory, "path", "the system refused ", bytes, " bytes to read ",
         quote_path(file.path()));
  }
  file.read(data.get(), bytes);
  return data;
}

}  // namespace exphil::core
