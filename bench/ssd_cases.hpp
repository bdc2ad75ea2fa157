// The shapes that host_ssd.cpp and gpu_ssd.cpp time: those of published Mamba-2 models, and a policy's.
#pragma once

#include "core/ssd/call.hpp"

namespace exphil::bench {

struct SsdBenchCase {
  const char* name;
  std::int64_t batch, seq, heads, headdim, groups, state;
};
inline constexpr SsdBenchCase kSsdCases[] = {
    {"a policy's window", 32, 60, 8, 64, 1, 16},
    {"mamba2-130m", 8, 2048, 24, 64, 1, 128},
    {"mamba2-2.7b", 1, 2048, 80, 64, 1, 128},
};

inline core::SsdShape shape_of(const SsdBenchCase& c, bool gradient) {
  using Id = core::SsdOperand;
  core::SsdShape s;
  s.batch = c.batch, s.seq = c.seq, s.heads = c.heads, s.headdim = c.headdim;
  s.groups = c.groups, s.state = c.state;
  s.options.dt_softplus = true;
  for (const Id id : core::kSsdInputs) s.add(id);
  s.add(gradient ? Id::dy : Id::y);
  if (!gradient) return s;
  for (const Id id : {Id::grad_x, Id::grad_dt, Id::grad_a, Id::grad_b, Id::grad_c}) s.add(id);
  return s;
}

}  // namespace exphil::bench
