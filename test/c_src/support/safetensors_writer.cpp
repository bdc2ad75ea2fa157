#include "support/safetensors_writer.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "core/half.hpp"

namespace exphil::test {

void SafetensorsWriter::add_f32(const std::string& name, std::vector<std::int64_t> shape,
                                const std::vector<float>& values) {
  Bytes data(values.size() * sizeof(float));
  if (!data.empty()) std::memcpy(data.data(), values.data(), data.size());
  tensors[name] = Tensor{"F32", std::move(shape), std::move(data)};
}

void SafetensorsWriter::add_bf16(const std::string& name, std::vector<std::int64_t> shape,
                                 const std::vector<float>& values) {
  Bytes data(values.size() * 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = core::f32_to_bf16(values[i]);
    std::memcpy(data.data() + 2 * i, &half, 2);
  }
  tensors[name] = Tensor{"BF16", std::move(shape), std::move(data)};
}

Bytes SafetensorsWriter::bytes() const {
  nlohmann::json header = nlohmann::json::object();
  Bytes data;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    data.insert(data.end(), tensor.data.begin(), tensor.data.end());
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  return raw_safetensors(header.dump(), data);
}

Bytes raw_safetensors(const std::string& header, const Bytes& data) {
  Bytes out;
  for (int i = 0; i < 8; ++i)
    out.push_back(static_cast<std::uint8_t>(std::uint64_t{header.size()} >> (8 * i)));
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

TemporaryFile::TemporaryFile(const Bytes& bytes) {
  const char* folder = std::getenv("TMPDIR");
  std::string name = std::string(folder != nullptr ? folder : "/tmp") + "/exphil_test_XXXXXX";
  const int descriptor = ::mkstemp(name.data());
  if (descriptor < 0) throw std::runtime_error("cannot create " + name);
  ::close(descriptor);
  path_ = name;
  rewrite(bytes);
}

TemporaryFile::~TemporaryFile() {
  ::unlink(path_.c_str());
}

void TemporaryFile::rewrite(const Bytes& bytes) const {
  std::ofstream out(path_, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path_);
}

}  // namespace exphil::test
