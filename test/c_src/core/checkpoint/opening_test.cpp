// A checkpoint of any format comes from one opening of its file, so that its format, its header and its
// tensors are those of one file, also where a training run saves another under the same name meanwhile.
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.hpp"
#include "core/checkpoint/file.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/trunk/load.hpp"
#include "support/catch.hpp"
#include "support/edifice_writer.hpp"
#include "support/policy.hpp"

namespace exphil::core {

namespace {

using namespace test::erlang;

// How often the file is opened while this lives, by whomever.
class Openings {
 public:
  explicit Openings(const std::string& path) : queue_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    REQUIRE(queue_ >= 0);
    // The system merges equal events that follow each other: a close is between two openings.
    REQUIRE(::inotify_add_watch(queue_, path.c_str(), IN_OPEN | IN_CLOSE) >= 0);
  }
  ~Openings() { ::close(queue_); }
  Openings(const Openings&) = delete;
  Openings& operator=(const Openings&) = delete;

  int count() {
    alignas(inotify_event) char events[4096];
    for (ssize_t bytes; (bytes = ::read(queue_, events, sizeof events)) > 0;) {
      for (ssize_t at = 0; at < bytes;) {
        const auto* const event = reinterpret_cast<const inotify_event*>(events + at);
        if ((event->mask & IN_OPEN) != 0) ++count_;
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
    return count_;
  }

 private:
  const int queue_;
  int count_ = 0;
};

test::Bytes bytes_of(const Text& text) {
  return test::Bytes(text.begin(), text.end());
}

// A policy in each format and naming.
std::vector<test::Bytes> policies() {
  const Options options = {{"backbone", atom("mamba")}, {"temporal", atom("true")}};
  return {test::policy_file({}).bytes(), bytes_of(file_of(trunk(), spec("mamba", {}))),
          bytes_of(file_of(full_policy(), config(options), "", 1)),
          bytes_of(term_of(full_policy(), options))};
}

}  // namespace

TEST_CASE("a policy is loaded from one opening of its file", "[checkpoint]") {
  for (const test::Bytes& bytes : policies()) {
    const test::TemporaryFile file(bytes);
    Openings openings(file.path());
    CHECK(openings.count() == 0);
    CHECK(load_weights(Checkpoint::open(file.path()), {})->config.trunk == "mamba1");
    CHECK(openings.count() == 1);
    load_weights(Checkpoint::open(file.path()), {});
    CHECK(openings.count() == 2);
  }
}

TEST_CASE("a file that is replaced while it is read gives what it was", "[checkpoint]") {
  test::SafetensorsWriter before, after;
  before.add_f32("before", {2}, {1, 2});
  after.add_f32("after", {1}, {3});
  const test::TemporaryFile path(before.bytes()), other(after.bytes());
  File file(path.path());
  REQUIRE(std::rename(other.path().c_str(), path.path().c_str()) == 0);
  CHECK(Safetensors::read(file).find("before") != nullptr);
  CHECK(Safetensors::open(path.path()).find("after") != nullptr);
}

TEST_CASE("a file is read forwards, from its first byte, whatever its head was asked for", "[checkpoint]") {
  test::Bytes bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i + 1);
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, File::kHeadBytes, bytes.size()}) {
    const test::TemporaryFile path(test::Bytes(bytes.begin(), bytes.begin() + static_cast<long>(size)));
    File file(path.path());
    REQUIRE(file.size() == size);
    for (std::size_t i = 0; i < File::kHeadBytes; ++i) CHECK(file.head()[i] == (i < size ? i + 1 : 0));
    test::Bytes read(size);
    for (std::size_t at = 0; at < size; at += 7)
      file.read(read.data() + at, std::min<std::size_t>(7, size - at));
    CHECK(read == test::Bytes(bytes.begin(), bytes.begin() + static_cast<long>(size)));
    std::uint8_t more = 0;
    CHECK_THROWS(file.read(&more, 1));
  }
}

}  // namespace exphil::core
