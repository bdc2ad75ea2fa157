// The operator of Mamba-2 (core/ssd/call.hpp) and its gradient on a CUDA device. Callers: the CUDA backend,
// the XLA handlers, tests. Any thread.
//
// The rows of each head's state are divided among blocks, which walk through time in order: the walk of
// kernels/policy/gradient_heads.cu, which gradients of policies share. The batch goes through in slices whose
// scratch is bounded; that changes no bit.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

#include "core/ssd/call.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_spec.hpp"

namespace exphil::cuda {

// The complete call, or that of the gradient: tensors in host memory, copied there and back.
void run_ssd(Context& context, const core::SsdCall& call);

// Bytes of device memory that a call needs beside its tensors.
std::size_t ssd_scratch(const core::SsdShape& shape);

// Compiles the kernels. The context must be current.
void prepare_ssd(Context& context, const core::SsdShape& shape);

// Queued on `stream`: the operator, or with dy its gradient, on tensors in device memory, which begin at
// multiples of 16 bytes. `scratch` holds ssd_scratch() bytes, aligned to 256. The context must be current.
// Throws limit_exceeded for more blocks than a grid has.
void enqueue_ssd(Context& context, CUstream stream, const core::SsdShape& shape,
                 const core::SsdOperands<CUdeviceptr>& operands, CUdeviceptr scratch);

// Every kernel of elements.cu in each type, and some of the walk, for the tests that compile them.
std::vector<KernelSpec> ssd_kernel_variants();

}  // namespace exphil::cuda
