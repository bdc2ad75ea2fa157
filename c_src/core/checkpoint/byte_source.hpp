// Sequential bytes from memory or from a zlib stream, for one parser. Decompression never takes more memory
// than requested, and takes it in steps, so that a small file that announces a huge size costs little. One
// thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace exphil::core {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // The next `bytes` bytes, valid as long as the source. Throws invalid_checkpoint where there are fewer.
  virtual const std::uint8_t* take(std::uint64_t bytes) = 0;
  // Throws invalid_checkpoint where bytes are left over.
  virtual void finish() = 0;
};

class PlainBytes final : public ByteSource {
 public:
  // `what` names the bytes in errors.
  PlainBytes(const std::uint8_t* bytes, std::size_t size, std::string what)
      : bytes_(bytes), left_(size), what_(std::move(what)) {}
  const std::uint8_t* take(std::uint64_t bytes) override;
  void finish() override;

 private:
  const std::uint8_t* bytes_;
  std::uint64_t left_;
  const std::string what_;
};

// One zlib stream (RFC 1950).
class InflatedBytes final : public ByteSource {
 public:
  // A megabyte of zlib can hold a gigabyte of zeros. Throws limit_exceeded where more than this is taken.
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{4} << 30;

  InflatedBytes(const std::uint8_t* bytes, std::size_t size, std::string what);
  ~InflatedBytes() override;
  const std::uint8_t* take(std::uint64_t bytes) override;
  std::vector<std::uint8_t> take_owned(std::uint64_t bytes);
  // Also throws where the stream's checksum is wrong or compressed bytes follow its end.
  void finish() override;

 private:
  struct Stream;
  std::size_t inflate(std::uint8_t* to, std::size_t room);
  std::unique_ptr<Stream> stream_;
  std::vector<std::vector<std::uint8_t>> taken_;
  std::uint64_t bytes_taken_ = 0;
  const std::string what_;
};

}  // namespace exphil::core
