#include "host/policy/schedule.hpp"

#include <algorithm>
#include <utility>

#include "host/policy/phase_access.hpp"
#include "host/simd/simd.hpp"

namespace exphil::host {

namespace {

constexpr std::int32_t kMostPanels = 4, kPieces = 8;  // of a piece; of a region, where that is not more
constexpr std::int32_t kRowsOfPiece = 8;

template <class T>
bool has(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

bool has_vector(const std::vector<core::Span>& spans, core::VectorId vector) {
  return std::any_of(spans.begin(), spans.end(), [=](const core::Span& s) { return s.vector == vector; });
}

class Scheduler {
 public:
  Scheduler(const core::Network& network, const core::Block& block, PassKind kind)
      : n_(network), block_(block), many_(kind != PassKind::few_rows), walks_(kind == PassKind::sequences) {}

  Schedule run(const PhaseList& phases, const std::vector<core::VectorId>& wanted) {
    for (std::size_t at = 0; at < phases.size(); ++at) {
      const std::size_t i = phases[at];
      made_.alone.push_back(step_of(i));
      if (walks_ && core::recalled_by(block_[i]) != core::kNone) {
        Walk walk;
        for (const std::size_t last = walk_end(block_, i); at < phases.size() && phases[at] <= last; ++at) {
          walk.steps.push_back(step_of(phases[at]));
          walked_.push_back(phases[at]);
        }
        --at;
        made_.alone.back().begins_walk = true;
        walk.by_panels = splits_by_panels(walk.steps);
        made_.walks.push_back(std::move(walk));
      }
    }
    for (const Step& step : made_.alone) {
      if (!step.begins_walk && each_lane_can(step.phase, phases, wanted)) made_.own.push_back(step);
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
    Step step;
    step.phase = static_cast<std::uint32_t>(i);
    step.run = runner_of(block_[i]), step.by_rows = splits_rows(n_, block_[i], many_);
    step.panels = static_cast<std::int32_t>(panels_of(block_[i]));
    step.grain = step.by_rows ? kRowsOfPiece : std::clamp(step.panels / kPieces, 1, kMostPanels);
    return step;
  }

  // Not where its result leaves the block, nor where a phase that reads it changes what it was computed from.
  bool each_lane_can(std::size_t i, const PhaseList& phases,
                     const std::vector<core::VectorId>& wanted) const {
    if (!is_small(block_[i], many_) || has(wanted, out(i))) return false;
    for (const std::size_t other : phases) {  // whose part of the vector would be elsewhere
      if (other != i && out(other) == out(i)) return false;
    }
    return std::none_of(phases.begin(), phases.end(), [&](std::size_t reader) {
      return reads(reader, out(i)) && (reads(i, out(reader)) || has(walked_, reader));
    });
  }

  // Whether what a walk's recalls and cells do needs their own panels alone, and its other phases beside them
  // read whole vectors only of recalls or of phases that are not walked.
  bool splits_by_panels(const std::vector<Step>& walk) const {
    for (const Step& step : walk) {
      const PhaseAccess access = access_of(n_, block_[step.phase]);
      if (step.panels != walk.front().panels || step.by_rows) return false;
      for (const Step& other : walk) {
        const core::Span w = core::writes(block_[other.phase]);
        const bool recall = core::recalled_by(block_[other.phase]) != core::kNone;
        if (!recall && has_vector(access.whole, w.vector)) return false;
        for (const core::Span& in : access.panels) {
          if (in.vector == w.vector && (recall || in.first != w.first)) return false;
        }
      }
    }
    return true;
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
    if (step.begins_walk) {  // a region of its own
      made_.regions.push_back({{}, {step}});
      return;
    }
    PhaseAccess access = access_of(n_, block_[step.phase]);
    std::vector<Step> needs;
    add_needs(step.phase, &needs);
    for (const Step& own : needs) {
      for (const core::Span& in : core::reads(block_[own.phase])) access.whole.push_back(in);
    }
    if (!joins(step, access)) {
      made_.regions.emplace_back();
      written_.clear(), read_whole_.clear(), recalled_.clear();
    }
    Region& to = made_.regions.back();
    to.steps.push_back(step);
    for (const Step& own : needs) {
      if (!has(to.own, own)) to.own.push_back(own);
      recalled_.push_back(core::recalled_by(block_[own.phase]));
    }
    recalled_.push_back(core::recalled_by(block_[step.phase]));
    written_.push_back(access.out);
    read_whole_.insert(read_whole_.end(), access.whole.begin(), access.whole.end());
  }

  // Whether a phase can be in the last region.
  bool joins(const Step& step, const PhaseAccess& access) const {
    if (made_.regions.empty()) return false;
    const Step& last = made_.regions.back().steps.back();
    if (last.begins_walk) return false;
    // A lane may recall a state when another one has advanced it in place.
    const core::StateId state = core::state_of(block_[step.phase]);
    if (state != core::kNone && has(recalled_, state)) return false;
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
  const bool many_, walks_;
  Schedule made_;
  PhaseList walked_;
  std::vector<core::Span> written_, read_whole_;  // by the last region
  std::vector<core::StateId> recalled_;           // by the last region
};

}  // namespace

Schedule schedule_of(const core::Network& network, const core::Block& block, const PhaseList& phases,
                     const std::vector<core::VectorId>& wanted, PassKind kind) {
  return Scheduler(network, block, kind).run(phases, wanted);
}

}  // namespace exphil::host
