// Recurrences over heads, and the phases of Mamba-3, in the reference and in its gradient: one frame of each.
// T as in reference_frame.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/reference_frame.hpp"

namespace exphil::core {

template <class T>
struct ReferenceInputs {
  const PolicyValues<T>& weights;
  const BlockFrame& frame;
  const double* before = nullptr;  // the phase's state part before the frame; of the gradient
  const double* in(const Span& span) const { return frame.at(span.vector).data() + span.first; }
  double value(WeightId id, std::int64_t i) const { return value_of(weights, id, i); }
};

// What a phase adds to, and the gradient of its state part: after the frame, and before it from then on.
struct ReferenceGradients {
  std::vector<std::vector<double>>& vectors;  // by VectorId
  PolicyValues<double>& weights;
  double* state = nullptr;
  double* d(const Span& span) const {
    return vectors[static_cast<std::size_t>(span.vector)].data() + span.first;
  }
  void add(WeightId id, std::int64_t i, double value) const {
    if (id != kNone) weights[static_cast<std::size_t>(id)][static_cast<std::size_t>(i)] += value;
  }
};

// state: the phase's part, advanced. out: zeros.
template <class T>
void step_phase(const Delay& p, const ReferenceInputs<T>& from, double* state, double* out);
template <class T>
void step_phase(const Angle& p, const ReferenceInputs<T>& from, double* state, double* out);
template <class T>
void step_phase(const Rotation& p, const ReferenceInputs<T>& from, double* state, double* out);
template <class T>
void step_phase(const Trapezoid& p, const ReferenceInputs<T>& from, double* state, double* out);
template <class T>
void step_phase(const RankScale& p, const ReferenceInputs<T>& from, double* state, double* out);
template <class T>
void step_phase(const HeadRecurrence& p, const ReferenceInputs<T>& from, double* state, double* out);

template <class T>
void phase_back(const Delay& p, const ReferenceInputs<T>& from, const ReferenceGradients& to);
template <class T>
void phase_back(const Angle& p, const ReferenceInputs<T>& from, const ReferenceGradients& to);
template <class T>
void phase_back(const Rotation& p, const ReferenceInputs<T>& from, const ReferenceGradients& to);
template <class T>
void phase_back(const Trapezoid& p, const ReferenceInputs<T>& from, const ReferenceGradients& to);
template <class T>
void phase_back(const RankScale& p, const ReferenceInputs<T>& from, const ReferenceGradients& to);
template <class T>
void phase_back(const HeadRecurrence& p, const ReferenceInputs<T>& from, const ReferenceGradients& to);

}  // namespace exphil::core
