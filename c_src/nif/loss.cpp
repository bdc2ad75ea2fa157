// Losses of a policy's outputs, and choices among them. They run on the CPU.
#include <cmath>
#include <optional>

#include "core/training/loss.hpp"
#include "nif/functions.hpp"
#include "nif/training.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;
using core::Shape;

namespace {

// The last axis are the outputs.
struct Rows {
  std::int64_t count = 0, width = 0;
};
Rows rows_of(const core::TensorView& outs) {
  const int rank = outs.shape.rank();
  const std::int64_t width = rank == 0 ? 1 : outs.shape[rank - 1];
  return {width == 0 ? 0 : outs.shape.elements("outs") / width, width};
}

// The groups, and the shape of a choice for each.
struct Grouped {
  std::vector<core::LossGroup> groups;
  Shape choices;
};
Grouped grouped_of(const core::TensorView& outs, const LossGroups& given) {
  if (outs.shape.rank() < 1) fail(ErrorKind::invalid_argument, "outs", "outs must have an axis of outputs");
  Grouped grouped;
  std::int64_t columns = 0;
  for (const auto& [name, first, count, binary] : given) {
    grouped.groups.push_back({name, first, count, binary});
    columns += grouped.groups.back().columns();
  }
  for (int axis = 0; axis + 1 < outs.shape.rank(); ++axis) grouped.choices.push_back(outs.shape[axis]);
  grouped.choices.push_back(columns);
  return grouped;
}

// {rows}, in the shape of the outputs without their last axis; null where there is none.
const std::int32_t* mask_of(const core::TensorView& outs, const std::optional<core::TensorView>& mask) {
  if (!mask) return nullptr;
  Shape shape;
  for (int axis = 0; axis + 1 < outs.shape.rank(); ++axis) shape.push_back(outs.shape[axis]);
  require_tensor(*mask, core::Dtype::s32, shape, ":mask");
  return static_cast<const std::int32_t*>(mask->data);
}

// A term cannot hold another number.
Term finite(Call& call, double loss) {
  if (!std::isfinite(loss)) {
    fail(ErrorKind::invalid_argument, "outs", "outs must give a finite loss, got ", loss);
  }
  return enif_make_double(call.env(), loss);
}

template <class T>
Term cross_entropy_of(Call& call, const core::TensorView& outs, const std::vector<core::LossGroup>& groups,
                      const core::TensorView& targets, const std::int32_t* mask) {
  const Rows rows = rows_of(outs);
  NewBinary d_outs(outs.bytes);
  const auto losses = core::cross_entropy(static_cast<const T*>(outs.data), rows.count, rows.width, groups,
                                          static_cast<const std::int32_t*>(targets.data), mask,
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

Term cross_entropy(Call& call, core::TensorView outs, LossGroups given, core::TensorView targets,
                   std::optional<core::TensorView> mask) {
  const bool wide = is_double(outs, "outs");
  const Grouped grouped = grouped_of(outs, given);
  require_tensor(targets, core::Dtype::s32, grouped.choices, "targets");
  const std::int32_t* const counts = mask_of(outs, mask);
  return wide ? cross_entropy_of<double>(call, outs, grouped.groups, targets, counts)
              : cross_entropy_of<float>(call, outs, grouped.groups, targets, counts);
}

Term mean_squared_error(Call& call, core::TensorView outs, core::TensorView targets,
                        std::optional<core::TensorView> mask) {
  const bool wide = is_double(outs, "outs");
  require_tensor(targets, outs.dtype, outs.shape, "targets");
  const std::int32_t* const counts = mask_of(outs, mask);
  const Rows rows = rows_of(outs);
  NewBinary d_outs(outs.bytes);
  const double loss =
      wide ? core::mean_squared_error(static_cast<const double*>(outs.data),
                                      static_cast<const double*>(targets.data), rows.count, rows.width,
                                      counts, reinterpret_cast<double*>(d_outs.data()))
           : core::mean_squared_error(static_cast<const float*>(outs.data),
                                      static_cast<const float*>(targets.data), rows.count, rows.width, counts,
                                      d_outs.floats());
  return enif_make_tuple2(call.env(), finite(call, loss),
                          encode_tensor(call, outs.dtype, outs.shape, d_outs.term(call)));
}

Term choose(Call& call, core::TensorView outs, LossGroups given, std::optional<DrawsTuple> drawn) {
  const bool wide = is_double(outs, "outs");
  const Grouped grouped = grouped_of(outs, given);
  std::optional<core::Draws> draws;
  if (drawn) draws = core::Draws{std::get<0>(*drawn), std::get<1>(*drawn).value, std::get<2>(*drawn).value};
  const std::int64_t count = grouped.choices.elements("outs");
  NewBinary choices(static_cast<std::size_t>(core::checked_multiply(count, 4, "outs")));
  const Rows rows = rows_of(outs);
  const core::Draws* const from = draws ? &*draws : nullptr;
  auto* const to = reinterpret_cast<std::int32_t*>(choices.data());
  wide ? core::choose(static_cast<const double*>(outs.data), rows.count, rows.width, grouped.groups, from, to)
       : core::choose(static_cast<const float*>(outs.data), rows.count, rows.width, grouped.groups, from, to);
  return encode_tensor(call, core::Dtype::s32, grouped.choices, choices.term(call));
}

}  // namespace exphil::nif
