#include "support/shared_data.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>

#include "core/checkpoint/safetensors.hpp"

namespace exphil::test {

namespace {

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

template <class T>
std::vector<T> read(const std::string& path, const std::string& name, core::Dtype dtype) {
  const core::Safetensors file = core::Safetensors::open(path);
  const core::TensorView* view = file.find(name);
  if (view == nullptr || view->dtype != dtype)
    throw std::runtime_error(path + " has no such tensor: " + name);
  std::vector<T> values(view->bytes / sizeof(T));
  std::memcpy(values.data(), view->data, view->bytes);
  return values;
}

}  // namespace

std::string shared_folder() {
  const char* configured = std::getenv("EXPHIL_SHARED");
  const std::string folder = configured != nullptr && *configured != '\0' ? configured : "../shared";
  return exists(folder) ? folder : "";
}

std::string shared_path(const std::string& relative) {
  return shared_folder() + "/" + relative;
}

bool have_shared(const std::string& relative) {
  if (!shared_folder().empty() && exists(shared_path(relative))) return true;
  std::cerr << "skipped: " << relative << " is not in ../shared, nor where EXPHIL_SHARED points\n";
  return false;
}

std::vector<float> read_f32(const std::string& path, const std::string& tensor) {
  return read<float>(path, tensor, core::Dtype::f32);
}

std::vector<double> read_f64(const std::string& path, const std::string& tensor) {
  return read<double>(path, tensor, core::Dtype::f64);
}

std::vector<std::uint8_t> read_u8(const std::string& path, const std::string& tensor) {
  return read<std::uint8_t>(path, tensor, core::Dtype::u8);
}

std::vector<std::int32_t> read_s32(const std::string& path, const std::string& tensor) {
  return read<std::int32_t>(path, tensor, core::Dtype::s32);
}

}  // namespace exphil::test
