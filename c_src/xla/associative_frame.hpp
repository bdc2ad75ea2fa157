// Reads what the handlers of the associative scans and of the recurrence's gradient share. Every reader
// throws core::Error (invalid_argument) that names the argument or attribute. Callers: associative.cpp and
// recurrence_gradient.cpp. Plain functions: any thread.
#pragma once

#include <optional>

#include "core/associative/problem.hpp"
#include "xla/ffi.hpp"

namespace exphil::xla {

// axis and direction.
core::AssociativeOptions read_associative_options(const Frame& frame);

// Argument `index` where the attribute operands is "initial_state"; none where it is absent or empty.
std::optional<core::TensorView> read_initial_state(const Frame& frame, std::int64_t index);

// The address of result `index`, whose type and shape must be those of `like`.
void* read_like(const Frame& frame, std::int64_t index, const char* name, const core::TensorView& like);

// Throws unless the call has this number of arguments, of results.
void require_arguments(const Frame& frame, std::int64_t count);
void require_results(const Frame& frame, std::int64_t count);

}  // namespace exphil::xla
