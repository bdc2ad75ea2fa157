#include "cuda/policy/team.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "cuda/device/slow_call.hpp"
#include "cuda/device/staged_bytes.hpp"
#include "cuda/policy/clusters.hpp"
#include "cuda/policy/pack.hpp"

namespace exphil::cuda {
namespace {

// Threads of a block: one for each 32 weights of a layer's first product with a matrix, at most 256. With 512
// a step of one agent took 1 us longer on an H200: the same work, but barriers of twice as many warps.
int default_threads(const PolicyDims& dims, int team) {
  constexpr int kMost = 256;
  const policy::Network& n = dims.network();
  const policy::TeamPlan plan(n);
  const int first = n.layer.phases[policy::first_product(n)].index;
  const int tasks = policy::weight_rows(n, plan, team, first) *
                    (policy::weight_columns(n, plan, team, first) / policy::kSegment);
  return std::clamp(policy::power_of_two_above(std::min(tasks, kMost)), 128, kMost);
}

}  // namespace

std::shared_ptr<DeviceBuffer> TeamWeights::get(int team) {
  for (const auto& [size, buffer] : packed_) {
    if (size == team) return buffer;
  }
  const StagedBytes host(context_, team_bytes(dims_, team));
  pack_team(weights_, dims_, team, host.data());
  auto buffer = std::make_shared<DeviceBuffer>(context_.device_pool().allocate(host.size()));
  const SlowCall slow(&context_.armed());
  context_.check(driver().cuMemcpyHtoD(buffer->address(), host.data(), host.size()), "cuMemcpyHtoD");
  packed_.emplace_back(team, buffer);
  return buffer;
}

std::vector<TeamShape> team_candidates(const DeviceProperties& device, const PolicyDims& dims,
                                       const PolicyTuning& tuning, int agents) {
  std::vector<TeamShape> shapes;
  if (dims.network().in_rows_alone() || !policy::TeamPlan(dims.network()).fits) return shapes;
  const int useful = policy::useful_team(dims.network(), policy::TeamPlan(dims.network()));
  const int threads = agents == 1 ? tuning.threads : tuning.batch_threads;
  for (const bool cluster : {true, false}) {
    if (cluster && device.architecture() < 90) continue;
    if (tuning.cluster >= 0 && cluster != (tuning.cluster == 1)) continue;
    for (const policy::Staging staged : {policy::kStageAll, policy::kStageSections, policy::kStageNothing}) {
      if (staged != policy::kStageNothing && !cluster) continue;  // the bulk copies need clusters
      if (tuning.staged >= 0 ? staged != tuning.staged : staged == policy::kStageAll) continue;
      for (int team = cluster ? 16 : policy::power_of_two_within(std::min(device.multiprocessors, 64));
           team >= 1; team /= 2) {
        if (team > useful || (tuning.team > 0 && team != tuning.team)) continue;
        TeamShape shape;
        shape.team = team;
        shape.agents = agents;
        shape.cluster = cluster;
        shape.staged = staged;
        shape.counts = tuning.counts != 0;
        shape.threads = threads > 0 ? threads : default_threads(dims, team);
        if (shape.shared_bytes(dims) <= device.max_shared_per_block) shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

// Its weights are there before its frame is, so that all of them are staged where they fit. A step that
// begins with its frame would have to wait for more of them (bench/results/gated.md).
std::vector<TeamShape> armed_shapes(TeamShape shape, const PolicyDims& dims, const DeviceProperties& device) {
  shape.armed = true;
  if (shape.staged == policy::kStageNothing || dims.network().layers == 1) return {shape};
  TeamShape all = shape;
  all.staged = policy::kStageAll;
  if (all.shared_bytes(dims) > device.max_shared_per_block) return {shape};
  return {all, shape};
}

KernelSpec team_kernel(const PolicyDims& dims, const TeamShape& shape) {
  return {"policy/step.cu", shape.armed ? "policy_step_armed" : "policy_step", shape.defines(dims)};
}

TeamRunner::TeamRunner(Context& context, const PolicyDims& dims, const PolicyTuning& tuning,
                       TeamWeights& weights, int agents)
    : context_(context), dims_(dims), no_obs_(static_cast<std::size_t>(dims.config.d_input), 0.0f) {
  for (const TeamShape& shape : team_candidates(context.properties(), dims, tuning, agents)) {
    if (!try_shape(shape)) continue;
    weights_ = weights.get(shape.team);
    if (!shape.cluster) {
      board_ =
          context.device_pool().allocate(static_cast<std::size_t>(shape.activations(dims).board_bytes()));
      barrier_ = context.device_pool().allocate(sizeof(unsigned));
      context.clear(barrier_);
    }
    return;
  }
  core::fail(
      core::ErrorKind::unsupported, "", "this policy does not fit ", context.properties().name,
      " in one launch: ", agents, " agents of it need more than ", context.properties().max_shared_per_block,
      " bytes of shared memory in a block, or EXPHIL_NATIVE_POLICY requires a shape that the device lacks");
}

bool TeamRunner::try_shape(const TeamShape& shape) {
  const auto bytes = static_cast<std::size_t>(shape.shared_bytes(dims_));
  CUfunction function = context_.kernels().get(team_kernel(dims_, shape), bytes);
  int teams = 1;
  if (shape.cluster) {
    if (!allow_cluster(function, shape.team)) return false;
    teams = cluster_capacity(function, shape.team, shape.threads, static_cast<unsigned>(bytes));
  } else {
    int per_multiprocessor = 0;
    context_.check(driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, function,
                                                                        shape.threads, bytes),
                   "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    if (per_multiprocessor * context_.properties().multiprocessors < shape.team) return false;
  }
  if (teams < 1) return false;
  function_ = function;
  shape_ = shape;
  shared_bytes_ = static_cast<unsigned>(bytes);
  most_teams_ = teams;
  return true;
}

void TeamRunner::prepare_armed() {
  for (const TeamShape& shape : armed_shapes(shape_, dims_, context_.properties())) {
    const auto bytes = static_cast<unsigned>(shape.shared_bytes(dims_));
    const CUfunction function = context_.kernels().get(team_kernel(dims_, shape), bytes);
    const bool fits = !shape.cluster || (allow_cluster(function, shape.team) &&
                                         cluster_capacity(function, shape.team, shape.threads, bytes) > 0);
    if (!fits) continue;
    armed_ = function, armed_shared_bytes_ = bytes;
    return;
  }
  core::fail(core::ErrorKind::unsupported, ":latency", context_.properties().name,
             " refuses a cluster of the size that latency: :armed needs");
}

void TeamRunner::launch(CUstream stream, policy::StepArguments arguments, const float* inline_obs) const {
  const float* obs = arguments.obs == nullptr && inline_obs != nullptr ? inline_obs : no_obs_.data();
  launch(function_, stream, arguments, const_cast<float*>(obs));
}

void TeamRunner::launch_armed(CUstream stream, policy::StepArguments arguments,
                              policy::ArmedArguments armed) const {
  launch(armed_, stream, arguments, &armed);
}

// A launch that may begin while the one before it on the stream runs; the kernel waits for that one's end
// where it has to.
CUresult TeamRunner::launch_early(CUfunction function, CUstream stream, unsigned blocks,
                                  void** parameters) const {
  AttributedLaunch launch(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, blocks, shape_.threads,
                          armed_shared_bytes_, stream);
  launch.attribute.value.programmaticStreamSerializationAllowed = 1;
  return driver().cuLaunchKernelEx(&launch.config, function, parameters, nullptr);
}

// second: the kernel's second argument.
void TeamRunner::launch(CUfunction function, CUstream stream, policy::StepArguments& arguments,
                        void* second) const {
  arguments.weights = weights_->as<void>();
  arguments.board = board_.as<void>();
  arguments.barrier = barrier_.as<unsigned>();
  void* parameters[] = {&arguments, second};
  const int groups = (arguments.count + shape_.agents - 1) / shape_.agents;
  const auto blocks = static_cast<unsigned>(std::min(groups, most_teams_) * shape_.team);
  const auto threads = static_cast<unsigned>(shape_.threads);
  const unsigned shared = function == armed_ ? armed_shared_bytes_ : shared_bytes_;
  if (function == armed_ && shape_.cluster && driver().cuLaunchKernelEx != nullptr) {
    context_.check(launch_early(function, stream, blocks, parameters), "cuLaunchKernelEx(policy_step_armed)");
  } else if (shape_.cluster) {
    context_.check(
        driver().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, parameters, nullptr),
        "cuLaunchKernel(policy_step)");
  } else {
    context_.check(
        driver().cuLaunchCooperativeKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, parameters),
        "cuLaunchCooperativeKernel(policy_step)");
  }
}

}  // namespace exphil::cuda
