// Compiled kernels on disk. A file is written under a temporary name and renamed, so that several VMs of one
// user can share a folder. A checksum detects a damaged file, which counts
// as absent. In a folder that cannot be written nothing is stored, without
// an error. Used by kernel_compiler; safe from any thread and process.
//
// A checksum is not a signature: anyone who can write to the folder decides what runs on the GPU. A folder of
// another user, or one that other users can write, is therefore never used, and neither is an entry that is
// not a regular file of this user.
#pragma once

#include <optional>
#include <string>

namespace exphil::cuda {

class DiskCache {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // of an entry; the largest kernel has 1 MB

  // "" is a cache that never stores anything.
  explicit DiskCache(std::string directory) : directory_(std::move(directory)) {}

  // The reason why the folder is not used, and the fix; "" where it is used, does not exist yet, or cannot be
  // opened.
  std::string refusal() const;

  // Nothing where the entry is absent, damaged, of another format, too large, or not a regular file.
  std::optional<std::string> load(const std::string& key) const;
  // True where the entry is now stored.
  bool store(const std::string& key, const std::string& image) const;
  std::string path(const std::string& key) const;

 private:
  std::string directory_;
};

}  // namespace exphil::cuda
