// Compiled kernels on disk. A file is written under a temporary name and renamed, so that several VMs can
// share a folder; a checksum inside tells a damaged file, which then counts as absent. A folder that cannot
// be written disables storing and is no error. Used by kernel_compiler; safe from any thread and process.
#pragma once

#include <optional>
#include <string>

namespace exphil::cuda {

class DiskCache {
 public:
  // "" is a cache that never holds anything.
  explicit DiskCache(std::string directory) : directory_(std::move(directory)) {}

  // Nothing where the file is absent, damaged or of another format.
  std::optional<std::string> load(const std::string& key) const;
  // True where the file is in place now.
  bool store(const std::string& key, const std::string& image) const;
  std::string path(const std::string& key) const;

 private:
  std::string directory_;
};

}  // namespace exphil::cuda
