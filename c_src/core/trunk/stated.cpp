#include "core/trunk/stated.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "core/trunk/edifice.hpp"

namespace exphil::core {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostConfigBytes = std::size_t{1} << 20;

// Python writes an infinite number as a bare word.
std::string without_infinity(std::string text) {
  const std::string word = "Infinity";
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size() + 2) {
    if (at > 0 && (text[at - 1] == '"' || text[at - 1] == '-')) continue;
    text.replace(at, word.size(), "\"" + word + "\"");
  }
  return text;
}

std::int64_t parse_count(const std::string& name, const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '\0' || value < 1 || errno == ERANGE) {
    bad_checkpoint("the file's ", name, " is ", quote(text), ", not a positive count");
  }
  return value;
}

bool parse_boolean(const std::string& name, const std::string& text) {
  if (text != "true" && text != "false") {
    bad_checkpoint("the file's ", name, " is ", quote(text), ", neither true nor false");
  }
  return text == "true";
}

float parse_number(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || std::isnan(value) || value < 0) {
    bad_checkpoint("the file's ", name, " is ", quote(text), ", not a number from 0 on");
  }
  return value;
}

std::string lower(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

[[noreturn]] void wrong_option(const std::string& name, const char* expected) {
  fail(ErrorKind::invalid_argument, ":" + name, ":", name, " must be ", expected);
}

}  // namespace

ModelConfig::ModelConfig(const std::string& file) {
  if (file.empty()) return;
  const std::size_t slash = file.rfind('/');
  path_ = (slash == std::string::npos ? "" : file.substr(0, slash + 1)) + "config.json";
  std::ifstream in(path_, std::ios::binary);
  if (!in) return;
  std::string text(kMostConfigBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMostConfigBytes) bad_checkpoint(quote_path(path_), " is larger than 1 MB");
  all_ = std::make_shared<const Json>(Json::parse(without_infinity(std::move(text)), nullptr, false));
  if (!all_->is_object()) bad_checkpoint(quote_path(path_), " is not a JSON object");
}

const Json* ModelConfig::find(const std::string& name) const {
  if (all_ == nullptr) return nullptr;
  if (all_->contains(name)) return &(*all_)[name];
  if (!all_->contains("ssm_cfg")) return nullptr;
  const Json& mixer = (*all_)["ssm_cfg"];
  return mixer.is_object() && mixer.contains(name) ? &mixer[name] : nullptr;
}

std::optional<std::string> ModelConfig::text(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (const Json* const found = find(name)) return text_of(*found, name);
  }
  return std::nullopt;
}

std::optional<std::string> ModelConfig::text_of_pair(const std::vector<std::string>& names,
                                                     std::size_t index) const {
  for (const std::string& name : names) {
    const Json* const pair = find(name);
    if (pair == nullptr) continue;
    if (!pair->is_array() || pair->size() != 2) wrong(name);
    return text_of((*pair)[index], name);
  }
  return std::nullopt;
}

std::optional<std::string> ModelConfig::text_of(const Json& value, const std::string& name) const {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return value.dump();
  // What transformers writes for an infinite number.
  if (value.is_object() && value.contains("__float__") && value["__float__"].is_string())
    return value["__float__"].get<std::string>();
  wrong(name);
}

void ModelConfig::wrong(const std::string& name) const {
  bad_checkpoint(quote_path(path_), " has for ", name, " neither a number nor true or false");
}

std::optional<std::string> StatedSettings::metadata(const std::string& name) const {
  for (const std::string& each : {name, "exphil_native." + name, "exphil_native." + lower(name)}) {
    const auto found = file_.metadata().find(each);
    if (found != file_.metadata().end()) return found->second;
  }
  return std::nullopt;
}

const TrunkOption* StatedSettings::option(const std::string& name) const {
  for (const auto& [given, value] : options_.trunk) {
    if (given == lower(name)) return &value;
  }
  return nullptr;
}

