// Reading a file stops where nobody waits for it any more.
#include <future>
#include <memory>

#include "core/checkpoint/checkpoint.hpp"
#include "core/trunk/load.hpp"
#include "core/work/background.hpp"
#include "support/catch.hpp"
#include "support/edifice_writer.hpp"
#include "support/safetensors_writer.hpp"

namespace exphil::core {

namespace {

using namespace test::erlang;

// Reads the file in a job whose caller is gone after `patience` questions.
class Reading final : public Job {
 public:
  Reading(std::function<void()> read, int patience) : read_(std::move(read)), patience_(patience) {}

  bool is_abandoned() const noexcept override { return ++asked_ > patience_; }

  void run() noexcept override {
    try {
      read_();
      ended_.set_value("read");
    } catch (const Abandoned&) {
      ended_.set_value("stopped");
    } catch (const std::exception& error) {
      ended_.set_value(error.what());
    }
  }

  std::string how_it_ended() { return ended_.get_future().get(); }
  int asked() const { return asked_; }

 private:
  const std::function<void()> read_;
  const int patience_;
  mutable int asked_ = 0;
  std::promise<std::string> ended_;
};

// How the job ended, and how often it asked for its caller.
std::pair<std::string, int> run(const std::function<void()>& read, int patience) {
  const auto job = std::make_shared<Reading>(read, patience);
  submit_job(JobKind::file, 1, job);
  const std::string how = job->how_it_ended();
  return {how, job->asked()};
}

constexpr int kForever = 1 << 30;

void stops(const std::function<void()>& read, int least) {
  const auto whole = run(read, kForever);
  CHECK(whole.first == "read");
  CHECK(whole.second >= least);
  for (const int patience : {0, least / 2, least - 1}) {
    const auto part = run(read, patience);
    CHECK(part.first == "stopped");
    CHECK(part.second == patience + 1);
  }
}

}  // namespace

TEST_CASE("a file that nobody waits for is not read to its end", "[checkpoint][background]") {
  test::SafetensorsWriter writer;
  writer.add_f32("a", {1 << 20}, std::vector<float>(1 << 20));
  const test::TemporaryFile plain(writer.bytes());
  stops([&] { Checkpoint::open(plain.path()); }, 16);

  NxTensor tensor;
  tensor.shape = {1 << 20}, tensor.size = 4 << 20;
  const Text part =
      serialized(term(container_map({{"a", container_map({{"b", tensor.bytes()}})}})), Text(4 << 20, '\0'));
  const Text bytes = container(1, "", part);
  const test::TemporaryFile compressed(test::Bytes(bytes.begin(), bytes.end()));
  stops([&] { Checkpoint::open(compressed.path()); }, 64);
}

TEST_CASE("a policy that nobody waits for is not loaded to its end", "[checkpoint][background]") {
  const Text bytes = file_of(trunk(), spec("mamba", {}));
  const test::TemporaryFile file(test::Bytes(bytes.begin(), bytes.end()));
  const Checkpoint opened = Checkpoint::open(file.path());
  stops([&] { load_weights(opened, {}); }, static_cast<int>(trunk().size()));
}

TEST_CASE("what runs in no job is never abandoned", "[background]") {
  CHECK_NOTHROW(stop_if_abandoned());
}

}  // namespace exphil::core
