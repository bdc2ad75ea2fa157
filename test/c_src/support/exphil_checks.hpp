// What every backend must answer for the policies in the shared folder exphil/. The host's tests and the
// GPU's call these with their own way to load a policy; each uses Catch's CHECK.
#pragma once

#include <functional>
#include <memory>

#include "core/policy/policy.hpp"

namespace exphil::test {

using MakePolicy = std::function<std::unique_ptr<core::Policy>(std::shared_ptr<const core::PolicyWeights>)>;

void check_every_tensor_is_used(const MakePolicy& make);
void check_expected_outputs(const MakePolicy& make);
void check_every_position(const MakePolicy& make);
void check_other_options(const MakePolicy& make);  // dt of the channel, another chunk size, warm-up frames
void check_same_bits(const MakePolicy& make);      // steps, batches, prefill and windows
void check_other_outputs(const MakePolicy& make);

}  // namespace exphil::test
