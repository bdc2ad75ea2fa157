// A regular file, opened once and read forwards, so that all that is read of it is one file's, whatever takes
// its name meanwhile. Used by every checkpoint reader. One thread per object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace exphil::core {

class File {
 public:
  static constexpr std::size_t kHeadBytes = 16;

  // Throws file_error where it cannot be opened or is not a regular file. Opens without blocking, so that a
  // named pipe without a writer cannot hang the caller.
  explicit File(const std::string& path);
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  // The first bytes, which tell the format; zeros beyond the end. They are still to be read.
  const std::array<std::uint8_t, kHeadBytes>& head() const { return head_; }
  // The next bytes. Throws file_error, or invalid_checkpoint where the file has become shorter. Stops where
  // the job that reads is abandoned (core/work/background.hpp).
  void read(void* to, std::uint64_t bytes);

 private:
  // Closes the file, also where the constructor throws.
  struct Descriptor {
    int value = -1;
    ~Descriptor();
  };
  void from_system(void* to, std::uint64_t bytes);
  [[noreturn]] void refuse(const char* what) const;

  std::string path_;
  Descriptor descriptor_;
  std::uint64_t size_ = 0, at_ = 0;
  std::array<std::uint8_t, kHeadBytes> head_{};
};

// Memory that the system may refuse without an exception of its own.
struct FreeBytes {
  void operator()(void* data) const;
};
using FileBytes = std::unique_ptr<std::uint8_t, FreeBytes>;

// The next `bytes` bytes. Throws out_of_memory naming the path, and what File::read throws.
FileBytes read_bytes(File& file, std::uint64_t bytes);

}  // namespace exphil::core
