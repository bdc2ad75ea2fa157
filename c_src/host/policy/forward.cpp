#include "host/policy/forward.hpp"

#include <algorithm>
#include <thread>

#include "core/work/background.hpp"

namespace exphil::host {

namespace {

constexpr std::int64_t kCopiedRows = 16;  // of a piece

// One lane's part of a pass.
class Forward {
 public:
  Forward(const PackedWeights& weights, const ForwardPlan& plan, const Pass& pass, Workspace& work,
          Workspace::Lane& lane, int side)
      : network_(weights.network()),
        packed_(weights.blocks()),
        plan_(plan),
        pass_(pass),
        work_(work),
        rows_(pass.agents * pass.frames),
        lane_(lane),
        side_(side),
        in_stretches_(core::on_background_thread()),
        run_{pass, plan.states, lane.at.data(), lane.scan} {}

  void run() {
    if (pass_.fresh.count > 0) run_fresh();
    if (rows_ == 0) return;
    const std::size_t layers = network_.layers.size();
    const bool ring = pass_.front.arrays != nullptr;
    if (ring) {
      copy_hidden();
    } else {
      begin(plan_.input, network_.input, rows_);
      at(network_.frame).data = const_cast<float*>(pass_.obs);  // is only read
      run_block(network_.input, 0);
    }
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const bool kept = ring && layer == 0;
      // The layers after the second one find their vectors where it does.
      if (layer < 2) begin(kept ? plan_.window_part : plan_.layer, network_.layers[layer], rows_);
      if (kept) use_ring(pass_.front, 1);
      // Only the last layer may skip rows: the rows of earlier layers feed the state.
      if (layer + 1 == layers) run_.unused = unused();
      run_block(network_.layers[layer], 1 + layer);
    }
    if (pass_.first_output < pass_.frames) run_output();
  }

 private:
  std::int64_t unused() const { return pass_.agents == 1 ? pass_.first_output : 0; }
  MatrixRows& at(core::VectorId id) { return lane_.at[static_cast<std::size_t>(id)]; }

  // Before a block of `rows` rows: where its phases find every vector.
  void begin(const BlockPlan& plan, const core::Block& block, std::int64_t rows) {
    schedule_ = &plan.of(rows, pass_.frames);
    block_rows_ = rows;
    if (lane_.moved) find_vectors();
    if (pass_.lanes == 1) return;
    lane_.moved |= !schedule_->own.empty();
    for (const Step& own : schedule_->own) {
      const core::VectorId out = core::writes(block[own.phase]).vector;
      at(out).data = lane_.own + plan_.places[static_cast<std::size_t>(out)].own_at;
    }
  }

  // In the memory of the workspace, all of them.
  void find_vectors() {
    std::copy(work_.at.begin(), work_.at.end(), lane_.at.begin());
    lane_.moved = false;
  }

  // Vectors from the one with index `first` on.
  void use_ring(const RingRows& ring, std::size_t first) {
    lane_.moved = true;
    for (std::size_t i = first; i < plan_.kept.size(); ++i) {
      MatrixRows& rows = at(plan_.kept[i]);
      rows.data = ring.arrays[i] + ring.slot * rows.step;
    }
  }

  // What a ring keeps of the fresh frames.
  void run_fresh() {
    const FreshFrames& fresh = pass_.fresh;
    passes_on_ = true;
    begin(plan_.input, network_.input, fresh.count);
    at(network_.frame).data = const_cast<float*>(fresh.obs);
    use_ring(fresh.to, 0);
    run_block(network_.input, 0);
    begin(plan_.frame_part, network_.layers.front(), fresh.count);
    use_ring(fresh.to, 0);
    run_block(network_.layers.front(), 1);
    passes_on_ = false;
  }

  // The layers add to it, or replace it.
  void copy_hidden() {
    if (!plan_.window_reads_hidden) return;
    const MatrixRows to = work_.at[static_cast<std::size_t>(network_.hidden)];
    const MatrixRows from{pass_.front.arrays[0] + pass_.front.slot * to.step, to.step};
    split(rows_, kCopiedRows, [=](std::int64_t begin, std::int64_t end) {
      copy_rows(from, to, 1, begin * to.step, end * to.step);
    });
  }

  // Only of the rows that are answered.
  void run_output() {
    const std::int64_t skipped = unused();
    begin(plan_.output, network_.output, rows_ - skipped);
    passes_on_ = true;
    MatrixRows& hidden = at(network_.hidden);
    hidden.data += skipped * hidden.step;
    lane_.moved |= skipped > 0;
    run_.unused = 0;
    run_block(network_.output, packed_.size() - 1);
  }

  void run_block(const core::Block& block, std::size_t index) {
    block_ = &block;
    packed_block_ = packed_[index].data();
    if (pass_.lanes > 1) {
      for (const Region& region : schedule_->regions) run_region(region);
      return;
    }
    for (const Step& step : schedule_->alone) {
      if (step.begins_walk) {
        walk(schedule_->walk_of(step));
      } else if (!in_stretches_) {
        run(step, {first_row(step), block_rows_ - first_row(step), 0, step.panels});
      } else {
        split(size_of(step), step.grain,
              [&](std::int64_t begin, std::int64_t end) { run(step, begin, end); });
      }
    }
  }

