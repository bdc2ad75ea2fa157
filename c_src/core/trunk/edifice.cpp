#include "core/trunk/edifice.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/policy/exphil_heads.hpp"

namespace exphil::core {

namespace {

// Before the names that mix exphil.convert writes into the metadata.
constexpr const char* kMetadataPrefix = "exphil_native.";

// Of layers by the architecture, which are numbered from 1. Others have the names of mamba too.
constexpr std::pair<const char*, const char*> kArchitectures[] = {{"mamba_ssd_block_", "mamba_ssd"},
                                                                  {"mamba_block_", "mamba"},
                                                                  {"gru_1", "gru"},
                                                                  {"lstm_1", "lstm"},
                                                                  {"min_gru_1", "min_gru"},
                                                                  {"min_lstm_1", "min_lstm"},
                                                                  {"gated_delta_net_1", "gated_deltanet"},
                                                                  {"delta_net_1_", "deltanet"},
                                                                  {"layer_1_attn_", "attention"},
                                                                  {"ltc_layer_1_", "liquid"},
                                                                  {"ttt_1_", "ttt"}};
// Most others call their first layer so: rwkv_block_1_norm, xlstm_block_1_ff.
constexpr const char* kFirstBlock = "_block_1_";
constexpr std::size_t kLongestArchitecture = 32;

constexpr std::int64_t kMaxWindow = std::int64_t{1} << 20;

// Before the numbers of dropout layers: Edifice's GRU and LSTM have the second, the others the first.
constexpr const char* kDropouts[] = {"dropout_", "recurrent_dropout_"};

std::string architecture_by_names(const TensorMap& tensors) {
  for (const auto& [prefix, name] : kArchitectures) {
    if (has_prefix(tensors, prefix)) return name;
  }
  for (const auto& item : tensors) {
    const std::string name = item.first.substr(0, std::min(item.first.find(kFirstBlock), item.first.size()));
    const bool is_word = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
    if (name.size() < item.first.size() && name.size() <= kLongestArchitecture && is_word) return name;
  }
  return "";
}

bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

// The random state of a dropout layer, which Axon saves where it trained: nothing to an answer.
bool is_dropout_key(const std::string& name, const TensorView& view) {
  return std::any_of(std::begin(kDropouts), std::end(kDropouts),
                     [&](const char* layer) { return starts_with(name, layer); }) &&
         ends_with(name, ".key") && view.dtype == Dtype::u32 && view.shape == Shape{2};
}

// "a, b and c"
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return text;
}

}  // namespace

std::vector<OutputGroup> groups_of(const std::vector<HeadSize>& heads) {
  std::vector<OutputGroup> groups;
  for (const HeadSize& head : heads) {
    const std::int64_t first = groups.empty() ? 0 : groups.back().first + groups.back().count;
    groups.push_back({head.name, first, head.count, has_separate_events(head.name)});
  }
  return groups;
}

std::string value_text(std::int64_t value) {
  return std::to_string(value);
}

// The shortest text of it, so that two values never look alike.
std::string value_text(float value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

std::string value_text(bool value) {
  return value ? "true" : "false";
}

void EdificeParameters::add(const std::string& name, const Shape& shape, const char* axes, WeightId weight,
                            std::int64_t first) {
  if (weight == kNone) return;
  all.push_back({name, shape, axes, weight, static_cast<std::size_t>(first)});
  all.back().transposed = shape.rank() > 1;
}

void EdificeParameters::add_heads(const std::vector<HeadSize>& heads, std::int64_t d_model,
                                  const NetworkBuilder::Head& ids) {
  std::int64_t width = 0, hidden_at = 0, out_at = 0;
  for (const HeadSize& head : heads) width += head.width;
  for (const HeadSize& head : heads) {
    const std::string hidden = head.name + "_hidden.", logits = head.name + "_logits.";
    add(hidden + "kernel", {d_model, head.width}, "{d_model, width}", ids.hidden, hidden_at * d_model);
    add(hidden + "bias", {head.width}, "{width}", ids.hidden_bias, hidden_at);
    add(logits + "kernel", {head.width, head.count}, "{width, outputs}", ids.head,
        out_at * width + hidden_at);
    all.back().columns = static_cast<std::size_t>(head.width);
    all.back().stride = static_cast<std::size_t>(width);
    add(logits + "bias", {head.count}, "{outputs}", ids.head_bias, out_at);
    hidden_at += head.width, out_at += head.count;
  }
}

void EdificeParameters::add_outputs(const Span& in, const std::vector<HeadSize>& heads, std::int64_t d_output,
                                    NetworkBuilder* builder) {
  std::int64_t width = 0, outputs = 0;
  for (const HeadSize& head : heads) width += head.width, outputs += head.count;
  const bool linear = heads.empty() && d_output > 0;
  if (heads.empty()) outputs = linear ? d_output : in.size;
  const NetworkBuilder::Head made = builder->head(in, width, outputs, linear);
  if (!linear) return add_heads(heads, in.size, made);
  add("head.kernel", {in.size, outputs}, "{units, outputs}", made.head);
  add("head.bias", {outputs}, "{outputs}", made.head_bias);
}

bool has_prefix(const TensorMap& tensors, const std::string& prefix) {
  const auto next = tensors.lower_bound(prefix);
  return next != tensors.end() && starts_with(next->first, prefix);
}

std::int64_t linear_outputs(const CheckpointReader& reader, const TensorMap& tensors,
                            const std::vector<HeadSize>& heads) {
  if (!heads.empty() || !has_prefix(tensors, "head.")) return 0;
  const std::int64_t outputs = reader.shape("head.kernel", 2, "{units, outputs}")[1];
  require_limit(outputs, kMaxDim, "d_output", "head.kernel");
  return outputs;
}

bool has_edifices_names(const Checkpoint& file) {
  return file.format() != Checkpoint::Format::safetensors || !architecture_by_names(file.tensors()).empty() ||
         has_prefix(file.tensors(), "input_projection.") ||
         file.metadata().count(std::string(kMetadataPrefix) + "dialect") != 0;
}

std::optional<std::string> EdificeFile::option(const std::string& name) const {
  if (!has_build()) {
    const auto found = file_.metadata().find(kMetadataPrefix + name);
    return found == file_.metadata().end() ? std::nullopt : std::optional<std::string>(found->second);
  }
  const auto& [arch, values, others] = *file_.build();
  if (const auto other = others.find(name); other != others.end()) {
    bad_checkpoint("the file's ", name, " is ", other->second, ", neither a number nor a name");
  }
  const auto found = values.find(name);
  if (found == values.end() || found->second == "nil") return std::nullopt;
  return found->second;
}

std::optional<std::int64_t> EdificeFile::count(const std::string& name) const {
  const std::optional<std::string> text = option(name);
  if (!text) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text->c_str(), &end, 10);
  if (end == text->c_str() || *end != '\0' || value < 0 || errno == ERANGE) {
    bad_checkpoint("the file's ", name, " is ", quote(*text), ", not a count below 2^63");
  }
  return value;
}

