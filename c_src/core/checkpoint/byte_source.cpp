#include "core/checkpoint/byte_source.hpp"

#include <zlib.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/checkpoint/errors.hpp"
#include "core/error.hpp"
#include "core/work/background.hpp"

namespace exphil::core {

namespace {

constexpr std::size_t kStep = std::size_t{1} << 20;
// Inflated at a time: some 100 us.
constexpr std::size_t kInflated = std::size_t{1} << 16;

}  // namespace

const std::uint8_t* PlainBytes::take(std::uint64_t bytes) {
  if (bytes > left_) bad(what_, " is truncated: ", bytes, " bytes are needed and ", left_, " are left");
  const std::uint8_t* taken = bytes_;
  bytes_ += bytes;
  left_ -= bytes;
  return taken;
}

void PlainBytes::finish() {
  if (left_ > 0) bad(left_, " bytes follow the end of ", what_);
}

struct InflatedBytes::Stream {
  z_stream z{};
  std::uint64_t input_left = 0;  // not yet given to z
  bool ended = false;
};

InflationLimit::InflationLimit(std::uint64_t file_bytes)
    : limit_(std::min(kMost, std::max(kAlways, std::min(file_bytes, kMost) * kRatio))), left_(limit_) {}

void InflationLimit::take(std::uint64_t bytes, const std::string& what) {
  if (bytes > left_) {
    fail(ErrorKind::limit_exceeded, "path", what, " inflates to more than the limit: all parts of this file",
         " may inflate to ", limit_, " bytes together (", kRatio, " times its size, at least ", kAlways,
         ", at most ", kMost, ")");
  }
  left_ -= bytes;
}

InflatedBytes::InflatedBytes(const std::uint8_t* bytes, std::size_t size, std::string what,
                             InflationLimit& limit)
    : stream_(std::make_unique<Stream>()), what_(std::move(what)), limit_(limit) {
  stream_->z.next_in = const_cast<std::uint8_t*>(bytes);
  stream_->input_left = size;
  if (inflateInit(&stream_->z) != Z_OK) throw std::bad_alloc();
}

InflatedBytes::~InflatedBytes() {
  inflateEnd(&stream_->z);
}

// Fills `to`; returns fewer bytes than `room` only at the end of the stream.
std::size_t InflatedBytes::inflate(std::uint8_t* to, std::size_t room) {
  z_stream& z = stream_->z;
  z.next_out = to;
  z.avail_out = 0;
  std::size_t left = room;  // beyond avail_out
  while ((z.avail_out > 0 || left > 0) && !stream_->ended) {
    if (z.avail_out == 0) {
      stop_if_abandoned();
      give_way();
      z.avail_out = static_cast<uInt>(std::min(left, kInflated));
      left -= z.avail_out;
    }
    if (z.avail_in == 0) {
      const std::uint64_t next = std::min<std::uint64_t>(stream_->input_left, kStep);
      if (next == 0) bad(what_, " is truncated in its zlib stream");
      z.avail_in = static_cast<uInt>(next);
      stream_->input_left -= next;
    }
    const int status = ::inflate(&z, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      bad(what_, " has a damaged zlib stream", z.msg != nullptr ? ": " : "", z.msg != nullptr ? z.msg : "");
    }
    stream_->ended = status == Z_STREAM_END;
  }
  return room - left - z.avail_out;
}

std::vector<std::uint8_t> InflatedBytes::take_owned(std::uint64_t bytes) {
  limit_.take(bytes, what_);
  std::vector<std::uint8_t> out;
  while (out.size() < bytes) {
    const std::size_t begin = out.size();
    // Doubling bounds the copies; the memory reserved ahead is at most the size already read.
    const std::uint64_t more = std::min<std::uint64_t>(bytes - begin, std::max(begin, kStep));
    out.resize(begin + static_cast<std::size_t>(std::min<std::uint64_t>(more, std::uint64_t{1} << 30)));
    const std::size_t got = inflate(out.data() + begin, out.size() - begin);
    if (got < out.size() - begin) {
      bad(what_, " inflates to ", begin + got, " bytes, fewer than the ", bytes, " it announces");
    }
  }
  return out;
}

const std::uint8_t* InflatedBytes::take(std::uint64_t bytes) {
  taken_.push_back(take_owned(bytes));
  return taken_.back().data();
}

void InflatedBytes::finish() {
  std::uint8_t beyond = 0;
  if (inflate(&beyond, 1) != 0) bad(what_, " inflates to more bytes than it announces");
  const std::uint64_t left = stream_->z.avail_in + stream_->input_left;
  if (left > 0) bad(left, " bytes follow the zlib stream of ", what_);
}

}  // namespace exphil::core
