// The plan for kernels/selective_scan_wide.cu: which scans it takes, and how they are cut. Pure functions of
// shape, device and tuning; any thread.
//
// What may change the bits of a result (whether the kernel is taken, the algorithm, the steps of a chunk)
// depends on seq, dim, state, dtype and options alone, never on the batch; groups and times cannot change
// them and are chosen with the batch in view.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/scan_problem.hpp"
#include "cuda/context.hpp"
#include "cuda/kernel_cache.hpp"
#include "cuda/scan_plan.hpp"

namespace exphil::cuda {

// Whether the scan is one that the wide kernel does. vector_rows: b and c may be read four elements at a
// time.
bool scans_wide(const core::ScanProblem& problem, const core::ScanOutputs& outputs, bool vector_rows);

// lanes, per_lane and max_threads of the plan mean nothing here.
ScanPlan plan_wide(const core::ScanProblem& problem, const DeviceProperties& device,
                   const ScanTuning& tuning = {});

std::size_t wide_shared_bytes(const core::ScanProblem& problem, const ScanPlan& plan);
KernelSpec wide_kernel_spec(const core::ScanProblem& problem, const ScanPlan& plan, bool write_states);

}  // namespace exphil::cuda
