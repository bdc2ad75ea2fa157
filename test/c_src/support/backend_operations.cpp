// The operations of support/faults.hpp.
#include <cstring>
#include <utility>

#include "core/associative/gradient.hpp"
#include "core/semiseparable/gradient.hpp"
#include "core/session/session.hpp"
#include "support/associative_case.hpp"
#include "support/faults.hpp"
#include "support/policy.hpp"
#include "support/recurrent_case.hpp"
#include "support/scan_grad_case.hpp"
#include "support/semiseparable_case.hpp"
#include "support/ssd_case.hpp"

namespace exphil::test {
namespace {

using core::AssociativeOp;
using core::Backend;
using core::Direction;
using core::Dtype;
using core::ScanOperand;
using Backends = std::shared_ptr<Backend>;
using Results = Operation::Results;

std::vector<std::uint8_t> bytes_for(std::size_t bytes) {
  return std::vector<std::uint8_t>(bytes);
}
template <class T>
std::vector<std::uint8_t> bytes_of(const std::vector<T>& values) {
  std::vector<std::uint8_t> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
float* floats(std::vector<std::uint8_t>& bytes) {
  return reinterpret_cast<float*>(bytes.data());
}

ScanSpec full(std::int64_t batch, std::int64_t seq, std::int64_t dim, std::int64_t state) {
  ScanSpec spec;
  spec.batch = batch, spec.seq = seq, spec.dim = dim, spec.state = state;
  spec.d = spec.z = spec.dt_bias = spec.initial_state = spec.options.dt_softplus = true;
  return spec;
}
ScanSpec with_matrix(ScanSpec spec) {
  spec.full_matrix = true;
  spec.options.discretization = formulas::Discretization::bilinear;
  return spec;
}

// Kernels that are parallel in time are not emulated (cuda/emulated_gpu.hpp).
Operation scan(const Backends& backend, const std::string& name, ScanSpec spec, bool with_states = false) {
  spec.options.algorithm = core::ScanAlgorithm::sequential;
  const auto test = std::make_shared<ScanCase>(spec);
  const core::ScanShape shape = test->call().shape;
  const std::size_t y = static_cast<std::size_t>(shape.y_elements()) * core::dtype_size(shape.dtype);
  const std::size_t state = static_cast<std::size_t>(shape.state_floats()) * sizeof(float);
  const bool both = spec.options.direction == Direction::both;
  Results results = {bytes_for(y), bytes_for(both ? y : state)};
  if (with_states) results.push_back(bytes_for(state * static_cast<std::size_t>(shape.seq)));
  return {name, std::move(results), [=](Results& out) {
            core::ScanCall call = test->call();
            call.set(ScanOperand::y, out[0].data());
            call.set(both ? ScanOperand::y_reverse : ScanOperand::final_state, out[1].data());
            if (with_states) call.set(ScanOperand::states, out[2].data());
            backend->scan(call);
          }};
}

Operation scan_gradient(const Backends& backend, const std::string& name, const ScanSpec& spec) {
  const auto test = std::make_shared<ScanGradCase>(spec);
  const auto gradients = std::make_shared<GradResults>(test->problem());
  Results results;
  for (const auto& [of, bytes] : gradients->bytes()) results.push_back(bytes_for(bytes.size()));
  return {name, std::move(results), [=](Results& out) {
            backend->scan_grad(test->problem(), gradients->outputs());
            std::size_t i = 0;
            for (const auto& [of, bytes] : gradients->bytes()) out[i++].assign(bytes.begin(), bytes.end());
          }};
}

// Both directions.
Operation associative(const Backends& backend, AssociativeOp op, const core::Shape& shape, bool gradient) {
  core::AssociativeOptions options;
  options.direction = Direction::both;
  options.block_size = 128;
  const auto test = std::make_shared<AssociativeCase>(associative_case(op, Dtype::f32, shape, 1, options));
  const std::size_t bytes = test->problem.bytes();
  const std::string name = std::string(core::associative_op_name(op)) + " of " + shape.to_string();
  const bool of_a = gradient && op == AssociativeOp::linear_recurrence;
  Results results = {bytes_for(bytes)};
  if (of_a || !gradient) results.push_back(bytes_for(bytes));
  if (!gradient) {
    return {name, std::move(results), [=](Results& out) {
              backend->associative_scan(test->problem, {out[0].data(), out[1].data()});
            }};
  }
  return {"gradient of " + name, std::move(results), [=](Results& out) {
            const core::AssociativeGradProblem problem{test->problem, test->x.data(), test->x.data()};
            const auto run = [&](const auto& p, const auto& o) { backend->associative_scan(p, o); };
            core::associative_grad(problem, {out[0].data(), of_a ? out[1].data() : nullptr}, run);
          }};
}

// All results of a fused operator, or of its gradient, one behind another.
Operation recurrent(const Backends& backend, core::RecurrentOp op, std::int64_t hidden, bool gradient) {
  const RecurrentKind kind{op, false};
  const auto test = std::make_shared<RecurrentCase>(kind, RecurrentSizes{2, 5, hidden}, gradient);
  return {(gradient ? "gradient of " : "") + name_of(kind), {{}}, [=](Results& out) {
            const RecurrentResults results = run_recurrent(*test, [&](const core::RecurrentCall& call) {
              gradient ? backend->recurrent_scan_grad(call) : backend->recurrent_scan(call);
            });
            out[0].clear();
            for (const std::vector<float>& values : results) {
              const std::vector<std::uint8_t> bytes = bytes_of(values);
              out[0].insert(out[0].end(), bytes.begin(), bytes.end());
            }
          }};
}

// The same of the operator of Mamba-2.
Operation duality(const Backends& backend, std::int64_t headdim, bool gradient) {
  SsdSpec spec;
  spec.headdim = headdim;
  const auto test = std::make_shared<SsdCase>(spec, gradient);
  return {gradient ? "gradient of Mamba-2's operator" : "Mamba-2's operator", {{}}, [=](Results& out) {
            const SsdResults results = run_ssd(*test, [&](const core::SsdCall& call) {
              gradient ? backend->ssd_scan_grad(call) : backend->ssd_scan(call);
            });
            out[0].clear();
            for (const std::vector<float>& values : results) {
              const std::vector<std::uint8_t> bytes = bytes_of(values);
              out[0].insert(out[0].end(), bytes.begin(), bytes.end());
            }
          }};
}

constexpr std::int64_t kHidden = 4, kRank = 2, kInner = 3, kRows = 2 * 5;

std::vector<Operation> layer(const Backends& backend) {
  const auto tensors = std::make_shared<SemiseparableTensors>(kHidden, kRank, kInner);
  const auto weights = core::load_semiseparable(tensors->views(), true);
  const auto resident = std::shared_ptr<core::SemiseparableLayer>(backend->load_semiseparable(*weights));
  const auto x = std::make_shared<std::vector<float>>(Random(3).vector(kRows * kHidden, -1.0f, 1.0f));
  const Results empty = {bytes_for(kRows * kHidden * 4), bytes_for(kRows * kRank * 4)};
  const auto forward = [x](core::SemiseparableLayer& layer, bool bidirectional, Results& out) {
    layer.forward({x->data(), 2, kRows / 2, bidirectional}, {floats(out[0]), floats(out[1])});
  };
  return {{"semiseparable layer", empty, [=](Results& out) { forward(*resident, false, out); }},
          {"semiseparable layer, bidirectional", empty, [=](Results& out) { forward(*resident, true, out); }},
          {"load of a semiseparable layer", empty,
           [=](Results& out) {
             const auto loaded =
                 backend->load_semiseparable(*core::load_semiseparable(tensors->views(), true));
             forward(*loaded, false, out);
           }},
          {"gradient of a semiseparable layer",
           {{}, {}},
           [=](Results& out) {
             const core::SemiseparableGrad gradient =
                 core::semiseparable_grad(*weights, {{x->data(), 2, kRows / 2, true}, x->data(), 0.5});
             out[0] = bytes_of(gradient.x), out[1] = bytes_of(gradient.output);
           },
           true}};
}

// A small result, and one of a pool.
Operation result_memory(const Backends& backend) {
  return {"memory for results",
          {bytes_for(1)},
          [=](Results& out) {
            for (const std::size_t bytes : {std::size_t{100}, 2 * core::kSmallestPooledResult}) {
              std::memset(backend->allocate_result(bytes).data(), 7, bytes);
            }
            out[0] = {7};
          },
          true};
}

}  // namespace

Operation load_of_policy(const Backends& backend) {
  const auto weights = make_policy({});
  return {"load of a policy",
          {bytes_for(static_cast<std::size_t>(weights->config.d_output) * 4)},
          [=](Results& out) {
            core::PolicyOptions options;
            options.max_sessions = 4;
            const std::shared_ptr<core::Policy> policy = backend->load(weights, options);
            const std::vector<float> obs(static_cast<std::size_t>(weights->config.d_input), 0.5f);
            core::Session session(policy);
            session.step(obs.data(), floats(out[0]));
          }};
}

std::vector<Operation> backend_operations(const Backends& backend, const std::vector<AssociativeOp>& ops,
                                          std::int64_t width) {
  std::vector<Operation> all = {
      scan(backend, "scan", full(1, 5, 3 * width, 4)),
      scan(backend, "scan of a full matrix with all states", with_matrix(full(2, 3, width, 3)), true),
      scan_gradient(backend, "gradient of a scan", full(1, 3, 2 * width, 2)),
      scan_gradient(backend, "gradient of a full matrix", with_matrix(full(1, 3, 2 * width, 2))),
      result_memory(backend)};
  ScanSpec spec = full(1, 3, 2 * width, 2);
  spec.complex = true, spec.b_groups = 0, spec.c_groups = 2;
  all.push_back(scan_gradient(backend, "gradient of a complex scan", spec));
  all.push_back(scan(backend, "complex scan with all states", spec, true));
  spec = full(2, 5, 8 * width, 16);
  spec.dtype = Dtype::f16, spec.options.direction = Direction::both, spec.initial_state = false;
  all.push_back(scan(backend, "scan of f16 in both directions", spec));
  for (const AssociativeOp op : ops) {
    for (const bool gradient : {false, true}) {
      all.push_back(associative(backend, op, {1, 20, 2 * width}, gradient));
    }
  }
  // Rows in tiles that hand over to the next.
  all.push_back(associative(backend, AssociativeOp::linear_recurrence, {width, 300}, false));
  for (const bool gradient : {false, true}) {
    all.push_back(recurrent(backend, core::RecurrentOp::minlstm, 3 * width, gradient));
    all.push_back(recurrent(backend, core::RecurrentOp::lstm_scan, width, gradient));
    all.push_back(duality(backend, width, gradient));
  }
  for (Operation& operation : layer(backend)) all.push_back(std::move(operation));
  return all;
}

}  // namespace exphil::test
