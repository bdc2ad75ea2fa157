// Gated recurrences over whole sequences and their gradient, by the kernels of kernels/recurrent alone:
// against the formulas in double, in each layout of the operands, and the bits of every way to launch them.
#include "cuda/recurrent/walk.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/device/places.hpp"
#include "cuda/device/stream.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/recurrent/walk_case.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace exphil::test {
namespace {

using formulas::Cell;
using Floats = std::vector<float>;

class OnDevice {
 public:
  OnDevice(const WalkCase& c, const WalkInputs& inputs, const cuda::RecurrentTuning& tuning = {})
      : c_(c),
        in_(inputs),
        tuning_(tuning),
        context_(cuda::Context::open(0)),
        guard_(*context_),
        stream_(*context_) {}

  WalkResults run() {
    take();
    enqueue();
    WalkResults r;
    r.out = download(out_, c_.rows() * c_.units), r.final = download(final_, in_.initial.size());
    r.d_x = in_rows(download(d_x_, in_.x.size()));
    if (c_.recurrent()) r.d_h = in_rows(download(d_h_, in_.x.size()));
    r.d_initial = download(d_initial_, in_.initial.size());
    return r;
  }

 private:
  float* take(std::size_t floats) {
    buffers_.push_back(context_->device_pool().allocate(floats * sizeof(float)));
    return cuda::as_pointer<float>(buffers_.back().address());
  }
  float* upload(const Floats& values) {
    float* const to = take(values.size());
    context_->check(cuda::driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(to), values.data(),
                                                values.size() * sizeof(float)),
                    "upload");
    return to;
  }
  Floats download(const float* from, std::size_t floats) {
    stream_.synchronize();
    Floats values(floats);
    context_->check(cuda::driver().cuMemcpyDtoH(values.data(), reinterpret_cast<CUdeviceptr>(from),
                                                floats * sizeof(float)),
                    "download");
    return values;
  }

  // {rows, gates, units} as the case has them on the device, and back.
  std::size_t place(std::size_t row, std::size_t gate) const {
    return (c_.gates_first ? gate * c_.rows() + row : row * c_.gates() + gate) * c_.units;
  }
  Floats as_given(const Floats& rows) const {
    Floats all(rows.size());
    for (std::size_t i = 0; i < c_.rows() * c_.gates(); ++i) {
      std::copy_n(&rows[i * c_.units], c_.units, &all[place(i / c_.gates(), i % c_.gates())]);
    }
    return all;
  }
  Floats in_rows(const Floats& given) const {
    Floats all(given.size());
    for (std::size_t i = 0; i < c_.rows() * c_.gates(); ++i) {
      std::copy_n(&given[place(i / c_.gates(), i % c_.gates())], c_.units, &all[i * c_.units]);
    }
    return all;
  }
  Floats u_as_given() const {
    if (c_.gates_first) return in_.u;
    Floats transposed(in_.u.size());
    const std::size_t sums = c_.gates() * c_.units;
    for (std::size_t i = 0; i < sums; ++i) {
      for (std::size_t k = 0; k < c_.units; ++k) transposed[k * sums + i] = in_.u[i * c_.units + k];
    }
    return transposed;
  }

  void take() {
    u_ = upload(u_as_given()), bias_ = upload(in_.bias), x_ = upload(as_given(in_.x));
    initial_ = upload(in_.initial), d_out_ = upload(in_.d_out), d_final_ = upload(in_.d_final);
    out_ = take(c_.rows() * c_.units), final_ = take(in_.initial.size()), h_ = take(in_.x.size());
    before_ = take(c_.states() * c_.rows() * c_.units);
    d_x_ = take(in_.x.size()), d_h_ = take(in_.x.size()), d_initial_ = take(in_.initial.size());
  }

  float* sums(float* all, std::size_t gate) const { return all + place(0, gate); }
  float* values(float* all, std::size_t state) const { return all + state * c_.rows() * c_.units; }
  recurrent::Rows states(float* all, std::size_t state) const {
    return {all + state * c_.sequences * c_.units, static_cast<long long>(c_.units)};
  }
  static recurrent::ConstRows read(const recurrent::Rows& rows) { return {rows.at, rows.row}; }

  recurrent::RecurrentWeights weights() const {
    recurrent::RecurrentWeights w{};
    const std::size_t n = c_.units;
    for (std::size_t g = 0; g < c_.gates(); ++g) w.u[g] = u_ + g * n * (c_.gates_first ? n : 1);
    w.u_unit = static_cast<long long>(c_.gates_first ? n : 1);
    w.u_k = static_cast<long long>(c_.gates_first ? 1 : c_.gates() * n);
    return w;
  }

