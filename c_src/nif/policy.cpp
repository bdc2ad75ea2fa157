// Policies: loading onto a backend, their description, and the stateless window.
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "core/checkpoint/checkpoint.hpp"
#include "core/trunk/initial.hpp"
#include "core/trunk/load.hpp"
#include "nif/frames.hpp"
#include "nif/functions.hpp"
#include "nif/policy_options.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

// An atom that the VM has already, or else a binary: a file must not make atoms, which are never freed.
Term encode_name(Call& call, const std::string& name) {
  Term atom = 0;
  return enif_make_existing_atom(call.env(), name.c_str(), &atom, ERL_NIF_LATIN1) != 0 ? atom
                                                                                       : encode(call, name);
}

// [%{name, first, count, binary}] in the order of the outputs.
Term encode_groups(Call& call, const core::PolicyConfig& config) {
  std::vector<Term> groups;
  for (const core::OutputGroup& group : config.groups) {
    groups.push_back(encode(call, Map{{{"name"}, encode_name(call, group.name)},
                                      {{"first"}, encode_integer(call, group.first)},
                                      {{"count"}, encode_integer(call, group.count)},
                                      {{"binary"}, encode_bool(call, group.binary)}}));
  }
  return encode_list(call, groups);
}

// What the trunk tells about itself, as a map whose values are nil, a number, or an atom.
Term encode_facts(Call& call, const core::PolicyConfig& config) {
  Map facts;
  for (const auto& [name, fact] : config.facts) {
    Term value = encode_atom(call, "nil");
    if (const auto* const integer = std::get_if<std::int64_t>(&fact)) value = encode_integer(call, *integer);
    if (const auto* const number = std::get_if<double>(&fact)) value = enif_make_double(call.env(), *number);
    if (const auto* const atom = std::get_if<std::string>(&fact)) value = encode_atom(call, atom->c_str());
    facts.emplace_back(Atom{name}, value);
  }
  return encode(call, facts);
}

// [{name, tensor}]: those that are no parameters.
Term encode_constants(Call& call, const core::PolicyConfig& config) {
  std::vector<Term> constants;
  for (const core::ConstantTensor& c : config.constants) {
    const Term bytes = encode_bytes(call, c.bytes.data(), c.bytes.size());
    constants.push_back(
        enif_make_tuple2(call.env(), encode(call, c.name), encode_tensor(call, c.dtype, c.shape, bytes)));
  }
  return encode_list(call, constants);
}

// nil where the model does not gather.
Term encode_gathered(Call& call, const LoadedPolicy& loaded) {
  if (!loaded.gathers) return encode_atom(call, "nil");
  const core::GatherCounts counts = loaded.gatherer ? loaded.gatherer->counts() : core::GatherCounts{};
  return encode(call, Map{{{"frames"}, encode_integer(call, counts.frames)},
                          {{"launches"}, encode_integer(call, counts.launches)},
                          {{"most"}, encode_integer(call, counts.most)}});
}

core::TensorMap tensors_of(const NamedTensors& given) {
  core::TensorMap tensors;
  for (const auto& [name, view] : given) tensors[name] = view;
  return tensors;
}

// from: a path, or {[{name, tensor}], [{key, text}]}
std::shared_ptr<const core::PolicyWeights> weights_from(Call& call, Term from,
                                                        const core::PolicyLoadOptions& options) {
  if (!enif_is_tuple(call.env(), from)) {
    const auto path = Decoder<std::string>::decode(call, from, "path");
    return core::load_weights(core::Checkpoint::open(path), options);
  }
  using Metadata = std::vector<std::tuple<std::string, std::string>>;
  const auto [given, texts] = Decoder<std::tuple<NamedTensors, Metadata>>::decode(call, from, "weights");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : texts) metadata[key] = text;
  return core::load_weights(tensors_of(given), std::move(metadata), options);
}

