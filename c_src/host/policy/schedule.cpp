#include "host/policy/schedule.hpp"

#include <algorithm>
#include <cstdint>

namespace exphil::host {

namespace {

constexpr std::int64_t kMostPanels = 4, kPieces = 8;  // of a piece; of a region, where that is not more
constexpr std::int64_t kRowsOfPiece = 8;

template <class T>
bool has(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

bool reads_vector(const core::Phase& phase, core::VectorId vector) {
  const std::vector<core::Span> spans = core::reads(phase);
  return std::any_of(spans.begin(), spans.end(), [=](const core::Span& s) { return s.vector == vector; });
}

class Scheduler {
 public:
  Scheduler(const ScheduleRequest& request, bool many_rows) : r_(request), many_(many_rows) {
    for (const std::size_t i : r_.phases) {
      if (each_lane_can(i)) made_.own.push_back(i);
    }
  }

  Schedule run() {
    for (const std::size_t i : r_.phases) {
      if (!has(made_.own, i)) place(i);
    }
    return std::move(made_);
  }

 private:
  const core::Phase& phase(std::size_t i) const { return r_.block[i]; }
  core::VectorId memory(const core::Span& span) const {
    return r_.places[static_cast<std::size_t>(span.vector)].memory;
  }

  // Not where its result leaves the block, nor where a phase that reads it changes what it was computed from.
  bool each_lane_can(std::size_t i) const {
    if (!is_small(phase(i), many_)) return false;
    const core::Span out = core::writes(phase(i));
    if (has(r_.wanted, out.vector)) return false;
    for (const std::size_t reader : r_.phases) {
      if (!reads_vector(phase(reader), out.vector)) continue;
      for (const core::Span& in : core::reads(phase(i))) {
        if (memory(in) == memory(core::writes(phase(reader)))) return false;
      }
    }
    return true;
  }

  // What each lane computes for itself before phase i, in the order of the block.
  void add_needs(std::size_t i, PhaseList* needs) const {
    for (const std::size_t own : made_.own) {
      if (!reads_vector(phase(i), core::writes(phase(own)).vector)) continue;
      add_needs(own, needs);
      if (!has(*needs, own)) needs->push_back(own);
    }
  }

  void place(std::size_t i) {
    PhaseAccess access = access_of(r_.network, phase(i));
    PhaseList needs;
    add_needs(i, &needs);
    for (const std::size_t own : needs) {
      for (const core::Span& in : core::reads(phase(own))) access.whole.push_back(in);
    }
    Region region;
    region.by_rows = splits_rows(phase(i), many_);
    region.panels = panels(access.out.size);
    region.grain =
        region.by_rows ? kRowsOfPiece : std::clamp<std::int64_t>(region.panels / kPieces, 1, kMostPanels);
    if (!joins(region, access)) {
      made_.regions.push_back(region);
      written_.clear(), read_whole_.clear();
    }
    Region& to = made_.regions.back();
    to.phases.push_back(i);
    for (const std::size_t own : needs) {
      if (!has(to.own, own)) to.own.push_back(own);
    }
    written_.push_back(access.out);
    read_whole_.insert(read_whole_.end(), access.whole.begin(), access.whole.end());
  }

  // Whether a phase can be in the last region.
  bool joins(const Region& region, const PhaseAccess& access) const {
    if (made_.regions.empty()) return false;
    const Region& last = made_.regions.back();
    if (last.by_rows || region.by_rows || last.panels != region.panels) return false;
    for (const core::Span& w : written_) {
      for (const core::Span& in : access.whole) {
        if (memory(in) == memory(w)) return false;
      }
      for (const core::Span& in : access.panels) {
        if (memory(in) == memory(w) && in.first != w.first) return false;
      }
    }
    for (const core::Span& in : read_whole_) {
      if (memory(in) == memory(access.out)) return false;
    }
    return true;
  }

  const ScheduleRequest& r_;
  const bool many_;
  Schedule made_;
  std::vector<core::Span> written_, read_whole_;  // by the last region
};

}  // namespace

Schedule schedule_of(const ScheduleRequest& request, bool many_rows) {
  return Scheduler(request, many_rows).run();
}

int last_reader(const core::Block& block, core::VectorId vector) {
  int last = -1;
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (!reads_vector(block[i], vector)) continue;
    last = std::max(last, static_cast<int>(i));
    if (is_small(block[i], false)) last = std::max(last, last_reader(block, core::writes(block[i]).vector));
  }
  return last;
}

}  // namespace exphil::host
