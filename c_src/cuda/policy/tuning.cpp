#include "cuda/policy/tuning.hpp"

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <variant>

#include "core/environment.hpp"
#include "core/error.hpp"

namespace exphil::cuda {
namespace {

using Member = std::variant<int PolicyTuning::*, std::int64_t PolicyTuning::*>;

std::map<std::string, Member> members() {
  return {{"team", &PolicyTuning::team},
          {"threads", &PolicyTuning::threads},
          {"batch_threads", &PolicyTuning::batch_threads},
          {"batch_agents", &PolicyTuning::batch_agents},
          {"cluster", &PolicyTuning::cluster},
          {"staged", &PolicyTuning::staged},
          {"inline_obs", &PolicyTuning::inline_obs},
          {"fused_limit", &PolicyTuning::fused_limit},
          {"agents_together", &PolicyTuning::agents_together},
          {"graphs", &PolicyTuning::graphs},
          {"some_blocks", &PolicyTuning::some_blocks},
          {"many_blocks", &PolicyTuning::many_blocks},
          {"wide_rows", &PolicyTuning::wide_rows},
          {"slice_rows", &PolicyTuning::slice_rows},
          {"lanes", &PolicyTuning::lanes},
          {"window_blocks", &PolicyTuning::window_blocks},
          {"window_team", &PolicyTuning::window_team},
          {"window_threads", &PolicyTuning::window_threads},
          {"window_rows", &PolicyTuning::window_rows},
          {"window_rounds", &PolicyTuning::window_rounds},
          {"window_rings", &PolicyTuning::window_rings},
          {"windows_together", &PolicyTuning::windows_together},
          {"window_ahead", &PolicyTuning::window_ahead},
          {"cell_batch", &PolicyTuning::cell_batch},
          {"ahead_rows", &PolicyTuning::ahead_rows},
          {"batch_frame", &PolicyTuning::batch_frame},
          {"batches", &PolicyTuning::batches},
          {"frames_late", &PolicyTuning::frames_late},
          {"guess", &PolicyTuning::guess},
          {"pinned_answers", &PolicyTuning::pinned_answers},
          {"walk_team", &PolicyTuning::walk_team},
          {"wide_walk", &PolicyTuning::wide_walk},
          {"counts", &PolicyTuning::counts},
          {"pipeline", &PolicyTuning::pipeline},
          {"armed_microseconds", &PolicyTuning::armed_microseconds},
          {"spin_microseconds", &PolicyTuning::spin_microseconds}};
}

[[noreturn]] void refuse(const std::string& word) {
  core::fail(core::ErrorKind::invalid_argument, "EXPHIL_NATIVE_POLICY",
             "EXPHIL_NATIVE_POLICY is a list like team=8,"
             "threads=256; it has \"",
             word, "\"");
}

}  // namespace

PolicyTuning policy_tuning() {
  PolicyTuning tuning;
  std::istringstream list(core::environment("EXPHIL_NATIVE_POLICY"));
  const auto known = members();
  for (std::string word; std::getline(list, word, ',');) {
    const std::size_t equals = word.find('=');
    const auto found = known.find(word.substr(0, equals));
    if (equals == std::string::npos || found == known.end()) refuse(word);
    char* end = nullptr;
    const std::string number = word.substr(equals + 1);
    const std::int64_t value = std::strtoll(number.c_str(), &end, 10);
    if (number.empty() || *end != '\0' || value < -1 || value > 1 << 24) refuse(word);
    std::visit([&](auto member) { tuning.*member = static_cast<int>(value); }, found->second);
  }
  if (tuning.lanes < 1 || tuning.lanes > 16) refuse("lanes out of range");
  if (tuning.batches < 1 || tuning.batches > PolicyTuning::kMostBatches) refuse("batches out of range");
  if (tuning.window_blocks < 0) refuse("window_blocks below 0");
  if (tuning.armed_microseconds < 0) refuse("armed_microseconds below 0");
  if (tuning.walk_team > 16) refuse("walk_team above 16");
  if (tuning.pipeline < 0 || tuning.pipeline > 64) refuse("pipeline out of range");
  if (tuning.slice_rows < 64) refuse("slice_rows below 64");
  return tuning;
}

}  // namespace exphil::cuda
