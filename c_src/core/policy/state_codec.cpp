#include "core/policy/state_codec.hpp"

#include <cstring>
#include <string>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace exphil::core {

namespace {

constexpr char kMagic[8] = {'E', 'X', 'P', 'H', 'I', 'L', 'S', 'T'};
constexpr std::uint32_t kVersion = 2;

struct Header {
  char magic[8];
  std::uint32_t version, zero;
  std::uint64_t fingerprint;
  std::int64_t n_layer, d_inner, d_state, d_conv;
};
static_assert(sizeof(Header) == 56, "the layout is part of the format");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

template <class... Parts>
[[noreturn]] void damaged(const Parts&... parts) {
  fail(ErrorKind::invalid_state, "state", parts...);
}

Header check(const std::uint8_t* bytes, std::size_t size) {
  if (size < sizeof(Header) + sizeof(std::uint64_t)) {
    damaged("an exported state has at least ", sizeof(Header) + sizeof(std::uint64_t), " bytes; got ", size);
  }
  Header header;
  std::memcpy(&header, bytes, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    damaged("the bytes are not an exported state: they do not start with EXPHILST");
  }
  if (header.version != kVersion) {
    damaged("the exported state has version ", header.version, "; this library reads version ", kVersion);
  }
  std::uint64_t stored;
  std::memcpy(&stored, bytes + size - sizeof stored, sizeof stored);
  if (stored != hash64(bytes, size - sizeof stored)) {
    damaged("the exported state is damaged: its checksum does not match its ", size, " bytes");
  }
  return header;
}

}  // namespace

std::vector<std::uint8_t> encode_state(const PolicyConfig& config, std::uint64_t fingerprint,
                                       const StateValues& values) {
  Header header{{}, kVersion, 0, fingerprint, config.n_layer, config.d_inner, config.d_state, config.d_conv};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  const std::size_t ssm_bytes = values.ssm.size() * sizeof(float);
  const std::size_t conv_bytes = values.conv.size() * sizeof(float);
  std::vector<std::uint8_t> bytes(sizeof header + ssm_bytes + conv_bytes + sizeof(std::uint64_t));
  std::uint8_t* at = bytes.data();
  std::memcpy(at, &header, sizeof header);
  at += sizeof header;
  if (ssm_bytes > 0) std::memcpy(at, values.ssm.data(), ssm_bytes);
  at += ssm_bytes;
  if (conv_bytes > 0) std::memcpy(at, values.conv.data(), conv_bytes);
  at += conv_bytes;
  const std::uint64_t sum = hash64(bytes.data(), bytes.size() - sizeof(std::uint64_t));
  std::memcpy(at, &sum, sizeof sum);
  return bytes;
}

StateValues decode_state(const PolicyConfig& config, std::uint64_t fingerprint, const std::uint8_t* bytes,
                         std::size_t size) {
  const Header header = check(bytes, size);
  if (header.fingerprint != fingerprint) {
    fail(ErrorKind::mismatch, "state", "the exported state belongs to the model with fingerprint ",
         hex(header.fingerprint), "; this session's model has ", hex(fingerprint));
  }
  StateValues values;
  values.ssm.resize(static_cast<std::size_t>(config.ssm_floats()));
  values.conv.resize(static_cast<std::size_t>(config.conv_floats()));
  const std::size_t ssm_bytes = values.ssm.size() * sizeof(float);
  const std::size_t conv_bytes = values.conv.size() * sizeof(float);
  if (header.n_layer != config.n_layer || header.d_inner != config.d_inner ||
      header.d_state != config.d_state || header.d_conv != config.d_conv ||
      size != sizeof(Header) + ssm_bytes + conv_bytes + sizeof(std::uint64_t)) {
    damaged("the exported state's dimensions disagree with the model it names");
  }
  if (ssm_bytes > 0) std::memcpy(values.ssm.data(), bytes + sizeof(Header), ssm_bytes);
  if (conv_bytes > 0) std::memcpy(values.conv.data(), bytes + sizeof(Header) + ssm_bytes, conv_bytes);
  return values;
}

}  // namespace exphil::core
