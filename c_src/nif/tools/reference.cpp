// See functions.hpp.
#include <chrono>
#include <vector>

#include "core/associative/reference.hpp"
#include "core/half.hpp"
#include "core/names.hpp"
#include "core/policy/reference.hpp"
#include "core/scan/reference.hpp"
#include "core/trunk/load.hpp"
#include "core/work/parallel.hpp"
#include "nif/tools/functions.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

// A draw for each element, uniform in [0, 1), whatever the split of the work over threads (splitmix64).
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
  NewBinary binary(static_cast<std::size_t>(core::checked_multiply(count, size, "count")));
  const auto min = static_cast<float>(std::get<0>(range)), max = static_cast<float>(std::get<1>(range));
  core::parallel_for(count, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      store(dtype, binary.data(), i, min + (max - min) * uniform(static_cast<std::uint64_t>(seed), i));
    }
  });
  return binary.term(call);
}

Term reference_scan(Call& call, core::TensorView x, core::TensorView dt, core::TensorView a,
                    core::TensorView b, core::TensorView c, MaybeTensor initial_state, ScanRequest request) {
  const core::ScanInputs inputs{x, dt, a, b, c, {}, {}, {}, initial_state};
  core::ScanCall scan = core::validate_scan(inputs, request.options);
  if (scan.shape.options.direction == core::Direction::both) {
    fail(ErrorKind::unsupported, ":direction", "the scalar loop runs in one direction");
  }
  NewBinary y(x.bytes);
  scan.set(core::ScanOperand::y, y.data());
  const Term nanoseconds = timed(call, [&] { core::scan_reference_f32(scan); });
  return enif_make_tuple2(call.env(), encode_tensor(call, x.dtype, x.shape, y.term(call)), nanoseconds);
}

Term reference_associative(Call& call, Atom op, MaybeTensor a, core::TensorView x, std::int64_t axis) {
  core::AssociativeOptions options;
  options.axis = axis;
  core::AssociativeProblem problem =
      core::validate_associative(core::associative_op_named(op.name, "op"), {x, a}, options);
  float_type(Atom{core::dtype_name(problem.dtype)});
  const std::vector<float> x_values = widened(problem.dtype, problem.x, problem.elements());
  std::vector<float> a_values;
  if (problem.a != nullptr) a_values = widened(problem.dtype, problem.a, problem.elements());
  problem.dtype = core::Dtype::f32;
  problem.x = x_values.data();
  problem.a = problem.a != nullptr ? a_values.data() : nullptr;

  NewBinary y(problem.bytes());
  const Term nanoseconds = timed(call, [&] { core::associative_plain_loop(problem, false, y.floats()); });
  return enif_make_tuple2(call.env(), encode_tensor(call, core::Dtype::f32, x.shape, y.term(call)),
                          nanoseconds);
}

Term reference_policy(Call& call, std::string path, core::TensorView frames) {
  const auto weights = core::load_weights(core::Checkpoint::open(path), {});
  const core::PolicyConfig& config = weights->config;
  if (frames.dtype != core::Dtype::f32 || frames.shape.rank() != 2 || frames.shape[1] != config.d_input) {
    fail(ErrorKind::invalid_argument, "frames", "frames must be f32 of the shape {count, ", config.d_input,
         "}, got ", frames.shape.to_string());
  }
  const std::int64_t count = frames.shape[0];
  core::PolicyReferenceState state(config);
  std::vector<double> out(static_cast<std::size_t>(config.d_output));
  const std::int64_t floats = core::checked_multiply(count, config.d_output, "frames");
  NewBinary outs(static_cast<std::size_t>(core::checked_multiply(floats, 4, "frames")));
  const auto* obs = static_cast<const float*>(frames.data);
  const Term nanoseconds = timed(call, [&] {
    for (std::int64_t t = 0; t < count; ++t) {
      core::policy_reference_step(*weights, state, obs + t * config.d_input, out.data());
      for (std::int64_t i = 0; i < config.d_output; ++i) {
        outs.floats()[t * config.d_output + i] = static_cast<float>(out[static_cast<std::size_t>(i)]);
      }
    }
  });
  return enif_make_tuple2(call.env(),
                          encode_tensor(call, core::Dtype::f32, {count, config.d_output}, outs.term(call)),
                          nanoseconds);
}

}  // namespace exphil::nif
