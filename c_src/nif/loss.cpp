// Losses of a policy's outputs with their gradients, on the CPU.
#include "core/training/loss.hpp"

#include <cmath>

#include "nif/functions.hpp"
#include "nif/training.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;
using core::Shape;

namespace {

// A term cannot hold another number.
Term finite(Call& call, double loss) {
  if (!std::isfinite(loss)) {
    fail(ErrorKind::invalid_argument, "outs", "outs must give a finite loss, got ", loss);
  }
  return enif_make_double(call.env(), loss);
}

template <class T>
Term cross_entropy_of(Call& call, const core::TensorView& outs, const std::vector<core::LossGroup>& groups,
                      const core::TensorView& targets) {
  const std::int64_t d_output = outs.shape[outs.shape.rank() - 1];
  const std::int64_t rows = d_output == 0 ? 0 : outs.shape.elements("outs") / d_output;
  NewBinary d_outs(outs.bytes);
  const auto losses = core::cross_entropy(static_cast<const T*>(outs.data), rows, d_output, groups,
                                          static_cast<const std::int32_t*>(targets.data),
                                          reinterpret_cast<T*>(d_outs.data()));
  std::vector<Term> terms;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    terms.push_back(enif_make_tuple3(call.env(), encode(call, groups[g].name), finite(call, losses[g].loss),
                                     enif_make_double(call.env(), losses[g].correct)));
  }
  return enif_make_tuple2(call.env(), encode_list(call, terms),
                          encode_tensor(call, outs.dtype, outs.shape, d_outs.term(call)));
}

}  // namespace

Term cross_entropy(Call& call, core::TensorView outs, LossGroups given, core::TensorView targets) {
  const bool wide = is_double(outs, "outs");
  if (outs.shape.rank() < 1) fail(ErrorKind::invalid_argument, "outs", "outs must have an axis of outputs");
  std::vector<core::LossGroup> groups;
  std::int64_t columns = 0;
  for (const auto& [name, first, count, binary] : given) {
    groups.push_back({name, first, count, binary});
    columns += groups.back().columns();
  }
  Shape expected;
  for (int axis = 0; axis + 1 < outs.shape.rank(); ++axis) expected.push_back(outs.shape[axis]);
  expected.push_back(columns);
  require_tensor(targets, core::Dtype::s32, expected, "targets");
  return wide ? cross_entropy_of<double>(call, outs, groups, targets)
              : cross_entropy_of<float>(call, outs, groups, targets);
}

Term mean_squared_error(Call& call, core::TensorView outs, core::TensorView targets) {
  const bool wide = is_double(outs, "outs");
  require_tensor(targets, outs.dtype, outs.shape, "targets");
  NewBinary d_outs(outs.bytes);
  const std::int64_t count = outs.shape.elements("outs");
  const double loss =
      wide ? core::mean_squared_error(static_cast<const double*>(outs.data),
                                      static_cast<const double*>(targets.data), count,
                                      reinterpret_cast<double*>(d_outs.data()))
           : core::mean_squared_error(static_cast<const float*>(outs.data),
                                      static_cast<const float*>(targets.data), count, d_outs.floats());
  return enif_make_tuple2(call.env(), finite(call, loss),
                          encode_tensor(call, outs.dtype, outs.shape, d_outs.term(call)));
}

}  // namespace exphil::nif
