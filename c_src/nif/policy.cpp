// Policies: loading onto a backend, their description, and the stateless window.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "core/checkpoint/checkpoint.hpp"
#include "core/policy/exphil_heads.hpp"
#include "core/trunk/initial.hpp"
#include "core/trunk/load.hpp"
#include "nif/frames.hpp"
#include "nif/functions.hpp"
#include "nif/policy_options.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

// The names of ExPhil's heads are always atoms. Another name is an atom that the VM has already, or else a
// binary: a file must not make atoms, which are never freed.
Term encode_name(Call& call, const std::string& name) {
  const auto* const end = std::end(core::kExphilHeads);
  if (std::find(std::begin(core::kExphilHeads), end, name) != end) return encode_atom(call, name.c_str());
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

// nil where the model does not gather. Of all its devices.
Term encode_gathered(Call& call, const std::vector<const LoadedPolicy*>& devices) {
  if (!devices[0]->plan.gathers) return encode_atom(call, "nil");
  core::GatherCounts counts;
  for (const LoadedPolicy* device : devices) {
    if (!device->gatherer) continue;  // not loaded yet
    const core::GatherCounts own = device->gatherer->counts();
    counts.frames += own.frames, counts.launches += own.launches;
    counts.most = std::max(counts.most, own.most);
  }
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

}  // namespace

Term load_policy(Call& call, BackendChoice choice, DeviceChoice devices, Term from, LoadRequest request) {
  LoadPlan plan;
  plan.options.max_sessions = request.max_sessions;
  plan.gathers = request.gather;
  const auto weights = weights_from(call, from, request.options);
  plan.backends = open_backends(choice, devices);
  return encode_handle(call, PolicyHandle(LoadedPolicy::load(plan, weights)));
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
  // Several devices load them here, so that an error of any of them is one of this call.
  const bool several = loaded->plan.backends.size() > 1;
  handle.replace(several ? LoadedPolicy::load(loaded->plan, weights) : loaded->with(weights, nullptr));
  return enif_make_uint64(call.env(), weights->fingerprint);
}

Term policy_info(Call& call, PolicyHandle& handle) {
  std::shared_ptr<LoadedPolicy> loaded = handle.found();
  if (loaded->training) loaded = handle.loaded();  // the fingerprint of what was trained
  const core::PolicyConfig& config = loaded->config();
  const std::uint64_t fingerprint =
      loaded->policy ? loaded->policy->fingerprint() : loaded->weights->fingerprint;
  const auto integer = [&](std::int64_t value) { return encode_integer(call, value); };
  const std::vector<const LoadedPolicy*> all = loaded->on_devices();
  std::vector<Term> devices;
  std::size_t resident_bytes = 0;
  for (const LoadedPolicy* device : all) {
    devices.push_back(encode_device(call, device->device));
    resident_bytes += device->resident_bytes();
  }
  return encode(call, Map{{{"d_input"}, integer(config.d_input)},
                          {{"d_output"}, integer(config.d_output)},
                          {{"n_layer"}, integer(config.n_layer())},
                          {{"window"}, integer(config.window)},
                          {{"trunk"}, encode_atom(call, config.trunk.c_str())},
                          {{"facts"}, encode_facts(call, config)},
                          {{"constants"}, encode_constants(call, config)},
                          {{"fingerprint"}, enif_make_uint64(call.env(), fingerprint)},
                          {{"resident_bytes"}, integer(static_cast<std::int64_t>(resident_bytes))},
                          {{"precision"}, encode_atom(call, core::precision_name(config.precision))},
                          {{"states"}, encode_atom(call, core::precision_name(config.states))},
                          {{"groups"}, encode_groups(call, config)},
                          {{"gathered"}, encode_gathered(call, all)},
                          {{"device"}, devices[0]},
                          {{"devices"}, encode_list(call, devices)}});
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
  loaded->window(windows.data, count, seq, out.floats());
  return windows.answer(call, {count, config.d_output}, out.term());
}

Term new_session(Call& call, PolicyHandle& handle, SessionRequest request) {
  const std::shared_ptr<LoadedPolicy> loaded = handle.loaded();
  if (!request.rule.empty()) core::require_controller(loaded->policy->config(), request.rule.c_str());
  SessionHandle made = make_session(loaded, request.options, request.device);
  const Term device = encode_integer(call, made.loaded->device.index);
  return enif_make_tuple2(call.env(), encode_handle(call, std::move(made)), device);
}

}  // namespace exphil::nif
