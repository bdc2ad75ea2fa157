#include "cuda/policy/tuning.hpp"

#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "core/environment.hpp"
#include "core/error.hpp"

namespace exphil::cuda {
namespace {

std::map<std::string, std::function<void(PolicyTuning&, std::int64_t)>> setters() {
  const auto small = [](int PolicyTuning::*member) {
    return [member](PolicyTuning& tuning, std::int64_t value) { tuning.*member = static_cast<int>(value); };
  };
  const auto large = [](std::int64_t PolicyTuning::*member) {
    return [member](PolicyTuning& tuning, std::int64_t value) { tuning.*member = value; };
  };
  return {{"team", small(&PolicyTuning::team)},
          {"threads", small(&PolicyTuning::threads)},
          {"batch_threads", small(&PolicyTuning::batch_threads)},
          {"batch_agents", small(&PolicyTuning::batch_agents)},
          {"cluster", small(&PolicyTuning::cluster)},
          {"staged", small(&PolicyTuning::staged)},
          {"inline_obs", small(&PolicyTuning::inline_obs)},
          {"fused_limit", large(&PolicyTuning::fused_limit)},
          {"few_limit", large(&PolicyTuning::few_limit)},
          {"slice_rows", large(&PolicyTuning::slice_rows)},
          {"lanes", small(&PolicyTuning::lanes)},
          {"window_blocks", small(&PolicyTuning::window_blocks)},
          {"window_team", small(&PolicyTuning::window_team)},
          {"window_threads", small(&PolicyTuning::window_threads)},
          {"window_rows", small(&PolicyTuning::window_rows)},
          {"window_rounds", small(&PolicyTuning::window_rounds)},
          {"armed_microseconds", large(&PolicyTuning::armed_microseconds)},
          {"spin_microseconds", large(&PolicyTuning::spin_microseconds)}};
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
  const auto known = setters();
  for (std::string word; std::getline(list, word, ',');) {
    const std::size_t equals = word.find('=');
    const auto setter = known.find(word.substr(0, equals));
    if (equals == std::string::npos || setter == known.end()) refuse(word);
    char* end = nullptr;
    const std::string number = word.substr(equals + 1);
    const std::int64_t value = std::strtoll(number.c_str(), &end, 10);
    if (number.empty() || *end != '\0' || value < -1 || value > 1 << 24) refuse(word);
    setter->second(tuning, value);
  }
  if (tuning.lanes < 1 || tuning.lanes > 16) refuse("lanes out of range");
  if (tuning.window_blocks < 0) refuse("window_blocks below 0");
  if (tuning.armed_microseconds < 0) refuse("armed_microseconds below 0");
  if (tuning.slice_rows < 64) refuse("slice_rows below 64");
  return tuning;
}

}  // namespace exphil::cuda
