#include "core/session/state_codec.hpp"

#include <array>
#include <cstring>
#include <string>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace exphil::core {

namespace {

constexpr char kMagic[8] = {'E', 'X', 'P', 'H', 'I', 'L', 'S', 'T'};
constexpr std::uint32_t kCarried = 2, kWithPlay = 4, kWithWindow = 5;  // versions; 3 was never written

struct Header {
  char magic[8];
  std::uint32_t version, window;
  std::uint64_t fingerprint;
  std::array<std::int64_t, 4> signature;
};
// The part of versions 4 and 5 between the common header and the floats.
struct PlayHeader {
  std::uint64_t frame;
  std::uint32_t held, has_frames;
  std::uint64_t d_input, frames;
};
static_assert(sizeof(Header) == 56 && sizeof(PlayHeader) == 32, "the layout is part of the format");
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
  if (header.version != kCarried && header.version != kWithPlay && header.version != kWithWindow) {
    damaged("the exported state has version ", header.version, "; this library reads version ", kCarried,
            ", version ", kWithPlay, " and version ", kWithWindow);
  }
  std::uint64_t stored;
  std::memcpy(&stored, bytes + size - sizeof stored, sizeof stored);
  if (stored != hash64(bytes, size - sizeof stored)) {
    damaged("the exported state is damaged: its checksum does not match its ", size, " bytes");
  }
  return header;
}

PlayHeader play_header(const PolicyConfig& config, const StateValues& values) {
  PlayHeader header{values.play.frame, 0, values.frames ? 1u : 0u, 0, 0};
  for (std::size_t i = 0; i < values.play.held.size(); ++i) {
    if (values.play.held[i]) header.held |= 1u << i;
  }
  if (values.frames) {
    header.d_input = static_cast<std::uint64_t>(config.d_input);
    header.frames = values.frames->size() / static_cast<std::size_t>(config.d_input);
  }
  return header;
}

PlayState play_of(const PlayHeader& header) {
  PlayState play;
  play.frame = header.frame;
  if (header.held >> play.held.size() != 0 || header.has_frames > 1)
    damaged("the exported state's play is damaged");
  for (std::size_t i = 0; i < play.held.size(); ++i) play.held[i] = (header.held >> i & 1u) != 0;
  return play;
}

// Copies one array after another from the bytes between the headers and the checksum.
class FloatReader {
 public:
  FloatReader(const std::uint8_t* from, const std::uint8_t* end) : at_(from), end_(end) {}
  std::vector<float> take(std::uint64_t floats) {
    if (floats > static_cast<std::uint64_t>(end_ - at_) / sizeof(float)) mismatched();
    std::vector<float> values(static_cast<std::size_t>(floats));
    if (floats > 0) std::memcpy(values.data(), at_, values.size() * sizeof(float));
    at_ += values.size() * sizeof(float);
    return values;
  }
  void finish() const {
    if (at_ != end_) mismatched();
  }
  [[noreturn]] static void mismatched() {
    damaged("the exported state's dimensions disagree with the policy it names");
  }

 private:
  const std::uint8_t *at_, *end_;
};

bool has_played(const PlayState& play) {
  return play.frame != 0;
}

template <class T>
void append(std::vector<std::uint8_t>* bytes, const T* from, std::size_t count) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(from);
  bytes->insert(bytes->end(), begin, begin + count * sizeof(T));
}

}  // namespace

std::vector<std::uint8_t> encode_state(const PolicyConfig& config, std::uint64_t fingerprint,
                                       const StateValues& values) {
  const bool with_play = values.frames || has_played(values.play);
  Header header{{},
                values.window != 0 ? kWithWindow
                : with_play        ? kWithPlay
                                   : kCarried,
                static_cast<std::uint32_t>(values.window),
                fingerprint,
                config.state_signature};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::vector<std::uint8_t> bytes;
  append(&bytes, &header, 1);
  if (with_play) {
    const PlayHeader play = play_header(config, values);
    append(&bytes, &play, 1);
  }
  if (values.frames) {
    append(&bytes, values.frames->data(), values.frames->size());
  } else {
    append(&bytes, values.carried.data(), values.carried.size());
  }
  const std::uint64_t sum = hash64(bytes.data(), bytes.size());
  append(&bytes, &sum, 1);
  return bytes;
}

StateValues decode_state(const PolicyConfig& config, std::uint64_t fingerprint, const std::uint8_t* bytes,
                         std::size_t size) {
  const Header header = check(bytes, size);
  if (header.fingerprint != fingerprint) {
    fail(ErrorKind::mismatch, "state", "the exported state belongs to the policy with fingerprint ",
         hex(header.fingerprint), "; this session's policy has ", hex(fingerprint));
  }
  if (header.signature != config.state_signature) FloatReader::mismatched();
  StateValues values;
  const std::uint8_t *at = bytes + sizeof(Header), *end = bytes + size - sizeof(std::uint64_t);
  PlayHeader play{};
  if (header.version != kCarried) {
    if (static_cast<std::size_t>(end - at) < sizeof play) FloatReader::mismatched();
    std::memcpy(&play, at, sizeof play);
    at += sizeof play;
    values.play = play_of(play);
  }
  const bool with_window = header.version == kWithWindow;
  if (with_window && (play.has_frames == 0 || header.window == 0 || play.frames > header.window)) {
    FloatReader::mismatched();
  }
  values.window = with_window ? header.window : 0;
  FloatReader floats(at, end);
  if (play.has_frames != 0) {
    const auto width = static_cast<std::uint64_t>(config.d_input);
    if (play.d_input != width || play.frames > size / width) FloatReader::mismatched();
    values.frames = floats.take(play.frames * width);
  } else {
    values.carried = floats.take(static_cast<std::uint64_t>(config.state_floats()));
  }
  floats.finish();
  return values;
}

}  // namespace exphil::core
