// Runs the associative-scan kernels on the emulated grid of support/grid.hpp.
#pragma once

#include "support/associative_names.hpp"
#include "support/grid_run.hpp"

#define __shared__ static

#include "kernels/associative/columns.cuh"
#include "kernels/associative/rows.cuh"
