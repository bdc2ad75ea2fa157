// The table of a scan's tensors and its shape: bytes, slices and alignment of random shapes; equality and
// hash.
#include "core/scan/operands.hpp"

#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include "core/scan/shape.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/numbers.hpp"
#include "support/scan_case.hpp"

namespace exphil::core {

namespace {

using test::Random;

// A random legal combination of small sizes, layouts and options.
test::ScanSpec random_spec(Random* random) {
  const auto pick = [&](int from, int to) {
    return std::min(to,
                    static_cast<int>(random->uniform(static_cast<float>(from), static_cast<float>(to) + 1)));
  };
  test::ScanSpec spec;
  spec.batch = pick(1, 4), spec.seq = pick(0, 5), spec.dim = 6 * pick(1, 2), spec.state = pick(1, 5);
  spec.b_groups = pick(0, 3), spec.c_groups = pick(0, 3);
  spec.complex = pick(0, 2) == 0;
  if (!spec.complex) spec.dtype = static_cast<Dtype>(pick(0, 2));
  spec.full_matrix = !spec.complex && pick(0, 3) == 0;
  if (spec.full_matrix) spec.options.discretization = formulas::Discretization::bilinear;
  spec.d = pick(0, 1) == 1, spec.z = pick(0, 1) == 1, spec.dt_bias = pick(0, 1) == 1;
  spec.initial_state = pick(0, 1) == 1;
  return spec;
}

const TensorView* view_of(const ScanInputs& inputs, ScanOperand id) {
  const auto maybe = [](const std::optional<TensorView>& view) { return view ? &*view : nullptr; };
  switch (id) {
    case ScanOperand::x:
      return &inputs.x;
    case ScanOperand::dt:
      return &inputs.dt;
    case ScanOperand::a:
      return &inputs.a;
    case ScanOperand::b:
      return &inputs.b;
    case ScanOperand::c:
      return &inputs.c;
    case ScanOperand::d:
      return maybe(inputs.d);
    case ScanOperand::z:
      return maybe(inputs.z);
    case ScanOperand::dt_bias:
      return maybe(inputs.dt_bias);
    case ScanOperand::initial_state:
      return maybe(inputs.initial_state);
    default:
      return nullptr;
  }
}

}  // namespace

TEST_CASE("an operand's bytes and dtype are those of the given tensor", "[scan][operands]") {
  Random random(11);
  for (int i = 0; i < 300; ++i) {
    const test::ScanCase scan(random_spec(&random));
    const ScanCall call = scan.call();
    INFO(scan.spec().to_string());
    for (const ScanOperand id : all_operands<ScanOperand>()) {
      const Operand operand = describe(call.shape, id);
      INFO(operand.name);
      const TensorView* view = view_of(scan.inputs(), id);
      if (operand.flow == Flow::out) {
        CHECK(view == nullptr);
        CHECK(operand.present == (id == ScanOperand::y));
        continue;
      }
      CHECK(operand.present == (view != nullptr));
      CHECK(operand.bytes() == (view == nullptr ? 0 : view->bytes));
      if (view != nullptr) CHECK(operand.dtype == view->dtype);
    }
  }
}

TEST_CASE("results have the sizes of the scan", "[scan][operands]") {
  ScanShape shape;
  shape.batch = 3, shape.seq = 7, shape.dim = 5, shape.state = 2;
  shape.dtype = Dtype::bf16;
  for (const ScanOperand id : {ScanOperand::y_reverse, ScanOperand::final_state, ScanOperand::states}) {
    CHECK(describe(shape, id).bytes() == 0);
    shape.add(id);
  }
  CHECK(describe(shape, ScanOperand::y).bytes() == 3 * 7 * 5 * 2);
  CHECK(describe(shape, ScanOperand::y_reverse).bytes() == 3 * 7 * 5 * 2);
  CHECK(describe(shape, ScanOperand::final_state).bytes() == 3 * 5 * 2 * 4);
  CHECK(describe(shape, ScanOperand::states).bytes() == 3 * 7 * 5 * 2 * 4);
  CHECK(describe(shape, ScanOperand::states).axes.to_string() == "{batch, seq, dim, state}");
  shape.complex = true, shape.dtype = Dtype::f32;
  CHECK(describe(shape, ScanOperand::final_state).bytes() == 3 * 5 * 2 * 8);
  CHECK(describe(shape, ScanOperand::y).dtype == Dtype::f32);
}

TEST_CASE("a size beyond 63 bits is an error that names the operand", "[scan][operands]") {
  ScanShape shape;
  shape.batch = shape.seq = shape.dim = std::int64_t{1} << 21, shape.state = 256;
  shape.add(ScanOperand::states);
  const test::CaughtError error = test::error_of([&] { describe(shape, ScanOperand::states).bytes(); });
  CHECK(error.kind == ErrorKind::limit_exceeded);
  CHECK(error.argument == "states");
  CHECK(error.says("2^63"));
}

TEST_CASE("a slice has the tensors of its sequences, and shared ones unchanged", "[scan][operands]") {
  Random random(12);
  for (int i = 0; i < 100; ++i) {
    const test::ScanCase scan(random_spec(&random));
    const ScanCall call = scan.call();
    const PerOperand<ScanOperand, Operand> table = describe_operands(call.shape);
    INFO(scan.spec().to_string());
    for (std::int64_t begin = 0; begin < call.shape.batch; ++begin) {
      const ScanCall slice = test::slice_of(call, begin, call.shape.batch - begin);
      for (const ScanOperand id : all_operands<ScanOperand>()) {
        INFO(table[id].name << " from sequence " << begin);
        const char* full = static_cast<const char*>(call.operands[id]);
        const char* part = static_cast<const char*>(slice.operands[id]);
        if (!table[id].present || table[id].flow == Flow::out) {
          CHECK(part == nullptr);
          continue;
        }
        const std::size_t rest = describe(slice.shape, id).bytes();
        // The slice ends where the tensor ends.
        CHECK(part + rest == full + table[id].bytes());
        if (!table[id].per_sequence) CHECK(part == full);
      }
    }
  }
}

TEST_CASE("addresses on a device are sliced like pointers", "[scan][operands]") {
  ScanShape shape;
  shape.batch = 4, shape.seq = 3, shape.dim = 2, shape.state = 5;
  shape.add(ScanOperand::d);
  ScanOperands<unsigned long long> addresses;
  addresses[ScanOperand::x] = 4096, addresses[ScanOperand::b] = 8192, addresses[ScanOperand::d] = 512;
  const auto slice = slice_batch(sequence_strides(describe_operands(shape)), addresses, 3);
  CHECK(slice[ScanOperand::x] == 4096 + 3 * 3 * 2 * 4);
  CHECK(slice[ScanOperand::b] == 8192 + 3 * 3 * 5 * 4);
  CHECK(slice[ScanOperand::d] == 512);
  CHECK(slice[ScanOperand::z] == 0);
  CHECK(slice[ScanOperand::dt] == 0);  // no address, although the call has it
}

TEST_CASE("an alignment is the largest power of two in an address, 16 at most", "[scan][operands]") {
  for (std::uintptr_t address = 1; address < 200; ++address) {
    const auto alignment = static_cast<std::uintptr_t>(alignment_of(address));
    CHECK(address % alignment == 0);
    CHECK((alignment == 16 || address % (2 * alignment) != 0));
    CHECK(alignment_of(reinterpret_cast<void*>(address)) == static_cast<int>(alignment));
  }
  CHECK(alignment_of(std::uintptr_t{0}) == kBestAlignment);
  ScanShape shape;
  ScanOperands<std::uintptr_t> addresses;
  addresses[ScanOperand::x] = 4096 + 8, addresses[ScanOperand::b] = 4096 + 2, addresses[ScanOperand::z] = 3;
  const ScanShape aligned = with_alignment_of(shape, addresses);
  CHECK(aligned.alignment[ScanOperand::x] == 8);
  CHECK(aligned.alignment[ScanOperand::b] == 2);
  CHECK(aligned.alignment[ScanOperand::y] == 16);
  CHECK_FALSE(aligned.has(ScanOperand::z));  // still not an operand of the call
}

TEST_CASE("shapes are equal where every value is, and then hash alike", "[scan][operands]") {
  const std::vector<std::function<void(ScanShape*)>> changes = {
      [](ScanShape* s) { s->batch += 1; },
      [](ScanShape* s) { s->seq += 1; },
      [](ScanShape* s) { s->dim += 1; },
      [](ScanShape* s) { s->state += 1; },
      [](ScanShape* s) { s->dtype = Dtype::bf16; },
      [](ScanShape* s) { s->complex = true; },
      [](ScanShape* s) { s->full_matrix = true; },
      [](ScanShape* s) { s->b_layout.constant = true; },
      [](ScanShape* s) { s->c_layout.constant = true; },
      [](ScanShape* s) { s->b_layout.groups = 2; },
      [](ScanShape* s) { s->c_layout.groups = 2; },
      [](ScanShape* s) { s->options.discretization = formulas::Discretization::rk4; },
      [](ScanShape* s) { s->options.dt_softplus = true; },
      [](ScanShape* s) { s->options.dt_min = 0.5f; },
      [](ScanShape* s) { s->options.dt_max = 0.5f; },
      [](ScanShape* s) { s->options.direction = Direction::both; },
      [](ScanShape* s) { s->options.algorithm = ScanAlgorithm::chunked; },
      [](ScanShape* s) { s->add(ScanOperand::z); },
      [](ScanShape* s) { s->add(ScanOperand::d); },
      [](ScanShape* s) { s->add(ScanOperand::states); },
      [](ScanShape* s) { s->remove(ScanOperand::y); },
      [](ScanShape* s) { s->add(ScanOperand::x, 4); },
      [](ScanShape* s) { s->add(ScanOperand::b, 4); },
  };
  const ScanShape plain;
  std::set<std::uint64_t> hashes = {hash(plain)};
  for (const auto& change : changes) {
    ScanShape changed = plain, again = plain;
    change(&changed), change(&again);
    CHECK(changed != plain);
    CHECK(changed == again);
    CHECK(hash(changed) == hash(again));
    CHECK(std::hash<ScanShape>{}(changed) == std::hash<ScanShape>{}(again));
    hashes.insert(hash(changed));
  }
  CHECK(hashes.size() == changes.size() + 1);
  ScanShape zero = plain, negative_zero = plain;
  zero.options.dt_min = 0.0f, negative_zero.options.dt_min = -0.0f;
  CHECK(zero == negative_zero);
  CHECK(hash(zero) == hash(negative_zero));
}

}  // namespace exphil::core