  void enqueue() {
    recurrent::WalkArguments a{};
    recurrent::WalkBackArguments b{};
    a.weights = b.weights = weights();
    for (std::size_t g = 0; g < c_.gates(); ++g) {
      if (c_.biased && c_.recurrent()) a.bias[g] = bias_ + g * c_.units;
      a.x[g] = b.x[g] = sums(x_, g);
      b.d_x[g] = sums(d_x_, g);
      if (c_.recurrent()) a.h[g] = sums(h_, g), b.h[g] = a.h[g], b.d_h[g] = sums(d_h_, g);
    }
    for (std::size_t s = 0; s < c_.states(); ++s) {
      if (c_.starts) a.initial[s] = read(states(initial_, s));
      a.final[s] = states(final_, s), a.before[s] = values(before_, s);
      b.before[s] = a.before[s], b.d_final[s] = read(states(d_final_, s));
      b.d_initial[s] = states(d_initial_, s);
    }
    a.out = out_, b.d_out = d_out_;
    a.sums_row = b.sums_row = static_cast<long long>((c_.gates_first ? 1 : c_.gates()) * c_.units);
    a.sequences = b.sequences = static_cast<long long>(c_.sequences);
    a.seq = b.seq = static_cast<long long>(c_.seq), a.units = b.units = static_cast<int>(c_.units);
    cuda::enqueue_walk(*context_, stream_.handle(), c_.cell, a, tuning_);
    cuda::enqueue_walk_back(*context_, stream_.handle(), c_.cell, b, tuning_);
  }

  const WalkCase& c_;
  const WalkInputs& in_;
  const cuda::RecurrentTuning tuning_;
  const std::shared_ptr<cuda::Context> context_;
  const cuda::ContextGuard guard_;
  std::vector<cuda::DeviceBuffer> buffers_;
  cuda::StreamLease stream_;
  float *u_ = nullptr, *bias_ = nullptr, *x_ = nullptr, *initial_ = nullptr, *d_out_ = nullptr,
        *d_final_ = nullptr, *out_ = nullptr, *final_ = nullptr, *h_ = nullptr, *before_ = nullptr,
        *d_x_ = nullptr, *d_h_ = nullptr, *d_initial_ = nullptr;
};

bool same_bits(const Floats& p, const Floats& q) {
  return p.size() == q.size() && std::memcmp(p.data(), q.data(), p.size() * sizeof(float)) == 0;
}
bool same_bits(const WalkResults& p, const WalkResults& q) {
  return same_bits(p.out, q.out) && same_bits(p.final, q.final) && same_bits(p.d_x, q.d_x) &&
         same_bits(p.d_h, q.d_h) && same_bits(p.d_initial, q.d_initial);
}

void check_walk(const WalkCase& c, const cuda::RecurrentTuning& tuning = {}) {
  CAPTURE(static_cast<int>(c.cell), c.units, c.sequences, c.seq, c.gates_first);
  const WalkInputs inputs = inputs_of(c);
  WalkReference expected(c, inputs);
  expected.run();
  const WalkResults found = OnDevice(c, inputs, tuning).run();
  constexpr double kBound = 1e-5;
  CHECK(relative_error(found.out, expected.out) < kBound);
  CHECK(relative_error(found.final, expected.final) < kBound);
  CHECK(relative_error(found.d_x, expected.d_x) < kBound);
  if (c.recurrent()) CHECK(relative_error(found.d_h, expected.d_h) < kBound);
  CHECK(relative_error(found.d_initial, expected.d_initial) < kBound);
}

// The first sequence alone has the bits that it has among others, however the others are launched.
void check_walk_bits(const WalkCase& c, int team) {
  CAPTURE(static_cast<int>(c.cell), c.units, team);
  const WalkInputs inputs = inputs_of(c);
  const WalkResults all = OnDevice(c, inputs, {team}).run();
  for (const auto& [rows, held] : {std::pair(1, 0), std::pair(2, 2), std::pair(3, 0)}) {
    CAPTURE(rows, held);
    CHECK(same_bits(OnDevice(c, inputs, {team, rows, held}).run(), all));
  }
  WalkCase first = c;
  first.sequences = 1;
  WalkInputs alone = inputs;
  alone.x.resize(c.seq * c.gates() * c.units), alone.d_out.resize(c.seq * c.units);
  const auto cut = [&](Floats* states) {
    Floats kept;
    for (std::size_t s = 0; s < c.states(); ++s) {
      const auto from = states->begin() + static_cast<std::ptrdiff_t>(s * c.sequences * c.units);
      kept.insert(kept.end(), from, from + static_cast<std::ptrdiff_t>(c.units));
    }
    *states = kept;
  };
  cut(&alone.initial), cut(&alone.d_final);
  WalkResults one = OnDevice(first, alone, {team}).run();
  const auto begins = [](const Floats& whole, const Floats& part) {
    return std::memcmp(whole.data(), part.data(), part.size() * sizeof(float)) == 0;
  };
  CHECK(begins(all.out, one.out));
  CHECK(begins(all.d_x, one.d_x));
  CHECK(begins(all.d_h, one.d_h));
}

constexpr Cell kCells[] = {Cell::gru, Cell::lstm, Cell::min_gru, Cell::min_lstm};

void check_layouts(std::size_t units, std::size_t sequences, std::size_t seq) {
  for (const Cell cell : kCells) {
    check_walk({cell, units, sequences, seq, true, true, true, 3});
    check_walk({cell, units, sequences, seq, false, false, false, 4});
  }
}

