// An emulated GPU: the library over the fake driver and the fake NVRTC, with kernels on the emulated grid of
// support/grid.hpp. Everything else is the product's code: plans, specs, caches, uploads, slices, arguments
// and launches.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cuda/cuda_test.hpp"

namespace exphil::test {

// Runs the tests with `tag` in a child process with an emulated device, and ends the test where they fail.
// Where `variables` do not have EXPHIL_NATIVE_POLICY, a policy's steps and windows are those of one block.
void require_emulated(const std::string& tag, const std::map<std::string, std::string>& variables = {});

// The same for each tag, with steps by teams of four blocks. `more` is added to EXPHIL_NATIVE_POLICY.
void require_emulated_teams(const std::vector<std::string>& tags, const std::string& more = "");

// Inside such a child: from now on launches of the scans', the recurrence gradient's and the policy's kernels
// run, others fail.
void emulate_launches();

// EXPHIL_NATIVE_POLICY for policies in such a child.
inline constexpr char kEmulatedPolicy[] = "team=1,inline_obs=0,batch_agents=2,window_blocks=1";

// How often a kernel has run so far.
int emulated_launches(const std::string& entry);

}  // namespace exphil::test
