#include "core/trunk/mamba2/settings.hpp"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "core/trunk/edifice.hpp"

namespace exphil::core::mamba2 {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostConfigBytes = std::size_t{1} << 20;

class Config {
 public:
  // Of the folder of the file; nothing where there is none.
  explicit Config(const std::string& file) {
    if (file.empty()) return;
    const std::size_t slash = file.rfind('/');
    path_ = (slash == std::string::npos ? "" : file.substr(0, slash + 1)) + "config.json";
    std::ifstream in(path_, std::ios::binary);
    if (!in) return;
    std::string text(kMostConfigBytes + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMostConfigBytes) bad_checkpoint(quote_path(path_), " is larger than 1 MB");
    all_ = Json::parse(without_infinity(std::move(text)), nullptr, false);
    if (!all_.is_object()) bad_checkpoint(quote_path(path_), " is not a JSON object");
  }

  // Of the first of the names that it has: text of a number, a boolean or a string. state-spaces/mamba has
  // those of the mixer in ssm_cfg.
  std::optional<std::string> text(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      for (const Json* each : {&all_, ssm()}) {
        if (each != nullptr && each->is_object() && each->contains(name)) return text_of((*each)[name], name);
      }
    }
    return std::nullopt;
  }
  // One of a pair.
  std::optional<std::string> text_of_pair(const std::vector<std::string>& names, std::size_t index) const {
    for (const std::string& name : names) {
      for (const Json* each : {&all_, ssm()}) {
        if (each == nullptr || !each->is_object() || !each->contains(name)) continue;
        const Json& pair = (*each)[name];
        if (!pair.is_array() || pair.size() != 2) wrong(name);
        return text_of(pair[index], name);
      }
    }
    return std::nullopt;
  }

 private:
  const Json* ssm() const {
    return all_.is_object() && all_.contains("ssm_cfg") ? &all_["ssm_cfg"] : nullptr;
  }

  std::optional<std::string> text_of(const Json& value, const std::string& name) const {
    if (value.is_null()) return std::nullopt;
    if (value.is_string()) return value.get<std::string>();
    if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
    if (value.is_number()) return value.dump();
    // What transformers writes for an infinite number.
    if (value.is_object() && value.contains("__float__") && value["__float__"].is_string())
      return value["__float__"].get<std::string>();
    wrong(name);
  }

  [[noreturn]] void wrong(const std::string& name) const {
    bad_checkpoint(quote_path(path_), " has for ", name, " neither a number nor true or false");
  }

  // Python writes an infinite number as a bare word.
  static std::string without_infinity(std::string text) {
    const std::string word = "Infinity";
    for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size() + 2) {
      if (at > 0 && (text[at - 1] == '"' || text[at - 1] == '-')) continue;
      text.replace(at, word.size(), "\"" + word + "\"");
    }
    return text;
  }

  std::string path_;
  Json all_;
};

class Reader {
 public:
  Reader(const Checkpoint& file, const PolicyLoadOptions& options)
      : file_(file), options_(options), config_(file.path()) {}

  Settings read() {
    refuse();
    const auto groups = setting("ngroups", {"ngroups", "n_groups"});
    made_.groups = groups ? count("ngroups", *groups) : 1;
    const auto before = setting("norm_before_gate", {"norm_before_gate"});
    made_.norm_before_gate = before && boolean("norm_before_gate", *before);
    const auto lowest = bound("dt_limit_min", 0), highest = bound("dt_limit_max", 1);
    if (lowest) made_.dt_lowest = number("dt_limit_min", *lowest);
    if (highest) made_.dt_highest = number("dt_limit_max", *highest);
    if (!(made_.dt_lowest <= made_.dt_highest)) {
      bad_checkpoint("dt_limit is from ", made_.dt_lowest, " to ", made_.dt_highest);
    }
    made_.norm_epsilon = norm_epsilon(file_, options_, epsilon({"norm_epsilon", "layer_norm_epsilon"}));
    if (const auto text = quietly("mixer_norm_epsilon", {"mixer_norm_epsilon"})) {
      made_.mixer_norm_epsilon = number("mixer_norm_epsilon", *text);
    }
    for (const auto& [name, value] : options_.trunk) {
      if (name != "ngroups" && name != "norm_before_gate") {
        fail(ErrorKind::invalid_argument, ":" + name, ":", name, " is not an option of a Mamba-2 policy");
      }
    }
    return made_;
  }