// By single blocks: racecheck does not know the bytes that the blocks of a cluster count.
void check_walks_that_meet() {
  for (const Cell cell : {Cell::gru, Cell::lstm}) {
    check_walk({cell, 33, 3, 4}, {1, 1, -1, true});
    check_walk({cell, 33, 4, 5}, {1, 3, recurrent::kInShared, true});
  }
}

TEST_CASE("walks of gated cells on an emulated GPU", "[.emulated_walks]") {
  emulate_launches();
  check_layouts(5, 3, 9);
  check_layouts(33, 2, 3);
  check_walk({Cell::gru, 160, 1, 2});  // its weights would be in the L2
  check_walk_bits({Cell::gru, 20, 4, 3}, 1);
  check_walks_that_meet();
  CHECK(emulated_launches("recurrent_walk") > 0);
  CHECK(emulated_launches("recurrent_units_back") > 0);
}

TEST_CASE("walks of gated cells by clusters on an emulated GPU", "[.emulated_cluster_walks]") {
  emulate_launches();
  check_walk({Cell::gru, 39, 3, 4, true, true, true, 3});
  check_walk({Cell::lstm, 39, 3, 4, false, false, false, 4});
  check_walk({Cell::gru, 70, 2, 3}, {8});
  check_walk({Cell::gru, 512, 1, 3}, {8});  // in several passes, each of which has other receivers
  check_walk_bits({Cell::lstm, 21, 3, 4}, 4);
}

TEST_CASE("walks of gated cells run without a GPU", "[cuda][recurrent][emulated]") {
  require_emulated("[.emulated_walks]");
}

TEST_CASE("walks of gated cells by clusters run without a GPU", "[cuda][recurrent][emulated]") {
  require_emulated("[.emulated_cluster_walks]", {{"FAKE_CUDA_CAPABILITY", "90"}});
  // Others get their values while a warp is between two of those that it sends.
  require_emulated("[.emulated_cluster_walks]", {{"FAKE_CUDA_CAPABILITY", "90"}, {"FAKE_CUDA_PAUSES", "1"}});
}

TEST_CASE("walks of gated cells on the GPU", "[cuda][gpu][recurrent]") {
  if (!have_device()) return;
  for (const std::size_t units : {1, 31, 33, 64, 129, 256, 260, 320, 330, 512}) check_layouts(units, 5, 9);
  // Weights in shared memory behind sums and inboxes of odd sizes.
  for (const int rows : {1, 2, 3}) check_walk({Cell::gru, 33, 3, 4}, {1, rows, recurrent::kInShared});
  check_layouts(256, 1, 60);
  check_layouts(256, 70, 20);
  const int team = cuda::Context::open(0)->properties().compute_major >= 9 ? 8 : 1;
  for (const Cell cell : {Cell::gru, Cell::lstm}) check_walk_bits({cell, 256, 9, 17}, team);
}

// For compute-sanitizer's racecheck: .ci/sanitize_gpu.
TEST_CASE("walks whose threads meet on the device", "[.racecheck][kernels]") {
  if (have_device()) check_walks_that_meet();
}

TEST_CASE("a walk has teams that fit the device and the sequences", "[cuda][recurrent]") {
  cuda::DeviceProperties device;
  device.compute_major = 9, device.multiprocessors = 132, device.max_shared_per_block = 227 * 1024;
  const auto plan = [&](int units, std::int64_t sequences) {
    return cuda::plan_walk(device, cuda::Walk::forward, Cell::gru, units, sequences);
  };
  CHECK(plan(256, 1).team == 8);
  CHECK(plan(256, 1).rows == 1);
  CHECK(plan(256, 1).held == recurrent::kInRegisters);
  CHECK(plan(256, 32).rows == 3);
  CHECK(plan(256, 32).blocks == 88);
  CHECK(plan(256, 1000).rows == 4);
  CHECK(plan(33, 1).team == 2);
  CHECK(plan(320, 1).held == recurrent::kInRegisters);
  CHECK(plan(320, 32).held == recurrent::kInShared);
  const cuda::RecurrentPlan fewer = cuda::plan_walk(device, cuda::Walk::forward, Cell::lstm, 320, 1000);
  CHECK(fewer.rows == 3);
  CHECK(fewer.held == recurrent::kInShared);
  CHECK(plan(512, 1000).rows == 4);
  CHECK(plan(1024, 1).held == recurrent::kInL2);
  device.compute_major = 8;
  CHECK(plan(256, 1).team == 1);
  device.max_shared_per_block = 64 * 1024;
  for (const cuda::Walk direction : {cuda::Walk::forward, cuda::Walk::back}) {
    CHECK(cuda::plan_walk(device, direction, Cell::gru, 3000, 1).rows == 1);
    CHECK(cuda::plan_walk(device, direction, Cell::lstm, 2700, 1).rows == 1);
  }
  const CaughtError error = error_of([&] { plan(100'000, 1); });
  CHECK(error.kind == core::ErrorKind::limit_exceeded);
  CHECK(error.says("100000 units"));
}

}  // namespace
}  // namespace exphil::test