  void run_region(const Region& region) {
    bool prepared = region.own.empty();
    const Step& first = region.steps.front();
    if (first.begins_walk) return walk(schedule_->walk_of(first));
    split(size_of(first), first.grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::size_t i = 0; !prepared && i < region.own.size(); ++i) {
        const Step& own = region.own[i];
        own.run((*block_)[own.phase], packed_block_[own.phase], run_, {0, block_rows_, 0, own.panels});
      }
      prepared = true;
      for (const Step& step : region.steps) run(step, begin, end);
    });
  }

  // Frame by frame: the state after one is what the next one recalls.
  void walk(const Walk& walk) {
    if (pass_.lanes > 1 && walk.by_panels) {
      for (std::int64_t agent = 0; agent < pass_.agents; ++agent) walk_by_panels(walk, agent);
      return;
    }
    split(pass_.agents, 1, [&](std::int64_t agent, std::int64_t end) {
      for (; agent < end; ++agent) {
        for (std::int64_t t = 0; t < pass_.frames; ++t) {
          for (const Step& each : walk.steps) walk_frame(each, agent, t, 0, each.panels);
          core::give_way();
        }
      }
    });
  }

  // The lanes meet once a frame. What the next frame recalls is copied by the lane that computed it.
  void walk_by_panels(const Walk& walk, std::int64_t agent) {
    const std::int64_t count = walk.steps.front().panels, lanes = 2 * pass_.lanes;
    const auto run_all = [&](bool recalls, std::int64_t t, std::int64_t begin, std::int64_t end) {
      for (const Step& each : walk.steps) {
        const bool recall = core::recalled_by((*block_)[each.phase]) != core::kNone;
        if (recall == recalls) walk_frame(each, agent, t, begin, end);
      }
    };
    for (std::int64_t t = -1; t < pass_.frames; ++t) {
      split(count, (count + lanes - 1) / lanes, [&](std::int64_t begin, std::int64_t end) {
        if (t >= 0) run_all(false, t, begin, end);
        if (t + 1 < pass_.frames) run_all(true, t + 1, begin, end);
      });
    }
  }

  // A phase for one frame of an agent.
  void walk_frame(const Step& step, std::int64_t agent, std::int64_t t, std::int64_t begin,
                  std::int64_t end) const {
    const PassRows one{pass_.states + agent, nullptr, 1, 1, pass_.length};
    const PhaseRun run{one, plan_.states, run_.at, lane_.scan};
    step.run((*block_)[step.phase], packed_block_[step.phase], run,
             {agent * pass_.frames + t, 1, begin, end});
  }

  template <class Body>
  void split(std::int64_t count, std::int64_t grain, const Body& body) {
    if (pass_.lanes == 1) return core::in_stretches(count, grain, body);
    work_.team.run(regions_++, side_, count, grain, body);
  }

  // The first row of a phase's results that is needed.
  std::int64_t first_row(const Step& step) const {
    return run_.unused == 0 || plan_.feeds_state[step.phase] ? 0 : run_.unused;
  }
  // What is split into pieces.
  std::int64_t size_of(const Step& step) const {
    return step.by_rows ? block_rows_ - first_row(step) : step.panels;
  }

  void run(const Step& step, std::int64_t begin, std::int64_t end) {
    const std::int64_t first = first_row(step);
    if (step.by_rows) return run(step, {first + begin, end - begin, 0, step.panels});
    run(step, {first, block_rows_ - first, begin, end});
  }

  // Results that leave the pass are copied while they are in the cache.
  void run(const Step& step, const Piece& piece) {
    const core::Phase& phase = (*block_)[step.phase];
    step.run(phase, packed_block_[step.phase], run_, piece);
    if (passes_on_) pass_on(core::writes(phase), piece);
  }

  // An output to the caller; what a ring keeps to its twin.
  void pass_on(const core::Span& span, const Piece& piece) const {
    const bool answers = span.vector == network_.outs;
    if (!answers && (block_ == &network_.output || !plan_.keeps(span.vector))) return;
    const MatrixRows from = rows_at(run_.at, {span.vector, 0, 0}, piece.first);
    const std::int64_t step = answers ? network_.size_of(span.vector) : from.step;
    float* const to = answers ? pass_.out + piece.first * step : from.data + pass_.fresh.twin * step;
    copy_rows(from, {to, step}, piece.count, span.first + piece.begin * kPanel,
              span.first + std::min(piece.end * kPanel, span.size));
  }

  const core::Network& network_;
  const std::vector<std::vector<PackedPhase>>& packed_;
  const ForwardPlan& plan_;
  const Pass& pass_;
  Workspace& work_;
  const std::int64_t rows_;
  Workspace::Lane& lane_;
  const int side_;
  const bool in_stretches_;  // this thread gives way to others
  PhaseRun run_;
  std::int64_t regions_ = 0;
  bool passes_on_ = false;  // whether results of the block leave the pass
  // Of the block that runs.
  const core::Block* block_ = nullptr;
  const PackedPhase* packed_block_ = nullptr;
  const Schedule* schedule_ = nullptr;
  std::int64_t block_rows_ = 0;
};

}  // namespace

void forward(const PackedWeights& weights, const ForwardPlan& plan, const Pass& pass,
             Workspace& work) noexcept {
  if (pass.lanes == 1) return Forward(weights, plan, pass, work, work.lanes.front(), pass.side).run();
  work.begin(pass.frames > 1 ? plan.most_regions : plan.step_regions);
  const std::thread::id caller = std::this_thread::get_id();
  const auto lane = [&] {
    const bool own = std::this_thread::get_id() == caller;
    Forward(weights, plan, pass, work, work.next_lane(), own ? pass.side : 1 - pass.side).run();
  };
  if (pass.shared == nullptr || !pass.shared->run(lane)) with_helpers(pass.lanes, lane);
}

}  // namespace exphil::host
