#include "host/policy/phase_access.hpp"

#include <variant>

#include "core/error.hpp"
#include "host/simd/simd.hpp"

namespace exphil::host {

namespace {

// With fewer panels a product has fewer pieces than many lanes need.
constexpr std::int64_t kNarrow = 8;

class Access {
 public:
  explicit Access(const core::Network& network) : network_(network) {}

  PhaseAccess operator()(const core::Copy& phase) {
    require(in_panels(phase.out));
    const bool same_panels = phase.in.first == 0 && phase.out.first == 0;
    return same_panels ? of({}, {phase.in}, phase.out) : of({phase.in}, {}, phase.out);
  }
  PhaseAccess operator()(const core::Norm& phase) {
    require(is_all(phase.in) && is_all(phase.out));
    return padded(of({phase.in}, {}, phase.out));
  }
  PhaseAccess operator()(const core::Product& phase) {
    require(in_panels(phase.out));
    return phase.adds ? of({phase.in}, {phase.out}, phase.out) : of({phase.in}, {}, phase.out);
  }
  PhaseAccess operator()(const core::Convolution& phase) {
    require(is_all(phase.in) && is_all(phase.out));
    return padded(of({}, {phase.in}, phase.out));
  }
  PhaseAccess operator()(const core::Softplus& phase) {
    require(in_panels(phase.in) && in_panels(phase.out));
    return padded(of({}, {phase.in}, phase.out, phase.in));
  }
  PhaseAccess operator()(const core::Mean& phase) {
    require(is_all(phase.out));
    return padded(of({phase.in}, {}, phase.out));
  }
  PhaseAccess operator()(const core::SelectiveScan& phase) {
    for (const core::Span& span : {phase.x, phase.dt, phase.z, phase.out}) require(in_panels(span));
    std::vector<core::Span> whole = {phase.b, phase.c};
    if (phase.input_dt) whole.push_back(phase.input_dt);
    return padded(of(whole, {phase.x, phase.dt, phase.z}, phase.out, phase.x));
  }

 private:
  static void require(bool holds) {
    if (!holds)
      core::fail(core::ErrorKind::internal, "", "the CPU cannot read the parts of a network's vector");
  }
  bool is_all(const core::Span& span) const { return span == network_.all_of(span.vector); }
  // Whether the span begins and ends with a panel of its vector.
  bool in_panels(const core::Span& span) const {
    return span.first % kPanel == 0 &&
           (span.size % kPanel == 0 || span.first + span.size == network_.size_of(span.vector));
  }
  // Rows of the frame are not padded, so only a product and a copy can read them.
  PhaseAccess padded(const PhaseAccess& access) const {
    for (const core::Span& span : access.whole) require(span.vector != network_.frame);
    for (const core::Span& span : access.panels) require(span.vector != network_.frame);
    return access;
  }
  PhaseAccess of(std::vector<core::Span> whole, std::vector<core::Span> panels, const core::Span& out,
                 const core::Span& replaced = {}) const {
    const bool replaces = replaced && is_all(replaced) && is_all(out);
    return {std::move(whole), std::move(panels), out, replaces ? replaced : core::Span{}};
  }

  const core::Network& network_;
};

}  // namespace

PhaseAccess access_of(const core::Network& network, const core::Phase& phase) {
  return std::visit(Access(network), phase);
}

std::vector<std::int64_t> row_steps(const core::Network& network) {
  std::vector<std::int64_t> steps;
  for (const core::Vector& vector : network.vectors) steps.push_back(padded(vector.size));
  for (const core::Phase* phase : core::phases_of(network)) {
    if (std::holds_alternative<core::Mean>(*phase)) {
      steps[static_cast<std::size_t>(core::writes(*phase).vector)] = 1;
    }
  }
  steps[static_cast<std::size_t>(network.frame)] = network.size_of(network.frame);
  return steps;
}

bool is_small(const core::Phase& phase, bool many_rows) {
  return std::holds_alternative<core::Mean>(phase) ||
         (std::holds_alternative<core::Norm>(phase) && !many_rows);
}

bool splits_rows(const core::Phase& phase, bool many_rows) {
  const auto* const product = std::get_if<core::Product>(&phase);
  if (product == nullptr) return is_small(phase, false);
  return many_rows && panels(product->out.size) < kNarrow && product->out.size < product->in.size;
}

}  // namespace exphil::host
