#include "host/policy/schedule.hpp"

#include <algorithm>
#include <utility>

#include "host/policy/phase_access.hpp"
#include "host/simd/simd.hpp"

namespace exphil::host {

namespace {

constexpr std::int64_t kMostPanels = 4, kPieces = 8;  // of a piece; of a region, where that is not more
constexpr std::int64_t kRowsOfPiece = 8;

template <class T>
bool has(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

bool has_vector(const std::vector<core::Span>& spans, core::VectorId vector) {
  return std::any_of(spans.begin(), spans.end(), [=](const core::Span& s) { return s.vector == vector; });
}

class Scheduler {
 public:
  Scheduler(const core::Network& network, const core::Block& block, bool many_rows)
      : n_(network), block_(block), many_(many_rows) {}

  Schedule run(const PhaseList& phases, const std::vector<core::VectorId>& wanted) {
    for (const std::size_t i : phases) {
      made_.alone.push_back(step_of(i));
      if (each_lane_can(i, phases, wanted)) made_.own.push_back(made_.alone.back());
    }
    for (const Step& step : made_.alone) {
      if (!has(made_.own, step)) place(step);
    }
    return std::move(made_);
  }

 private:
  core::VectorId out(std::size_t i) const { return core::writes(block_[i]).vector; }
  bool reads(std::size_t i, core::VectorId vector) const {
    return has_vector(core::reads(block_[i]), vector);
  }

  Step step_of(std::size_t i) const {
    Step step{i, runner_of(block_[i]), splits_rows(block_[i], many_), panels(core::writes(block_[i]).size)};
    step.grain =
        step.by_rows ? kRowsOfPiece : std::clamp<std::int64_t>(step.panels / kPieces, 1, kMostPanels);
    return step;
  }

  // Not where its result leaves the block, nor where a phase that reads it changes what it was computed from.
  bool each_lane_can(std::size_t i, const PhaseList& phases,
                     const std::vector<core::VectorId>& wanted) const {
    if (!is_small(block_[i], many_) || has(wanted, out(i))) return false;
    return std::none_of(phases.begin(), phases.end(),
                        [&](std::size_t reader) { return reads(reader, out(i)) && reads(i, out(reader)); });
  }

  // What each lane computes for itself before phase i, in the order of the block.
  void add_needs(std::size_t i, std::vector<Step>* needs) const {
    for (const Step& own : made_.own) {
      if (!reads(i, out(own.phase))) continue;
      add_needs(own.phase, needs);
      if (!has(*needs, own)) needs->push_back(own);
    }
  }

  void place(const Step& step) {
    PhaseAccess access = access_of(n_, block_[step.phase]);
    std::vector<Step> needs;
    add_needs(step.phase, &needs);
    for (const Step& own : needs) {
      for (const core::Span& in : core::reads(block_[own.phase])) access.whole.push_back(in);
    }
    if (!joins(step, access)) {
      made_.regions.emplace_back();
      written_.clear(), read_whole_.clear();
    }
    Region& to = made_.regions.back();
    to.steps.push_back(step);
    for (const Step& own : needs) {
      if (!has(to.own, own)) to.own.push_back(own);
    }
    written_.push_back(access.out);
    read_whole_.insert(read_whole_.end(), access.whole.begin(), access.whole.end());
  }

  // Whether a phase can be in the last region.
  bool joins(const Step& step, const PhaseAccess& access) const {
    if (made_.regions.empty()) return false;
    const Step& last = made_.regions.back().steps.back();
    if (last.by_rows || step.by_rows || last.panels != step.panels) return false;
    for (const core::Span& w : written_) {
      if (has_vector(access.whole, w.vector)) return false;
      for (const core::Span& in : access.panels) {
        if (in.vector == w.vector && in.first != w.first) return false;
      }
    }
    return !has_vector(read_whole_, access.out.vector);
  }

  const core::Network& n_;
  const core::Block& block_;
  const bool many_;
  Schedule made_;
  std::vector<core::Span> written_, read_whole_;  // by the last region
};

}  // namespace

Schedule schedule_of(const core::Network& network, const core::Block& block, const PhaseList& phases,
                     const std::vector<core::VectorId>& wanted, bool many_rows) {
  return Scheduler(network, block, many_rows).run(phases, wanted);
}

}  // namespace exphil::host
