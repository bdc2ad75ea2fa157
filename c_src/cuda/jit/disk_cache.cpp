// File format: a magic line, the 64-bit hash of the image in hexadecimal and a newline, the image. See
// disk_cache.hpp.
#include "cuda/jit/disk_cache.hpp"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "core/hash.hpp"

namespace exphil::cuda {
namespace {

const std::string kMagic = "exphil_native kernel 2\n";
constexpr std::size_t kDigest = 16;

std::string digest(const std::string& image) {
  return core::hex(core::hash64(image.data(), image.size()));
}

// Unique among the threads of this process and among processes on this host.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return path + "." + std::to_string(getpid()) + "." + std::to_string(counter++) + ".tmp";
}

}  // namespace

std::string DiskCache::path(const std::string& key) const {
  return directory_ + "/" + key + ".bin";
}

std::optional<std::string> DiskCache::load(const std::string& key) const {
  if (directory_.empty()) return std::nullopt;
  std::ifstream file(path(key), std::ios::binary);
  if (!file) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t header = kMagic.size() + kDigest + 1;
  if (text.size() <= header || text.compare(0, kMagic.size(), kMagic) != 0 || text[header - 1] != '\n') {
    return std::nullopt;
  }
  std::string image = text.substr(header);
  if (digest(image) != text.substr(kMagic.size(), kDigest)) return std::nullopt;
  return image;
}

bool DiskCache::store(const std::string& key, const std::string& image) const {
  if (directory_.empty()) return false;
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) return false;
  const std::string target = path(key);
  const std::string temporary = temporary_name(target);
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << kMagic << digest(image) << '\n' << image;
    file.close();
    if (!file) {
      std::filesystem::remove(temporary, error);
      return false;
    }
  }
  std::filesystem::rename(temporary, target, error);
  if (!error) return true;
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  return false;
}

}  // namespace exphil::cuda
