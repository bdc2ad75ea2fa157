#include "cuda/recurrent/walk.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "cuda/jit/launch.hpp"

namespace exphil::cuda {

using formulas::Cell;
using recurrent::ProductShape;

namespace {

// Of a block: that multiply, and that compute gates.
constexpr int kMostThreads = 512, kMostGates = 256;
// More sequences of a team take longer for each frame than a second round of teams costs.
constexpr int kMostRows = 4;
constexpr int kTeamUnits = 32;         // of a block, where the device has clusters
constexpr int kMostTeam = 8;           // supported by every device with clusters
constexpr int kFewProcessors = 64;     // a smaller device may be unable to place a cluster of eight
constexpr double kPlacedBlocks = 0.9;  // a cluster must fit in one GPC: 120 blocks on the 132 of an H200

// Decides bits: by the units and the device alone.
int team_of(const DeviceProperties& device, int units) {
  const int most = device.compute_major < 9 ? 1 : device.multiprocessors < kFewProcessors ? 2 : kMostTeam;
  int team = 1;
  while (team < most && team * kTeamUnits < units) team *= 2;
  return team;
}

// As few sequences for each team as let all teams run at once.
int rows_of(const DeviceProperties& device, int team, std::int64_t sequences) {
  const auto teams = static_cast<std::int64_t>(kPlacedBlocks * device.multiprocessors / team);
  const std::int64_t at_once = std::max<std::int64_t>(1, teams);
  return static_cast<int>(std::clamp<std::int64_t>((sequences + at_once - 1) / at_once, 1, kMostRows));
}

int whole(int threads, int group) {
  return recurrent::divide_up(threads, group) * group;
}

// The fewest passes, then the fewest threads for them, in whole warps.
int threads_of(const ProductShape& p) {
  const int passes = recurrent::divide_up(p.tasks(), kMostThreads);
  return whole(recurrent::divide_up(p.groups, passes) * p.slices, 32);
}

// A multiprocessor has 64 Ki registers; threads get them in groups of four warps, eight at a time. Beside
// weights and sums a thread that multiplies needs some for values, and backward for where it sends the sums.
constexpr int kRegisters = 65536, kWarpgroup = 128, kMostRegisters = 232;
int registers_of(int threads) {
  return std::min(kMostRegisters, kRegisters / whole(threads, kWarpgroup) / 8 * 8);
}
int registers_needed(Walk direction, const ProductShape& product, const RecurrentPlan& p) {
  return product.weights(p.threads) + product.outs * p.rows + (direction == Walk::forward ? 28 : 60);
}

// Whether threads that multiply can keep their weights in registers; those that compute gates may give them
// some, where both are whole warpgroups.
bool fits_registers(const DeviceProperties& device, Walk direction, const ProductShape& product,
                    RecurrentPlan* plan) {
  const int needed = registers_needed(direction, product, *plan);
  if (product.passes(plan->threads) > 1) return false;
  if (needed <= registers_of(plan->threads + plan->gates)) return true;
  const int gates = whole(plan->gates, kWarpgroup);
  const int left = (kRegisters - gates * recurrent::kGateRegisters) / plan->threads / 8 * 8;
  if (device.architecture() != 90 || plan->threads % kWarpgroup != 0 || needed > left) return false;
  plan->gates = gates, plan->product_registers = std::min(left, kMostRegisters);
  return true;
}

std::size_t bytes_of(long long floats) {
  return static_cast<std::size_t>(floats) * sizeof(float);
}

// Completes a plan that has its team, rows and threads that multiply; own: units of a block. False where a
// block's shared memory does not suffice.
bool hold(const DeviceProperties& device, Walk direction, const ProductShape& product, int own,
          long long floats, int forced, RecurrentPlan* plan) {
  const auto room = static_cast<std::size_t>(device.max_shared_per_block);
  plan->gates = std::min(kMostGates, whole(plan->rows * own, 32)), plan->product_registers = 0;
  const bool in_registers = fits_registers(device, direction, product, plan);
  const long long weights = static_cast<long long>(plan->threads) * product.weights(plan->threads);
  plan->shared_bytes = bytes_of(floats);
  plan->held = in_registers                         ? recurrent::kInRegisters
               : bytes_of(floats + weights) <= room ? recurrent::kInShared
                                                    : recurrent::kInL2;
  if (forced >= 0) plan->held = static_cast<recurrent::Held>(forced);
  if (plan->held == recurrent::kInShared) plan->shared_bytes += bytes_of(weights);
  return plan->shared_bytes <= room;
}

KernelSpec spec_of(Walk direction, Cell cell, int units, bool meets, const RecurrentPlan& p) {
  const bool forward = direction == Walk::forward;
  return {forward ? "recurrent/walk.cu" : "recurrent/walk_back.cu",
          forward ? "recurrent_walk" : "recurrent_walk_back",
          {define("CELL", static_cast<int>(cell)), define("UNITS", units), define("TEAM", p.team),
           define("CLUSTER", p.team > 1 ? 1 : 0), define("THREADS", p.threads), define("GATES", p.gates),
           define("ROWS", p.rows), define("HELD", p.held), define("PRODUCT_REGISTERS", p.product_registers),
           define("MEETS", meets ? 1 : 0)}};
}

KernelSpec units_spec(const char* entry, Cell cell) {
  return {"recurrent/units.cu", entry, {define("CELL", static_cast<int>(cell))}};
}

Dim3 grid_of(std::int64_t blocks) {
  return {grid_blocks(blocks, "frames", "a batch of so many sequences")};
}

template <class Arguments>
void enqueue(Context& context, CUstream stream, Walk direction, Cell cell, const Arguments& a,
             const RecurrentTuning& tuning, Begin begin) {
  if (a.sequences == 0 || a.units == 0) return;
  const auto run = [&](const KernelSpec& spec, std::int64_t blocks, int threads, std::size_t shared_bytes) {
    const CUfunction kernel = context.kernels().get(spec, shared_bytes);
    launch(begin, context, kernel, grid_of(blocks), {static_cast<unsigned>(threads)}, shared_bytes, stream,
           a);
  };
  if (!formulas::recurrent(cell)) {
    const char* const entry = direction == Walk::forward ? "recurrent_units" : "recurrent_units_back";
    const std::int64_t threads = a.sequences * a.units;
    return run(units_spec(entry, cell), (threads + recurrent::kUnitThreads - 1) / recurrent::kUnitThreads,
               recurrent::kUnitThreads, 0);
  }
  const RecurrentPlan plan = plan_walk(context.properties(), direction, cell, a.units, a.sequences, tuning);
  run(plan.spec, plan.blocks, plan.threads + plan.gates, plan.shared_bytes);
}

}  // namespace

RecurrentPlan plan_walk(const DeviceProperties& device, Walk direction, Cell cell, int units,
                        std::int64_t sequences, const RecurrentTuning& tuning) {
  const bool forward = direction == Walk::forward;
  RecurrentPlan plan;
  plan.team = tuning.team > 0 ? tuning.team : team_of(device, units);
  plan.rows = tuning.rows > 0 ? tuning.rows : rows_of(device, plan.team, sequences);
  const ProductShape product = forward ? recurrent::walk_product(cell, units, plan.team)
                                       : recurrent::back_product(cell, units, plan.team);
  plan.threads = threads_of(product);
  const auto floats = [&] {
    return forward ? recurrent::walk_floats(cell, units, plan.team, plan.rows)
                   : recurrent::walk_back_floats(cell, units, plan.team, plan.rows);
  };
  const int own = recurrent::units_of_block(units, plan.team);
  const auto holds = [&] { return hold(device, direction, product, own, floats(), tuning.held, &plan); };
  // To read the matrix from the L2 in each frame takes longer than another round of teams.
  const int most = plan.rows;
  while (plan.rows > 1 && (!holds() || plan.held == recurrent::kInL2)) --plan.rows;
  if (!holds() || plan.held == recurrent::kInL2) plan.rows = most;
  while (!holds()) {
    if (plan.rows == 1) {
      core::fail(core::ErrorKind::limit_exceeded, "", "a recurrent cell of ", units,
                 " units has no room in the shared memory of this GPU, which has ",
                 device.max_shared_per_block, " bytes for a block");
    }
    --plan.rows;
  }
  plan.blocks = (sequences + plan.rows - 1) / plan.rows * plan.team;
  plan.spec = spec_of(direction, cell, units, tuning.meets, plan);
  return plan;
}

void enqueue_walk(Context& context, CUstream stream, Cell cell, const recurrent::WalkArguments& arguments,
                  const RecurrentTuning& tuning, Begin begin) {
  enqueue(context, stream, Walk::forward, cell, arguments, tuning, begin);
}

void enqueue_walk_back(Context& context, CUstream stream, Cell cell,
                       const recurrent::WalkBackArguments& arguments, const RecurrentTuning& tuning) {
  enqueue(context, stream, Walk::back, cell, arguments, tuning, Begin::after);
}

std::vector<KernelSpec> recurrent_kernel_variants() {
  std::vector<KernelSpec> all;
  DeviceProperties clusters, none;
  clusters.compute_major = 9, clusters.multiprocessors = 132, clusters.max_shared_per_block = 227 * 1024;
  none.compute_major = 7, none.multiprocessors = 40, none.max_shared_per_block = 64 * 1024;
  for (const Cell cell : {Cell::gru, Cell::lstm}) {
    for (const Walk direction : {Walk::forward, Walk::back}) {
      // What is played, in registers; what shared memory and the L2 have; and a device without clusters.
      for (const int units : {34, 256, 320, 512}) {
        all.push_back(plan_walk(clusters, direction, cell, units, 32).spec);
      }
      for (const int units : {34, 256}) all.push_back(plan_walk(none, direction, cell, units, 200).spec);
    }
  }
  for (const Cell cell : {Cell::min_gru, Cell::min_lstm}) {
    for (const char* entry : {"recurrent_units", "recurrent_units_back"}) {
      all.push_back(units_spec(entry, cell));
    }
  }
  return all;
}

}  // namespace exphil::cuda
