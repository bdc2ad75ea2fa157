// What the shapes of a policy's tensors cannot say, for files with state-spaces' names: by the file's
// metadata, else a config.json beside it (that of state-spaces/mamba or of transformers), else an option of
// the call, else the default of mamba_ssm's module. Used in core/trunk only; one object per load.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/trunk/loading.hpp"

namespace exphil::core {

// A config.json: of the folder of the file; nothing where there is none. state-spaces/mamba has the options
// of the mixer in ssm_cfg.
class ModelConfig {
 public:
  explicit ModelConfig(const std::string& file);
  // Of the first of the names that it has: text of a number, a boolean or a string.
  std::optional<std::string> text(const std::vector<std::string>& names) const;
  // One of a pair.
  std::optional<std::string> text_of_pair(const std::vector<std::string>& names, std::size_t index) const;

 private:
  const nlohmann::json* find(const std::string& name) const;
  std::optional<std::string> text_of(const nlohmann::json& value, const std::string& name) const;
  [[noreturn]] void wrong(const std::string& name) const;
  std::string path_;
  std::shared_ptr<const nlohmann::json> all_;
};

// Every read throws invalid_checkpoint where a source has a value of another kind, and invalid_argument where
// the option contradicts the file.
class StatedSettings {
 public:
  // Both outlive this. policy: "a Mamba-2 policy".
  StatedSettings(const Checkpoint& file, const PolicyLoadOptions& options, std::string policy)
      : file_(file), options_(options), config_(file.path()), policy_(std::move(policy)) {}

  // names: in the metadata, the first alone or after "exphil_native."; and in the config. The first is that
  // of the option, in lower case.
  using Names = std::vector<std::string>;
  std::optional<std::int64_t> count(const Names& names);
  std::optional<bool> boolean(const Names& names);
  std::optional<float> number(const Names& names);
  // The first of the names is its own; the others have it as one of a pair.
  std::optional<float> number_of_pair(const Names& names, std::size_t index);
  // Of the trunk's norms: by the call, the metadata or the config.
  float norm_epsilon();

  // The last of the sources that something was taken from: "metadata", "config", "options" or "defaults".
  const char* from() const;
  // Nothing said what this setting is.
  void by_default() { note(Source::defaults); }

  // Throws where the file states another mixer, an MLP between its mixers, or LayerNorms.
  void refuse_others(const std::vector<std::string>& mixers) const;
  // Throws invalid_argument for an option of the call that is none of these.
  void require_options(const std::vector<std::string>& known) const;

 private:
  enum class Source { metadata, config, options, defaults };
  void note(Source source) {
    if (source > source_) source_ = source;
  }
  std::optional<std::string> metadata(const std::string& name) const;
  const TrunkOption* option(const std::string& name) const;
  template <class T, class Parse, class Given>
  std::optional<T> agreed(const std::string& name, const std::string& shown,
                          const std::optional<std::string>& configured, const Parse& parse,
                          const Given& given);

  const Checkpoint& file_;
  const PolicyLoadOptions& options_;
  const ModelConfig config_;
  const std::string policy_;
  Source source_ = Source::metadata;
};

// A number without a limit has no value in a config's facts.
Fact limit_fact(float limit);

}  // namespace exphil::core