 private:
  std::optional<std::string> metadata(const std::string& name) const {
    for (const std::string& prefix : {std::string(), std::string("exphil_native.")}) {
      const auto found = file_.metadata().find(prefix + name);
      if (found != file_.metadata().end()) return found->second;
    }
    return std::nullopt;
  }
  std::optional<std::string> option(const std::string& name) const {
    for (const auto& [given, value] : options_.trunk) {
      if (given != name) continue;
      const auto* const text = std::get_if<std::string>(&value);
      return text != nullptr ? *text : std::to_string(std::get<std::int64_t>(value));
    }
    return std::nullopt;
  }

  std::optional<std::string> quietly(const std::string& name, const std::vector<std::string>& names) const {
    const auto stated = metadata(name);
    return stated ? stated : config_.text(names);
  }
  // And remembers the source.
  std::optional<std::string> setting(const std::string& name, const std::vector<std::string>& names) {
    const auto stated = metadata(name), configured = config_.text(names), given = option(name);
    const std::optional<std::string> in_file = stated ? stated : configured;
    const auto value = agree(in_file, given, (":" + name).c_str());
    const int source = stated ? 0 : configured ? 1 : given ? 2 : 3;
    if (source > source_) source_ = source;
    static constexpr const char* kSources[] = {"metadata", "config", "options", "defaults"};
    made_.from = kSources[source_];
    return value;
  }
  std::optional<std::string> bound(const std::string& name, std::size_t index) const {
    const auto stated = metadata(name);
    return stated ? stated : config_.text_of_pair({"dt_limit", "time_step_limit"}, index);
  }
  float epsilon(const std::vector<std::string>& names) const {
    const auto text = config_.text(names);
    return text ? number(names.front(), *text) : 1e-5f;
  }

  static std::int64_t count(const char* name, const std::string& text) {
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    if (end == text.c_str() || *end != '\0' || value < 1 || errno == ERANGE) {
      bad_checkpoint("the file's ", name, " is ", quote(text), ", not a positive count");
    }
    return value;
  }
  static bool boolean(const char* name, const std::string& text) {
    if (text != "true" && text != "false") {
      bad_checkpoint("the file's ", name, " is ", quote(text), ", neither true nor false");
    }
    return text == "true";
  }
  static float number(const std::string& name, const std::string& text) {
    char* end = nullptr;
    const float value = std::strtof(text.c_str(), &end);
    if (end == text.c_str() || *end != '\0' || std::isnan(value) || value < 0) {
      bad_checkpoint("the file's ", name, " is ", quote(text), ", not a number from 0 on");
    }
    return value;
  }

  void refuse() const {
    const auto mixer = quietly("mixer", {"mixer", "layer"});
    if (mixer && *mixer != "mamba2" && *mixer != "Mamba2") {
      bad_checkpoint(file_.name(), " has the mixer ", quote(*mixer), ", but the tensors of Mamba-2");
    }
    const auto mlp = quietly("d_intermediate", {"d_intermediate"});
    if (mlp && *mlp != "0") {
      bad_checkpoint(file_.name(), " has an MLP between its mixers (d_intermediate ", quote(*mlp),
                     "), which is not supported");
    }
    const auto rms = config_.text({"rms_norm"});
    if (rms && *rms == "false" && metadata("mixer") == std::nullopt &&
        config_.text({"model_type"}) == std::nullopt) {
      bad_checkpoint(file_.name(),
                     " has LayerNorms between its mixers (rms_norm: false), which are not "
                     "supported");
    }
  }

  const Checkpoint& file_;
  const PolicyLoadOptions& options_;
  const Config config_;
  Settings made_;
  int source_ = 0;
};

}  // namespace

Settings settings_of(const Checkpoint& file, const PolicyLoadOptions& options) {
  return Reader(file, options).read();
}

}  // namespace exphil::core::mamba2
