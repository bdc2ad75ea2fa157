// Compiled kernels on disk. A file is written under a temporary name and renamed, so that several VMs of one
// user can share a folder; a checksum inside tells a damaged file, which then counts as absent. A folder that
// cannot be written disables storing and is no error. Used by kernel_compiler; safe from any thread and
// process.
//
// A checksum is no signature: whoever can write into the folder decides what runs on the GPU. A folder that
// belongs to another user, or that others can write, is therefore never used, and neither is an entry that is
// not this user's own regular file.
#pragma once

#include <optional>
#include <string>

namespace exphil::cuda {

class DiskCache {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // of an entry; the largest kernel has 1 MB

  // "" is a cache that never holds anything.
  explicit DiskCache(std::string directory) : directory_(std::move(directory)) {}

  // Why the folder is not used, and how to mend that; "" where it is used, is not there yet, or cannot be
  // opened.
  std::string refusal() const;

  // Nothing where the entry is absent, damaged, of another format, too large, or no regular file.
  std::optional<std::string> load(const std::string& key) const;
  // True where the entry is in place now.
  bool store(const std::string& key, const std::string& image) const;
  std::string path(const std::string& key) const;

 private:
  std::string directory_;
};

}  // namespace exphil::cuda
