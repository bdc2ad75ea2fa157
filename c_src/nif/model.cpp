// Policies: loading one onto a backend, what it is, and the stateless window.
#include <memory>

#include "core/mamba_config.hpp"
#include "core/safetensors.hpp"
#include "nif/frames.hpp"
#include "nif/functions.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

constexpr std::int64_t kMaxSessions = std::int64_t{1} << 24;

}  // namespace

Term load_model(Call& call, BackendChoice choice, std::int64_t device, std::string path,
                std::tuple<std::int64_t, double, bool> options) {
  core::Backend& backend = open_backend(choice, device);
  core::MambaLoadOptions load_options;
  core::ModelOptions model_options;
  if (std::get<0>(options) < 1 || std::get<0>(options) > kMaxSessions) {
    fail(ErrorKind::invalid_argument, ":max_sessions", ":max_sessions must be from 1 to ", kMaxSessions,
         ", got ", std::get<0>(options));
  }
  model_options.max_sessions = std::get<0>(options);
  model_options.device = static_cast<int>(device);
  load_options.norm_epsilon = static_cast<float>(std::get<1>(options));
  load_options.check_finite = std::get<2>(options);

  const core::Safetensors file = core::Safetensors::open(path);
  auto loaded = std::make_shared<LoadedModel>();
  loaded->backend = &backend;
  loaded->device = backend.describe();
  loaded->model = backend.load(core::load_weights(file, load_options), model_options);
  return encode_handle(call, ModelHandle{std::move(loaded)});
}

Term model_info(Call& call, ModelHandle& handle) {
  const LoadedModel& loaded = *handle.loaded;
  const core::MambaConfig& config = loaded.model->config();
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
                {{"fingerprint"}, enif_make_uint64(call.env(), loaded.model->fingerprint())},
                {{"resident_bytes"}, integer(static_cast<std::int64_t>(loaded.model->resident_bytes()))},

                {{"device"}, encode_device(call, loaded.device)}});
}

Term window(Call& call, ModelHandle& handle, core::TensorView view) {
  const core::MambaConfig& config = handle.loaded->model->config();
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
  handle.loaded->model->window(windows.data, count, seq, out.floats());
  return windows.answer(call, {count, config.d_output}, out.term());
}

Term new_session(Call& call, ModelHandle& handle) {
  auto session = std::make_shared<core::Session>(handle.loaded->model);
  return encode_handle(call, SessionHandle{handle.loaded, std::move(session)});
}

}  // namespace exphil::nif
