// Parses the names of option values for nif/ and xla/. Throws invalid_argument for an unknown name, with
// `argument` and the known names. Pure functions; any thread.
#pragma once

#include <string>

#include "core/direction.hpp"
#include "core/recurrent/operators.hpp"
#include "core/scan/shape.hpp"
#include "kernels/associative/ops.cuh"

namespace exphil::core {

formulas::Discretization discretization_named(const std::string& name, const char* argument);
Direction direction_named(const std::string& name, const char* argument);  // forward, reverse, both
ScanAlgorithm scan_algorithm_named(const std::string& name,
                                   const char* argument);  // auto, sequential, chunked
associative::Op associative_op_named(const std::string& name,
                                     const char* argument);  // cumsum, ..., linear_recurrence
RecurrentOp recurrent_op_named(const std::string& name, const char* argument);  // gru_scan, ..., liquid

}  // namespace exphil::core
