#include "core/trunk/mamba1/edifice_options.hpp"

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "core/error.hpp"

namespace exphil::core::mamba1 {

namespace {

constexpr float kDtMin = 0.001f, kDtMax = 0.1f;
constexpr std::int64_t kDefaultChunk = 32;
constexpr std::int64_t kMaxWindow = std::int64_t{1} << 20;

template <class... Parts>
[[noreturn]] void bad(const Parts&... parts) {
  fail(ErrorKind::invalid_checkpoint, "path", parts...);
}

std::int64_t number(const std::string& text, const std::string& name) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '\0' || value < 0 || errno == ERANGE) {
    bad("the file's ", name, " is ", quote(text), ", not a count below 2^63");
  }
  return value;
}

// The file's value, else the option's; a contradiction is an invalid argument.
template <class T>
std::optional<T> agree(const std::optional<T>& file, const std::optional<T>& option, const char* name) {
  if (file && option && *file != *option) {
    fail(ErrorKind::invalid_argument, name, name, " contradicts the file, which says otherwise");
  }
  return file ? file : option;
}

// Layers are numbered from 1.
constexpr std::pair<const char*, const char*> kArchitectures[] = {{"mamba_ssd_block_", "mamba_ssd"},
                                                                  {"mamba_block_", "mamba"},
                                                                  {"gru_1", "gru"},
                                                                  {"lstm_1", "lstm"},
                                                                  {"min_gru_1", "min_gru"},
                                                                  {"min_lstm_1", "min_lstm"},
                                                                  {"gated_delta_net_1", "gated_deltanet"}};

}  // namespace

bool has_prefix(const TensorMap& tensors, const std::string& prefix) {
  const auto next = tensors.lower_bound(prefix);
  return next != tensors.end() && next->first.compare(0, prefix.size(), prefix) == 0;
}

const char* architecture_by_names(const TensorMap& tensors) {
  for (const auto& [prefix, name] : kArchitectures) {
    if (has_prefix(tensors, prefix)) return name;
  }
  return nullptr;
}

std::optional<std::string> EdificeOptions::option(const std::string& name) const {
  if (!file_.build()) return metadata(name);
  const auto& [arch, values, others] = *file_.build();
  if (const auto other = others.find(name); other != others.end()) {
    bad("the file's ", name, " is ", other->second, ", neither a number nor a name");
  }
  const auto found = values.find(name);
  if (found == values.end() || found->second == "nil") return std::nullopt;
  return found->second;
}

std::optional<std::int64_t> EdificeOptions::count(const std::string& name) const {
  const std::optional<std::string> text = option(name);
  if (!text) return std::nullopt;
  return number(*text, name);
}

bool EdificeOptions::is_policy() const {
  return file_.build() && file_.build()->arch == "exphil_policy";
}

std::optional<Dialect> EdificeOptions::dialect() const {
  if (!file_.build()) {
    const std::optional<std::string> name = metadata("dialect");
    if (!name) return require_mamba_by_names(), std::nullopt;
    Dialect dialect = Dialect::state_spaces;
    if (!parse_dialect(*name, &dialect)) bad("the metadata names the unknown dialect ", quote(*name));
    return dialect;
  }
  const bool policy = is_policy();
  const std::string kind = policy ? option("backbone").value_or("nil") : file_.build()->arch;
  if (kind == "mamba") return Dialect::edifice_mamba;
  if (kind == "mamba_ssd" || (policy && kind == "mamba_2")) return Dialect::edifice_mamba_ssd;
  bad(file_.name(), " has the ", policy ? "backbone " : "architecture ", quote(kind),
      ", which is not read; read are ", policy ? "mamba, mamba_2 and mamba_ssd" : "mamba and mamba_ssd",
      " (others use the same names of tensors with other maths)");
}

// Throws where no dialect could fit the tensors.
void EdificeOptions::require_mamba_by_names() const {
  const TensorMap& tensors = file_.tensors();
  if (has_prefix(tensors, "mamba_")) return;
  const char* const shown = architecture_by_names(tensors);
  const std::string path = file_.name();
  if (shown != nullptr) {
    bad(path, " has the architecture ", shown, ", as the names of its tensors show, which is not read;",
        " read are mamba and mamba_ssd");
  }
  bad(path, " has no tensor of an architecture that is read: of mamba (mamba_block_1_...) or mamba_ssd ",
      "(mamba_ssd_block_1_...)");
}

void EdificeOptions::ask_for_dialect() const {
  const bool ssd = has_prefix(file_.tensors(), "mamba_ssd_block_");
  fail(ErrorKind::invalid_argument, ":dialect", file_.name(),
       " does not say which architecture of Edifice it is. The names of its tensors, ",
       ssd ? "mamba_ssd_block_1_..., are those of mamba_ssd: pass dialect: :edifice_mamba_ssd"
           : "mamba_block_1_..., are those of mamba and of others: pass dialect: :edifice_mamba",
       " if it is that");
}

std::optional<std::string> EdificeOptions::metadata(const std::string& name) const {
  const auto found = file_.metadata().find(kMetadataPrefix + name);
  if (found == file_.metadata().end()) return std::nullopt;
  return found->second;
}

Spec EdificeOptions::spec(const PolicyLoadOptions& load) const {
  const Options options = read_options(load);
  const std::optional<Dialect> named = agree(dialect(), options.dialect, ":dialect");
  if (!named) ask_for_dialect();
  if (*named == Dialect::state_spaces) {
    fail(ErrorKind::invalid_argument, ":dialect",
         ":dialect is state_spaces, but the tensors have Edifice's names");
  }
  Spec result;
  result.dialect = *named;
  result.norm = NormKind::layer;
  result.final_norm = false;
  result.dt_min = kDtMin, result.dt_max = kDtMax;
  const std::optional<std::string> dt = option("dt");
  std::optional<InputDt> file_dt;
  if (!file_.build() && dt && *dt != "mean" && *dt != "per_channel") bad("the metadata's dt is ", quote(*dt));
  if (!file_.build() && dt) file_dt = *dt == "per_channel" ? InputDt::per_channel : InputDt::mean;
  result.input_dt = agree(file_dt, options.input_dt, ":dt").value_or(InputDt::mean);
  const bool ssd = result.dialect == Dialect::edifice_mamba_ssd;
  if (ssd && result.input_dt != InputDt::mean) {
    fail(ErrorKind::invalid_argument, ":dt", ":dt is :mean for :edifice_mamba_ssd, always");
  }
  result.window = agree(count("window_size"), load.window, ":window").value_or(0);
  if (result.window > kMaxWindow) bad("the window is ", result.window, " frames; the limit is ", kMaxWindow);
  if (!ssd && options.chunk_size) {
    fail(ErrorKind::invalid_argument, ":chunk_size", ":chunk_size applies to :edifice_mamba_ssd only");
  }
  // At play ExPhil builds :mamba_2 with the default, whatever chunk size it was trained with.
  const bool fixed_chunk = is_policy() && option("backbone") == "mamba_2";
  const std::optional<std::int64_t> chunk = fixed_chunk ? std::nullopt : count("chunk_size");
  if (ssd) result.chunk_size = agree(chunk, options.chunk_size, ":chunk_size").value_or(kDefaultChunk);
  return result;
}

}  // namespace exphil::core::mamba1
