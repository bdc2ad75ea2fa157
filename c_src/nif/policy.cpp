// Policies: loading one onto a backend, what it is, and the stateless window.
#include <memory>

#include "core/checkpoint/safetensors.hpp"
#include "core/policy/config.hpp"
#include "nif/frames.hpp"
#include "nif/functions.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

constexpr std::int64_t kMaxSessions = std::int64_t{1} << 24;

}  // namespace

Term load_policy(Call& call, BackendChoice choice, std::int64_t device, std::string path,
                 std::tuple<std::int64_t, double, bool> options) {
  core::Backend& backend = open_backend(choice, device);
  core::PolicyLoadOptions load_options;
  core::PolicyOptions model_options;
  if (std::get<0>(options) < 1 || std::get<0>(options) > kMaxSessions) {
    fail(ErrorKind::invalid_argument, ":max_sessions", ":max_sessions must be from 1 to ", kMaxSessions,
         ", got ", std::get<0>(options));
  }
  model_options.max_sessions = std::get<0>(options);
  model_options.device = static_cast<int>(device);
  load_options.norm_epsilon = static_cast<float>(std::get<1>(options));
  load_options.check_finite = std::get<2>(options);

  const core::Safetensors file = core::Safetensors::open(path);
  auto loaded = std::make_shared<LoadedPolicy>();
  loaded->backend = &backend;
  loaded->device = backend.describe();
  loaded->policy = backend.load(core::load_weights(file, load_options), model_options);
  return encode_handle(call, PolicyHandle{std::move(loaded)});
}

Term policy_info(Call& call, PolicyHandle& handle) {
  const LoadedPolicy& loaded = *handle.loaded;
  const core::PolicyConfig& config = loaded.policy->config();
  const auto integer = [&](std::int64_t value) { return encode_integer(call, value); };
  return encode(
      call, Map{{{"d_input"}, integer(config.d_input)},
                {{"d_output"}, integer(config.d_output)},
                {{"d_model"}, integer(config.d_model)},
                {{"d_inner"}, integer(config.d_inner)},
                {{"n_layer"}, integer(config.n_layer)},
                {{"d_state"}, integer(config.d_state)},
                {{"d_conv"}, integer(config.d_conv)},
                {{"dt_rank"}, integer(config.dt_rank)},
                {{"norm_epsilon"}, enif_make_double(call.env(), static_cast<double>(config.norm_epsilon))},
                {{"fingerprint"}, enif_make_uint64(call.env(), loaded.policy->fingerprint())},
                {{"resident_bytes"}, integer(static_cast<std::int64_t>(loaded.policy->resident_bytes()))},

                {{"device"}, encode_device(call, loaded.device)}});
}

Term window(Call& call, PolicyHandle& handle, core::TensorView view) {
  const core::PolicyConfig& config = handle.loaded->policy->config();
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
  const std::int64_t floats = core::checked_multiply(count, config.d_output, "windows");
  Result out(call, *handle.loaded->backend,
             static_cast<std::size_t>(core::checked_multiply(floats, sizeof(float), "windows")));
  handle.loaded->policy->window(windows.data, count, seq, out.floats());
  return windows.answer(call, {count, config.d_output}, out.term());
}

Term new_session(Call& call, PolicyHandle& handle) {
  auto session = std::make_shared<core::Session>(handle.loaded->policy);
  return encode_handle(call, SessionHandle{handle.loaded, std::move(session)});
}

}  // namespace exphil::nif
