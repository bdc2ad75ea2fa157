// What every backend must answer in every precision: the float64 reference of the rounded weights, over the
// recorded traces of the shared folder. The host's tests and the GPU's call these with their own way to load
// a policy; each uses Catch's CHECK.
//
// The reference takes a millisecond for each frame: without EXPHIL_WHOLE_TRACES in the environment (.ci/run
// sets it) 500 frames of each trace are compared.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/policy/policy.hpp"

namespace exphil::test {

inline constexpr core::Precision kPrecisions[] = {core::Precision::f32, core::Precision::bf16,
                                                  core::Precision::f16, core::Precision::int8,
                                                  core::Precision::tf32x3};

using MakeRounded = std::function<std::unique_ptr<core::Policy>(std::shared_ptr<const core::PolicyWeights>)>;

// The match, the rollback trace and the windows of melee/.
void check_melee_in_every_precision(const MakeRounded& make);
// The windows of every policy of exphil/, and a carried state.
void check_exphil_in_every_precision(const MakeRounded& make);

}  // namespace exphil::test
