#include "host/policy/gradient_gaps.hpp"

#include <algorithm>

namespace exphil::host {

namespace {

// Whether every phase that writes to hidden writes all of it.
bool hidden_is_whole(const core::Network& network) {
  const std::vector<const core::Phase*> phases = core::phases_of(network);
  return std::all_of(phases.begin(), phases.end(), [&](const core::Phase* phase) {
    const core::Span out = core::writes(*phase);
    return out.vector != network.hidden || out == network.all_of(network.hidden);
  });
}

void clear_all_but(const std::vector<core::Span>& spans, const MatrixRows& rows, std::int64_t count) {
  std::vector<bool> covered(static_cast<std::size_t>(rows.step));
  for (const core::Span& span : spans) std::fill_n(covered.begin() + span.first, span.size, true);
  for (auto end = covered.begin();;) {
    const auto begin = std::find(end, covered.end(), false);
    if (begin == covered.end()) return;
    end = std::find(begin, covered.end(), true);
    for (std::int64_t row = 0; row < count; ++row) {
      std::fill_n(rows.data + row * rows.step + (begin - covered.begin()), end - begin, 0.0f);
    }
  }
}

}  // namespace

void clear_gaps(const core::Network& network, const core::Block& block, const std::vector<MatrixRows>& at,
                std::int64_t count) {
  std::vector<std::vector<core::Span>> written(at.size());
  for (const core::Phase& phase : block) {
    const core::Span out = core::writes(phase);
    written[static_cast<std::size_t>(out.vector)].push_back(out);
  }
  const auto frame = static_cast<std::size_t>(network.frame),
             hidden = static_cast<std::size_t>(network.hidden);
  written[frame] = {network.all_of(network.frame)};
  // Blocks pass it on: one may find values in it that an earlier one wrote.
  written[hidden].clear();
  if (hidden_is_whole(network)) written[hidden] = {network.all_of(network.hidden)};
  for (std::size_t id = 0; id < at.size(); ++id) {
    const bool has_values = id == hidden || !written[id].empty();
    if (has_values && at[id].data != nullptr) clear_all_but(written[id], at[id], count);
  }
}

}  // namespace exphil::host
