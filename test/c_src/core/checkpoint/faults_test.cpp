// Checkpoints of every format whose loading runs out of memory at every allocation.
#include <cstring>

#include "core/checkpoint/checkpoint.hpp"
#include "core/trunk/load.hpp"
#include "support/catch.hpp"
#include "support/edifice_writer.hpp"
#include "support/faults.hpp"
#include "support/policy.hpp"

namespace exphil::test {
namespace {

// The fingerprint of the weights of a file, which covers each of their bits.
Operation load_of(const std::string& name, const std::string& path) {
  return {name, {std::vector<std::uint8_t>(8)}, [path](Operation::Results& out) {
            const auto weights = core::load_weights(core::Checkpoint::open(path), {});
            std::memcpy(out[0].data(), &weights->fingerprint, 8);
          }};
}

Bytes bytes_of(const erlang::Text& text) {
  return Bytes(text.begin(), text.end());
}

}  // namespace

TEST_CASE("a failed allocation is an error of every checkpoint's load, and the next load is right",
          "[checkpoint][faults]") {
  using namespace erlang;
  const Options options = {{"backbone", atom("mamba")}, {"temporal", atom("true")}};
  const TemporaryFile safetensors(policy_file({}).bytes());
  const TemporaryFile container(bytes_of(file_of(full_policy(), config(options))));
  const TemporaryFile compressed(bytes_of(file_of(full_policy(), config(options), "", 1)));
  const TemporaryFile term(bytes_of(term_of(full_policy(), options)));
  fail_operations({load_of("safetensors", safetensors.path()), load_of("container", container.path()),
                   load_of("compressed container", compressed.path()), load_of("term", term.path())},
                  fail_allocation, [] {});
}

}  // namespace exphil::test
