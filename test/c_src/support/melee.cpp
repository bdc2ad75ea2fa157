#include "support/melee.hpp"

#include "core/checkpoint/checkpoint.hpp"
#include "support/shared_data.hpp"

namespace exphil::test {

namespace {

Match read_match(const std::string& path) {
  Match match;
  match.frame = read_s32(path, "frame");
  match.obs = read_f32(path, "obs");
  match.logits = read_f32(path, "logits");
  match.frames = static_cast<std::int64_t>(match.frame.size());
  match.d_input = static_cast<std::int64_t>(match.obs.size()) / match.frames;
  match.d_output = static_cast<std::int64_t>(match.logits.size()) / match.frames;
  return match;
}

}  // namespace

bool have_melee() {
  return have_shared("melee/policy.safetensors");
}

std::shared_ptr<const core::PolicyWeights> melee_policy() {
  return core::load_weights(core::Checkpoint::open(shared_path("melee/policy.safetensors")), {});
}

Match melee_match() {
  const std::string path = shared_path("melee/match.safetensors");
  Match match = read_match(path);
  match.ssm_state = read_f32(path, "ssm_state");
  match.conv_state = read_f32(path, "conv_state");
  return match;
}

Match melee_rollback() {
  return read_match(shared_path("melee/rollback.safetensors"));
}

Windows melee_windows() {
  const std::string path = shared_path("melee/windows60.safetensors");
  return {read_s32(path, "end_frame_index"), read_f32(path, "logits")};
}

}  // namespace exphil::test
