#include "host/policy/phase_access.hpp"

#include <variant>

#include "core/error.hpp"
#include "host/simd/simd.hpp"

namespace exphil::host {

namespace {

// With fewer panels a product has fewer pieces than many lanes need.
constexpr std::int64_t kNarrow = 8;

template <class Kind>
bool is(const core::Phase& phase) {
  return std::holds_alternative<Kind>(phase);
}

void require(bool holds) {
  if (!holds)
    core::fail(core::ErrorKind::internal, "", "the CPU cannot read the parts of a network's vector");
}

// The first values of hidden may be all that a block passes on.
bool begins_hidden(const core::Network& network, const core::Span& span) {
  return span.vector == network.hidden && span.first == 0;
}

// Whether a span begins and ends with a panel of its vector.
bool in_panels(const core::Network& network, const core::Span& span) {
  return span.first % kPanel == 0 &&
         (span.size % kPanel == 0 || span.first + span.size == network.size_of(span.vector) ||
          begins_hidden(network, span));
}

// Whether all that a gate reads and writes is in panels; else it takes rows.
bool gates_panels(const core::Network& network, const core::Phase& phase) {
  const auto* const gate = std::get_if<core::Gate>(&phase);
  return gate != nullptr && in_panels(network, gate->in) && in_panels(network, gate->gate) &&
         in_panels(network, gate->out);
}

// Whether a recall reads values of a cell that lie one after another.
bool can_recall(const core::Network& network, const core::Recall& recall) {
  for (const core::Phase* phase : core::phases_of(network)) {
    const auto* const cell = std::get_if<core::GatedCell>(phase);
    if (cell != nullptr && cell->state == recall.state) return recall.out.size <= cell->out.size;
  }
  return false;
}

// Whether every panel of the outputs needs all of an input.
bool needs_whole(const core::Network& network, const core::Phase& phase, const core::Span& in) {
  if (const auto* const product = std::get_if<core::Product>(&phase)) return in == product->in;
  if (const auto* const scan = std::get_if<core::SelectiveScan>(&phase)) {
    return in == scan->b || in == scan->c || in == scan->input_dt;
  }
  if (is<core::Gate>(phase)) return !gates_panels(network, phase);
  return is<core::Norm>(phase) || is<core::Mean>(phase) || is<core::HeadRecurrence>(phase) ||
         is<core::Angle>(phase) || is<core::Rotation>(phase) || is<core::Trapezoid>(phase) ||
         is<core::RankScale>(phase) || (is<core::Copy>(phase) && !in_panels(network, in));
}

}  // namespace

PhaseAccess access_of(const core::Network& network, const core::Phase& phase) {
  PhaseAccess access;
  access.out = core::writes(phase);
  // A norm writes zeros to the rest of its last panel, but where it takes parts.
  const auto* const norm = std::get_if<core::Norm>(&phase);
  require(norm != nullptr ? access.out.first == 0 || norm_parts(*norm) > 0
                          : splits_rows(network, phase, false) || in_panels(network, access.out));
  const bool whole_out = is<core::Convolution>(phase) || is<core::Mean>(phase) || is<core::Trapezoid>(phase);
  if (whole_out) require(access.out == network.all_of(access.out.vector));
  if (const auto* const recall = std::get_if<core::Recall>(&phase)) require(can_recall(network, *recall));
  for (const core::Span& in : core::reads(phase)) {
    if (is<core::Norm>(phase)) require(in == network.all_of(in.vector) || begins_hidden(network, in));
    // Rows of the frame are not padded.
    require(is<core::Product>(phase) || is<core::Copy>(phase) || in.vector != network.frame);
    const bool whole = needs_whole(network, phase, in);
    require(whole || in_panels(network, in));
    (whole ? access.whole : access.panels).push_back(in);
  }
  return access;
}

std::vector<std::int64_t> row_steps(const core::Network& network) {
  std::vector<std::int64_t> steps;
  for (const core::Vector& vector : network.vectors) steps.push_back(padded(vector.size));
  for (const core::Phase* phase : core::phases_of(network)) {
    if (is<core::Mean>(*phase) && core::writes(*phase).size == 1)
      steps[static_cast<std::size_t>(core::writes(*phase).vector)] = 1;
  }
  steps[static_cast<std::size_t>(network.frame)] = network.size_of(network.frame);
  return steps;
}

std::int64_t norm_parts(const core::Norm& norm) {
  return norm.parts > 1 || norm.out.first != 0 ? norm.parts : 0;
}

std::int64_t panels_of(const core::Phase& phase) {
  const auto* const heads = std::get_if<core::HeadRecurrence>(&phase);
  return panels(heads != nullptr ? heads->value.size : core::writes(phase).size);
}

bool is_small(const core::Phase& phase, bool many_rows) {
  return is<core::Mean>(phase) ||
         (!many_rows && (is<core::Norm>(phase) || is<core::Recall>(phase) || is<core::Trapezoid>(phase)));
}

bool splits_rows(const core::Network& network, const core::Phase& phase, bool many_rows) {
  const auto* const product = std::get_if<core::Product>(&phase);
  if (is<core::Gate>(phase)) return !gates_panels(network, phase);
  if (product == nullptr) return is<core::Norm>(phase) || is<core::Mean>(phase) || is<core::Trapezoid>(phase);
  return many_rows && panels(product->out.size) < kNarrow && product->out.size < product->in.size;
}

}  // namespace exphil::host