std::shared_ptr<LoadedPolicy> load_weights_onto(core::Backend& backend,
                                                std::shared_ptr<const core::PolicyWeights> weights,
                                                const core::PolicyOptions& options, bool gathers) {
  auto loaded = std::make_shared<LoadedPolicy>();
  loaded->backend = &backend;
  loaded->device = backend.describe();
  loaded->options = options;
  loaded->policy = backend.load(weights, options);
  loaded->gathers = gathers;
  if (gathers) loaded->gatherer = std::make_shared<core::Gatherer>(loaded->policy);
  if (weights->config.precision == core::Precision::f32) loaded->weights = std::move(weights);
  return loaded;
}

}  // namespace

const core::PolicyWeights& LoadedPolicy::trainable() const {
  const core::Precision precision = config().precision;
  if (precision != core::Precision::f32) {
    fail(ErrorKind::unsupported, ":precision",
         "the policy was loaded with precision: :", core::precision_name(precision),
         ", and its weights are rounded: load it with precision: :f32 to train it, or to read or replace its",
         " weights");
  }
  return *weights;
}

void LoadedPolicy::grad(const core::PolicySequences& sequences, const float* d_outs,
                        const core::PolicyGradOutputs& outputs) {
  if (training) return training->grad(sequences, d_outs, outputs);
  const auto gradient = [this] {
    const std::lock_guard<std::mutex> lock(making_);
    if (!gradient_) gradient_ = backend->gradient(weights);
    return gradient_;
  }();
  gradient->run(sequences, d_outs, outputs);
}

std::size_t LoadedPolicy::resident_bytes() {
  const std::lock_guard<std::mutex> lock(making_);
  return (policy ? policy->resident_bytes() : 0) + (gradient_ ? gradient_->resident_bytes() : 0);
}

std::shared_ptr<LoadedPolicy> LoadedPolicy::with(std::shared_ptr<const core::PolicyWeights> others,
                                                 std::shared_ptr<core::PolicyTraining> trained) const {
  auto next = std::make_shared<LoadedPolicy>();
  next->training = std::move(trained);
  next->backend = backend, next->device = device, next->options = options;
  next->weights = std::move(others), next->gathers = gathers;
  return next;
}

// Of `training`: as update_policy() with the tensors that a checkpoint would have.
std::shared_ptr<const core::PolicyWeights> LoadedPolicy::weights_to_load() const {
  if (training == nullptr) return weights;
  core::PolicyValues<float> values = core::zeros_of<float>(weights->network());
  training->read(&values, nullptr, nullptr);
  std::vector<std::vector<float>> files;
  core::TensorMap tensors;
  for (const core::PolicyParameter& p : weights->parameters) {
    std::vector<float>& file = files.emplace_back(p.count());
    core::copy_parameter(p, values, file.data());
    tensors[p.name] = {core::Dtype::f32, p.shape, file.data(), p.count() * sizeof(float)};
  }
  return core::replace_weights(*weights, tensors);
}

std::shared_ptr<LoadedPolicy> LoadedPolicy::load() {
  const std::lock_guard<std::mutex> lock(making_);
  if (!loaded_) {
    loaded_ = load_weights_onto(*backend, weights_to_load(), options, gathers);
    loaded_->gradient_ = gradient_;
  }
  return loaded_;
}

Term load_policy(Call& call, BackendChoice choice, std::int64_t device, Term from, LoadRequest request) {
  core::PolicyOptions options;
  options.max_sessions = request.max_sessions;
  options.device = static_cast<int>(device);
  const auto weights = weights_from(call, from, request.options);
  core::Backend& backend = open_backend(choice, device);
  return encode_handle(call, PolicyHandle(load_weights_onto(backend, weights, options, request.gather)));
}

