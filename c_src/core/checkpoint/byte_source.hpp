// Sequential bytes from memory or from a zlib stream, for one parser. Decompression never takes more memory
// than requested and takes it in steps, within what the whole file may inflate to, so that a small file that
// announces a huge size costs little. It stops where nobody waits for it any more. One thread per object.
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

// What all compressed parts of one file may inflate to, together. zlib packs a thousand zeros into a byte,
// and a compressed part may hold a compressed part: without this bound 7 KB become gigabytes. Weights need
// far less: trained ones shrink by a few percent, and by a factor of ten where nine of ten are zero. Only
// equal weights shrink further, so a small file may inflate to kAlways all the same.
class InflationLimit {
 public:
  static constexpr std::uint64_t kAlways = std::uint64_t{16} << 20, kRatio = 64;
  static constexpr std::uint64_t kMost = std::uint64_t{4} << 30;

  explicit InflationLimit(std::uint64_t file_bytes);
  // Before `bytes` more are inflated. Throws limit_exceeded, which names `what`, beyond the limit.
  void take(std::uint64_t bytes, const std::string& what);

 private:
  std::uint64_t limit_, left_;
};

// One zlib stream (RFC 1950).
class InflatedBytes final : public ByteSource {
 public:
  // The limit is the file's and outlives this.
  InflatedBytes(const std::uint8_t* bytes, std::size_t size, std::string what, InflationLimit& limit);
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
  const std::string what_;
  InflationLimit& limit_;
};

}  // namespace exphil::core
