// The golden cases of the selective scan (shared goldens/selective_scan): inputs in f32, results in float64.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/scan/call.hpp"

namespace exphil::test {

struct Golden {
  std::string name;
  core::ScanInputs inputs;  // views into `storage`
  core::ScanOptions options;
  bool complex = false;
  // Empty where the file has none. Complex values are interleaved pairs.
  std::vector<double> y, final_state, states;
  std::map<std::string, std::vector<double>> gradients;  // "x", "dt", ...: with respect to <dy, y>
  std::vector<float> dy;

  std::map<std::string, std::vector<float>> storage;

  core::ScanCall call() const { return core::validate_scan(inputs, options); }
};

// Sorted; empty, after a line on stderr, where the shared folder is missing.
std::vector<std::string> golden_names();
Golden load_golden(const std::string& name);

}  // namespace exphil::test
