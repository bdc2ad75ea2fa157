// What `mix exphil.bench` needs and Elixir cannot do in reasonable time: fresh inputs, the scalar references
// with their own clock, and the speed of copies. Nothing else calls these.
#include <chrono>
#include <vector>

#include "core/associative/reference.hpp"
#include "core/half.hpp"
#include "core/parallel.hpp"
#include "core/policy/reference.hpp"
#include "core/scan/reference.hpp"
#include "nif/functions.hpp"
#include "nif/scan_request.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

// The element's own draw, uniform in [0, 1), so that the threads' shares do not matter (splitmix64).
float uniform(std::uint64_t seed, std::int64_t index) {
  std::uint64_t z = seed + (static_cast<std::uint64_t>(index) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>((z ^ (z >> 31)) >> 40) * 0x1p-24f;
}

void store(core::Dtype dtype, unsigned char* data, std::int64_t i, float value) {
  switch (dtype) {
    case core::Dtype::f16:
      reinterpret_cast<std::uint16_t*>(data)[i] = core::f32_to_f16(value);
      break;
    case core::Dtype::bf16:
      reinterpret_cast<std::uint16_t*>(data)[i] = core::f32_to_bf16(value);
      break;
    default:
      reinterpret_cast<float*>(data)[i] = value;
  }
}

float load(core::Dtype dtype, const void* data, std::int64_t i) {
  switch (dtype) {
    case core::Dtype::f16:
      return core::f16_to_f32(static_cast<const std::uint16_t*>(data)[i]);
    case core::Dtype::bf16:
      return core::bf16_to_f32(static_cast<const std::uint16_t*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

core::Dtype float_type(const Atom& type) {
  core::Dtype dtype = core::Dtype::f32;
  const bool known = core::parse_dtype(type.name, &dtype);
  if (!known || (dtype != core::Dtype::f32 && dtype != core::Dtype::f16 && dtype != core::Dtype::bf16)) {
    fail(ErrorKind::invalid_argument, "type", "type must be f32, f16 or bf16, got ", type.name);
  }
  return dtype;
}

template <class Work>
Term timed(Call& call, const Work& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  const auto took = std::chrono::steady_clock::now() - began;
  return encode_integer(call, std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
}

unsigned char* new_binary(Call& call, std::size_t bytes, Term* term) {
  unsigned char* data = enif_make_new_binary(call.env(), bytes, term);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

std::vector<float> widened(core::Dtype dtype, const void* data, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = load(dtype, data, i);
  return values;
}

}  // namespace

Term random_binary(Call& call, Atom type, std::int64_t count, std::int64_t seed,
                   std::tuple<double, double> range) {
  const core::Dtype dtype = float_type(type);
  if (count < 0) fail(ErrorKind::invalid_argument, "count", "count must not be negative, got ", count);
  const auto size = static_cast<std::int64_t>(core::dtype_size(dtype));
  Term term = 0;
  unsigned char* data =
      new_binary(call, static_cast<std::size_t>(core::checked_multiply(count, size, "count")), &term);
  const auto min = static_cast<float>(std::get<0>(range)), max = static_cast<float>(std::get<1>(range));
  core::parallel_for(count, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      store(dtype, data, i, min + (max - min) * uniform(static_cast<std::uint64_t>(seed), i));
    }
  });
  return term;
}

// {y, nanoseconds}, y in the type of x.
Term reference_scan(Call& call, core::TensorView x, core::TensorView dt, core::TensorView a,
                    core::TensorView b, core::TensorView c, MaybeTensor initial_state, ScanRequest request) {
  const core::ScanInputs inputs{x, dt, a, b, c, {}, {}, {}, initial_state};
  const core::ScanProblem problem = core::validate_scan(inputs, request.options);
  if (problem.options.direction == core::Direction::both) {
    fail(ErrorKind::unsupported, ":direction", "the scalar loop runs in one direction");
  }
  Term y = 0;
  core::ScanOutputs outputs;
  outputs.y = new_binary(call, x.bytes, &y);
  const Term nanoseconds = timed(call, [&] { core::scan_reference_f32(problem, outputs); });
  return enif_make_tuple2(call.env(), encode_tensor(call, problem.dtype, x.shape, y), nanoseconds);
}

// {y, nanoseconds}; inputs of any type are widened first, and y is f32.
Term reference_associative(Call& call, Atom op, MaybeTensor a, core::TensorView x, std::int64_t axis) {
  core::AssociativeOptions options;
  options.axis = axis;
  core::AssociativeProblem problem = core::validate_associative(associative_op_named(op), {x, a}, options);
  float_type(Atom{core::dtype_name(problem.dtype)});
  const std::vector<float> x_values = widened(problem.dtype, problem.x, problem.elements());
  std::vector<float> a_values;
  if (problem.a != nullptr) a_values = widened(problem.dtype, problem.a, problem.elements());
  problem.dtype = core::Dtype::f32;
  problem.x = x_values.data();
  problem.a = problem.a != nullptr ? a_values.data() : nullptr;

  Term y = 0;
  auto* values = reinterpret_cast<float*>(new_binary(call, problem.bytes(), &y));
  const Term nanoseconds = timed(call, [&] { core::associative_plain_loop(problem, false, values); });
  return enif_make_tuple2(call.env(), encode_tensor(call, core::Dtype::f32, x.shape, y), nanoseconds);
}

// One agent's frames through the scalar policy, which computes in double. frames: f32 {count, d_input};
// {out, nanoseconds} with out f32 {count, d_output}.
Term reference_policy(Call& call, std::string path, core::TensorView frames) {
  const auto weights = core::load_weights(core::Safetensors::open(path), {});
  const core::PolicyConfig& config = weights->config;
  if (frames.dtype != core::Dtype::f32 || frames.shape.rank() != 2 || frames.shape[1] != config.d_input) {
    fail(ErrorKind::invalid_argument, "frames", "frames must be f32 of the shape {count, ", config.d_input,
         "}, got ", frames.shape.to_string());
  }
  const std::int64_t count = frames.shape[0];
  core::PolicyReferenceState state(config);
  std::vector<double> out(static_cast<std::size_t>(config.d_output));
  Term term = 0;
  const std::int64_t floats = core::checked_multiply(count, config.d_output, "frames");
  auto* outs = reinterpret_cast<float*>(
      new_binary(call, static_cast<std::size_t>(core::checked_multiply(floats, 4, "frames")), &term));
  const auto* obs = static_cast<const float*>(frames.data);
  const Term nanoseconds = timed(call, [&] {
    for (std::int64_t t = 0; t < count; ++t) {
      core::policy_reference_step(*weights, state, obs + t * config.d_input, out.data());
      for (std::int64_t i = 0; i < config.d_output; ++i) {
        outs[t * config.d_output + i] = static_cast<float>(out[static_cast<std::size_t>(i)]);
      }
    }
  });
  return enif_make_tuple2(call.env(), encode_tensor(call, core::Dtype::f32, {count, config.d_output}, term),
                          nanoseconds);
}

Term copy_rates(Call& call, BackendChoice choice, std::int64_t device) {
  const core::CopyRates rates = open_backend(choice, device).copy_rates();
  const auto number = [&](double value) { return enif_make_double(call.env(), value); };
  return encode(call, Map{{{"to_device"}, number(rates.to_device)},
                          {{"from_device"}, number(rates.from_device)},
                          {{"memory"}, number(rates.memory)}});
}

}  // namespace exphil::nif