bool EdificeFile::is_policy() const {
  return has_build() && file_.build()->arch == "exphil_policy";
}

std::string EdificeFile::architecture() const {
  if (is_policy()) return option("backbone").value_or("nil");
  return has_build() ? file_.build()->arch : architecture_by_names(file_.tensors());
}

void EdificeFile::refuse(const std::string& architecture, const std::vector<std::string>& read) const {
  const std::string path = file_.name(), names = listed(read);
  if (has_build()) {
    bad_checkpoint(path, " has the ", is_policy() ? "backbone " : "architecture ", quote(architecture),
                   ", which is not read; read are ", names,
                   " (others use the same names of tensors with other maths)");
  }
  if (architecture.empty()) {
    bad_checkpoint(path, " has no tensor of an architecture that is read; read are ", names);
  }
  bad_checkpoint(path, " has the architecture ", architecture,
                 ", as the names of its tensors show, which is not read; read are ", names);
}

TensorMap EdificeFile::relevant() const {
  if (is_policy() && option("temporal") != "true") {
    bad_checkpoint("the policy has temporal: false: it reads single frames with dense layers");
  }
  TensorMap kept;
  for (const auto& [name, view] : file_.tensors()) {
    if (starts_with(name, "action_emb_")) {
      bad_checkpoint("tensor ", quote(name), " belongs to ExPhil's learned embeddings, which are not read");
    }
    if (!is_dropout_key(name, view)) kept.emplace(name, view);
  }
  return kept;
}

std::vector<HeadSize> EdificeFile::heads(const CheckpointReader& reader, const TensorMap& tensors) const {
  const bool any =
      is_policy() || std::any_of(std::begin(kExphilHeads), std::end(kExphilHeads), [&](const char* head) {
        return has_prefix(tensors, std::string(head) + "_hidden.") ||
               has_prefix(tensors, std::string(head) + "_logits.");
      });
  std::vector<HeadSize> all;
  for (const std::string name : kExphilHeads) {
    if (!any) break;
    const std::string hidden = name + "_hidden.kernel", logits = name + "_logits.kernel";
    all.push_back({name, reader.shape(hidden, 2, "{d_model, width}")[1],
                   reader.shape(logits, 2, "{width, outputs}")[1]});
    require_limit(all.back().width, kMaxDim, "the width of a head", hidden);
    require_limit(all.back().count, kMaxDim, "the outputs of a head", logits);
  }
  return all;
}

std::int64_t EdificeFile::window(const PolicyLoadOptions& options) const {
  const std::int64_t frames = agree(count("window_size"), options.window, ":window").value_or(0);
  if (frames > kMaxWindow) {
    bad_checkpoint("the window is ", frames, " frames; the limit is ", kMaxWindow);
  }
  return frames;
}

void EdificeFile::compare(const char* name, std::int64_t size, std::int64_t added) const {
  const std::optional<std::int64_t> stated = has_build() ? count(name) : std::nullopt;
  if (stated && *stated + added != size) {
    bad_checkpoint("the file's ", name, " is ", *stated, ", but its tensors have ", size - added);
  }
}

void EdificeFile::compare_ends(std::int64_t d_input, const std::vector<HeadSize>& heads) const {
  for (const char* alias : {"embed_size", "embed_dim", "obs_size", "input_dim", "input_size"}) {
    compare(alias, d_input);
  }
  for (const HeadSize& head : heads) {
    if (head.name == "shoulder") compare("shoulder_buckets", head.count, 1);
    if (head.name != "shoulder" && head.name != "buttons") compare("axis_buckets", head.count, 1);
  }
}

}  // namespace exphil::core
