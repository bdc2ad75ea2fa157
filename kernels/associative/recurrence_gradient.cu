// The elementwise work before and after the scan of a linear recurrence's gradient (recurrence_gradient.cuh).
// One thread for each element. -D from c_src/cuda/associative/recurrence_gradient.cpp: ELEMENT (a number of
// Element).
#include "kernels/associative/device.cuh"
#include "kernels/associative/recurrence_gradient.cuh"

namespace {

using namespace exphil::associative;

using Store = Storage<static_cast<Element>(ELEMENT)>;
using Stored = Store::Stored;
using Value = Store::Value;

EXPHIL_DEVICE Value load(const void* tensor, long long i) {
  return Store::value(static_cast<const Stored*>(tensor)[i]);
}
EXPHIL_DEVICE void store(void* tensor, long long i, Value value) {
  Store::store(static_cast<Stored*>(tensor) + i, value);
}
// A 64-bit division costs a hundred instructions.
EXPHIL_DEVICE long long quotient(long long n, long long d) {
  if (((n | d) >> 32) == 0) return static_cast<unsigned>(n) / static_cast<unsigned>(d);
  return n / d;
}
EXPHIL_DEVICE RecurrencePlace place_at(const RecurrenceShape& shape, long long i) {
  const long long row = quotient(i, shape.inner), outer = quotient(row, shape.length);
  return place_of(shape, i, outer, row - outer * shape.length, i - row * shape.inner);
}
EXPHIL_DEVICE long long element_of_thread() {
  return static_cast<long long>(blockIdx.x) * kRecurrenceGradThreads + threadIdx.x;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(exphil::associative::kRecurrenceGradThreads)
    recurrence_grad_prepare(exphil::associative::RecurrenceGradArguments p) {
  const long long i = element_of_thread();
  if (i >= p.elements) return;
  const RecurrencePlace place = place_at(p.shape, i);
  static_cast<Value*>(p.decays)[i] = decay_for<Value>(place, [&](long long at) { return load(p.a, at); });
  if (p.dh_wide != nullptr) static_cast<Value*>(p.dh_wide)[i] = load(p.dh, i);
}

extern "C" __global__ void __launch_bounds__(exphil::associative::kRecurrenceGradThreads)
    recurrence_grad_finish(exphil::associative::RecurrenceGradArguments p) {
  const long long i = element_of_thread();
  if (i >= p.elements) return;
  const RecurrencePlace place = place_at(p.shape, i);
  const Value db = static_cast<const Value*>(p.sums)[i];
  const Value da = decay_gradient(
      place, db, [&](long long at) { return load(p.h, at); }, p.initial != nullptr,
      [&](long long at) { return load(p.initial, at); });
  store(p.da, i, da);
  store(p.db, i, from_zero(db));
  if (place.first && p.d_initial != nullptr) {
    store(p.d_initial, place.column, exphil::formulas::times_conjugate(db, load(p.a, i)));
  }
}