// given: the value of an option, or nothing where it has another kind.
template <class T, class Parse, class Given>
std::optional<T> StatedSettings::agreed(const std::string& name, const std::string& shown,
                                        const std::optional<std::string>& configured, const Parse& parse,
                                        const Given& given) {
  const auto stated = metadata(name);
  std::optional<T> in_file, by_call;
  if (stated || configured) in_file = parse(name, stated ? *stated : *configured);
  if (const TrunkOption* const found = option(name)) by_call = given(*found);
  if (in_file || by_call) {
    note(stated ? Source::metadata : configured ? Source::config : Source::options);
  }
  return agree(in_file, by_call, (":" + lower(shown)).c_str());
}

std::optional<std::int64_t> StatedSettings::count(const Names& names) {
  return agreed<std::int64_t>(names.front(), names.front(), config_.text(names), parse_count,
                              [&](const TrunkOption& option) {
                                const auto* const value = std::get_if<std::int64_t>(&option);
                                if (value == nullptr)
                                  wrong_option(lower(names.front()), "a positive integer");
                                return *value;
                              });
}

std::optional<bool> StatedSettings::boolean(const Names& names) {
  return agreed<bool>(names.front(), names.front(), config_.text(names), parse_boolean,
                      [&](const TrunkOption& option) {
                        const auto* const value = std::get_if<std::string>(&option);
                        if (value == nullptr || (*value != "true" && *value != "false"))
                          wrong_option(lower(names.front()), "true or false");
                        return *value == "true";
                      });
}

namespace {

float number_of(const std::string& name, const TrunkOption& option) {
  const auto* const value = std::get_if<double>(&option);
  const auto* const whole = std::get_if<std::int64_t>(&option);
  if (value == nullptr && whole == nullptr) wrong_option(name, "a number");
  const auto number = static_cast<float>(value != nullptr ? *value : static_cast<double>(*whole));
  if (!(number >= 0)) wrong_option(name, "a number from 0 on");
  return number;
}

}  // namespace

std::optional<float> StatedSettings::number(const Names& names) {
  return agreed<float>(names.front(), names.front(), config_.text(names), parse_number,
                       [&](const TrunkOption& option) { return number_of(lower(names.front()), option); });
}

std::optional<float> StatedSettings::number_of_pair(const Names& names, std::size_t index) {
  const std::vector<std::string> pairs(names.begin() + 1, names.end());
  return agreed<float>(names.front(), pairs.front(), config_.text_of_pair(pairs, index), parse_number,
                       [&](const TrunkOption& option) { return number_of(pairs.front(), option); });
}

float StatedSettings::norm_epsilon() {
  const auto text = config_.text({"norm_epsilon", "layer_norm_epsilon"});
  return core::norm_epsilon(file_, options_, text ? parse_number("norm_epsilon", *text) : 1e-5f);
}

const char* StatedSettings::from() const {
  static constexpr const char* kNames[] = {"metadata", "config", "options", "defaults"};
  return kNames[static_cast<int>(source_)];
}

void StatedSettings::refuse_others(const std::vector<std::string>& mixers) const {
  const auto quietly = [this](const char* name, const std::vector<std::string>& names) {
    const auto stated = metadata(name);
    return stated ? stated : config_.text(names);
  };
  const auto mixer = quietly("mixer", {"mixer", "layer"});
  if (mixer && std::find(mixers.begin(), mixers.end(), *mixer) == mixers.end()) {
    bad_checkpoint(file_.name(), " has the mixer ", quote(*mixer), ", but the tensors of ", policy_);
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
                   " has LayerNorms between its mixers (rms_norm: false), which are not supported");
  }
}

void StatedSettings::require_options(const std::vector<std::string>& known) const {
  for (const auto& [name, value] : options_.trunk) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    fail(ErrorKind::invalid_argument, ":" + name, ":", name, " is not an option of ", policy_);
  }
}

Fact limit_fact(float limit) {
  return std::isinf(limit) ? Fact() : Fact(static_cast<double>(limit));
}

}  // namespace exphil::core