Term initial_weights(Call& call, Atom trunk, Map given, Unsigned seed) {
  core::NamedSizes sizes;
  for (const auto& [name, size] : given) {
    sizes.emplace_back(name.name, Decoder<std::int64_t>::decode(call, size, (":" + name.name).c_str()));
  }
  std::vector<Term> terms;
  for (const core::InitialTensor& tensor : core::initial_weights(trunk.name, sizes, seed.value)) {
    const core::TensorView view = tensor.view();
    NewBinary binary(view.bytes);
    std::memcpy(binary.data(), view.data, view.bytes);
    terms.push_back(enif_make_tuple2(call.env(), encode(call, tensor.name),
                                     encode_tensor(call, view.dtype, view.shape, binary.term(call))));
  }
  return encode_list(call, terms);
}

Term update_policy(Call& call, PolicyHandle& handle, NamedTensors given) {
  const std::shared_ptr<LoadedPolicy> loaded = handle.found();
  const auto weights = core::replace_weights(loaded->trainable(), tensors_of(given));
  handle.replace(loaded->with(weights, nullptr));
  return enif_make_uint64(call.env(), weights->fingerprint);
}

Term policy_info(Call& call, PolicyHandle& handle) {
  std::shared_ptr<LoadedPolicy> loaded = handle.found();
  if (loaded->training) loaded = handle.loaded();  // the fingerprint of what was trained
  const core::PolicyConfig& config = loaded->config();
  const std::uint64_t fingerprint =
      loaded->policy ? loaded->policy->fingerprint() : loaded->weights->fingerprint;
  const auto integer = [&](std::int64_t value) { return encode_integer(call, value); };
  return encode(call, Map{{{"d_input"}, integer(config.d_input)},
                          {{"d_output"}, integer(config.d_output)},
                          {{"n_layer"}, integer(config.n_layer())},
                          {{"window"}, integer(config.window)},
                          {{"trunk"}, encode_atom(call, config.trunk.c_str())},
                          {{"facts"}, encode_facts(call, config)},
                          {{"constants"}, encode_constants(call, config)},
                          {{"fingerprint"}, enif_make_uint64(call.env(), fingerprint)},
                          {{"resident_bytes"}, integer(static_cast<std::int64_t>(loaded->resident_bytes()))},
                          {{"precision"}, encode_atom(call, core::precision_name(config.precision))},
                          {{"groups"}, encode_groups(call, config)},
                          {{"gathered"}, encode_gathered(call, *loaded)},
                          {{"device"}, encode_device(call, loaded->device)}});
}

Term window(Call& call, PolicyHandle& handle, core::TensorView view) {
  const std::shared_ptr<LoadedPolicy> loaded = handle.loaded();
  const core::PolicyConfig& config = loaded->policy->config();
  const Frames windows = frames_of(view, "windows");
  if (windows.shape.rank() != 3 || windows.shape[2] != config.d_input) {
    fail(ErrorKind::invalid_argument, "windows", "windows must have the shape {n, seq, ", config.d_input,
         "}, got ", windows.shape.to_string());
  }
  const std::int64_t count = windows.shape[0], seq = windows.shape[1];
  if (count == 0 || seq == 0) {
    fail(ErrorKind::invalid_argument, "windows", "windows must have at least one window of one frame, got ",
         windows.shape.to_string());
  }
  windows.require(windows.shape, "windows");
  const std::int64_t floats = core::checked_multiply(count, config.d_output, "windows");
  Result out(call, *loaded->backend,
             static_cast<std::size_t>(core::checked_multiply(floats, sizeof(float), "windows")));
  loaded->policy->window(windows.data, count, seq, out.floats());
  return windows.answer(call, {count, config.d_output}, out.term());
}

Term new_session(Call& call, PolicyHandle& handle, SessionRequest request) {
  const std::shared_ptr<LoadedPolicy> loaded = handle.loaded();
  if (!request.rule.empty()) core::require_controller(loaded->policy->config(), request.rule.c_str());
  auto session = std::make_shared<core::Session>(loaded->policy, request.options, loaded->gatherer);
  return encode_handle(call, SessionHandle{loaded, std::move(session)});
}

}  // namespace exphil::nif
