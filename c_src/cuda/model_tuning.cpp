// See model_tuning.hpp.
#include "cuda/model_tuning.hpp"

#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "core/error.hpp"

namespace exphil::cuda {
namespace {

std::map<std::string, std::function<void(ModelTuning&, std::int64_t)>> setters() {
  const auto small = [](int ModelTuning::*member) {
    return [member](ModelTuning& tuning, std::int64_t value) { tuning.*member = static_cast<int>(value); };
  };
  const auto large = [](std::int64_t ModelTuning::*member) {
    return [member](ModelTuning& tuning, std::int64_t value) { tuning.*member = value; };
  };
  return {{"team", small(&ModelTuning::team)},
          {"threads", small(&ModelTuning::threads)},
          {"batch_threads", small(&ModelTuning::batch_threads)},
          {"batch_agents", small(&ModelTuning::batch_agents)},
          {"cluster", small(&ModelTuning::cluster)},
          {"staged", small(&ModelTuning::staged)},
          {"inline_obs", small(&ModelTuning::inline_obs)},
          {"fused_limit", large(&ModelTuning::fused_limit)},
          {"few_limit", large(&ModelTuning::few_limit)},
          {"slice_rows", large(&ModelTuning::slice_rows)},
          {"lanes", small(&ModelTuning::lanes)},
          {"spin_microseconds", large(&ModelTuning::spin_microseconds)}};
}

[[noreturn]] void refuse(const std::string& word) {
  core::fail(core::ErrorKind::invalid_argument, "EXPHIL_NATIVE_POLICY",
             "EXPHIL_NATIVE_POLICY is a list like team=8,"
             "threads=256; it has \"",
             word, "\"");
}

}  // namespace

ModelTuning model_tuning() {
  ModelTuning tuning;
  const char* text = std::getenv("EXPHIL_NATIVE_POLICY");
  std::istringstream list(text == nullptr ? "" : text);
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
  if (tuning.slice_rows < 64) refuse("slice_rows below 64");
  return tuning;
}

}  // namespace exphil::cuda
