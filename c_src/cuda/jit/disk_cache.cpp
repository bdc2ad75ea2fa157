// File format: a magic line, the 64-bit hash of the image in hexadecimal and a newline, the image. See
// disk_cache.hpp.
#include "cuda/jit/disk_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace exphil::cuda {
namespace {

constexpr std::string_view kMagic = "exphil_native kernel 2\n";
constexpr std::size_t kDigest = 16;

std::string digest(const std::string& image) {
  return core::hex(core::hash64(image.data(), image.size()));
}

// An open file or folder; -1 where opening failed.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  explicit operator bool() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  bool close() {
    const bool closed = descriptor_ < 0 || ::close(descriptor_) == 0;
    descriptor_ = -1;
    return closed;
  }

 private:
  int descriptor_;
};

// The reason why an open file or folder is not safe to use for kernels; "" where it is safe.
std::string fault_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return "cannot be inspected";
  if (status.st_uid != ::geteuid()) {
    return core::message("belongs to user ", status.st_uid, ", not to user ", ::geteuid());
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return "can be written by other users (chmod go-w fixes it)";
  return "";
}

// All access below is relative to this descriptor, so it uses the folder that was checked.
Descriptor open_folder(const std::string& directory) {
  return Descriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

std::optional<std::string> read_entry(int folder, const std::string& name) {
  // These flags refuse symbolic links and do not block on named pipes.
  const Descriptor file(::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > DiskCache::kMaxBytes || !fault_of(file.get()).empty()) return std::nullopt;
  std::string text(size, '\0');
  std::size_t filled = 0;
  while (filled < size) {
    const ssize_t got = ::read(file.get(), &text[filled], size - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    filled += static_cast<std::size_t>(got);
  }
  return text;
}

bool write_all(int file, const std::string& text) {
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t put = ::write(file, text.data() + written, text.size() - written);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    written += static_cast<std::size_t>(put);
  }
  return true;
}

// Unique among the threads of this process and the processes of this host.
std::string temporary_name(const std::string& name) {
  static std::atomic<unsigned> counter{0};
  return name + "." + std::to_string(getpid()) + "." + std::to_string(counter++) + ".tmp";
}

// Creates the file. An existing file of that name was left by a process that has ended.
int create(int folder, const std::string& name) {
  ::unlinkat(folder, name.c_str(), 0);
  return ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

std::string entry_name(const std::string& key) {
  return key + ".bin";
}

}  // namespace

std::string DiskCache::path(const std::string& key) const {
  return directory_ + "/" + entry_name(key);
}

std::string DiskCache::refusal() const {
  if (directory_.empty()) return "";
  const Descriptor folder = open_folder(directory_);
  if (!folder) return "";
  const std::string fault = fault_of(folder.get());
  if (fault.empty()) return "";
  return "the kernel cache " + core::quote_path(directory_) + " is not used: it " + fault;
}

std::optional<std::string> DiskCache::load(const std::string& key) const {
  if (directory_.empty()) return std::nullopt;
  const Descriptor folder = open_folder(directory_);
  if (!folder || !fault_of(folder.get()).empty()) return std::nullopt;
  const std::optional<std::string> text = read_entry(folder.get(), entry_name(key));
  const std::size_t header = kMagic.size() + kDigest + 1;
  if (!text || text->size() <= header || text->compare(0, kMagic.size(), kMagic) != 0 ||
      (*text)[header - 1] != '\n') {
    return std::nullopt;
  }
  std::string image = text->substr(header);
  if (digest(image) != text->substr(kMagic.size(), kDigest)) return std::nullopt;
  return image;
}

bool DiskCache::store(const std::string& key, const std::string& image) const {
  if (directory_.empty()) return false;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(directory_).parent_path(), error);
  ::mkdir(directory_.c_str(), 0700);  // usually exists
  const Descriptor folder = open_folder(directory_);
  if (!folder || !fault_of(folder.get()).empty()) return false;
  const std::string name = entry_name(key), temporary = temporary_name(name);
  Descriptor file(create(folder.get(), temporary));
  if (!file) return false;
  const bool written =
      write_all(file.get(), std::string(kMagic) + digest(image) + "\n" + image) && file.close();
  if (written && ::renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) == 0) return true;
  ::unlinkat(folder.get(), temporary.c_str(), 0);
  return false;
}

}  // namespace exphil::cuda
