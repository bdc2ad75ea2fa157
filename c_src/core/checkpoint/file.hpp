// A regular file, read through one open descriptor. Used
// by every checkpoint reader. One thread per object.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace exphil::core {

class File {
 public:
  // Throws file_error. Opens without blocking, so that a named pipe without a writer cannot hang the caller.
  explicit File(const std::string& path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t size() const;  // throws file_error where it is not a regular file
  // Throws file_error, or invalid_checkpoint where the file has become shorter than offset + bytes. Stops
  // where the job that reads is abandoned (core/work/background.hpp).
  void read(std::uint64_t offset, void* to, std::uint64_t bytes) const;

 private:
  [[noreturn]] void refuse(const char* what) const;

  std::string path_;
  int descriptor_;
};

// Memory that the system may refuse without an exception of its own.
struct FreeBytes {
  void operator()(void* data) const;
};
using FileBytes = std::unique_ptr<std::uint8_t, FreeBytes>;

// `bytes` bytes from `offset` on. Throws out_of_memory naming `path`, and what File::read throws.
FileBytes read_bytes(const File& file, const std::string& path, std::uint64_t offset, std::uint64_t bytes);

}  // namespace exphil::core
