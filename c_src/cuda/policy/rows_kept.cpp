// What sessions keep of their frames, and jobs that begin with it, of cuda/policy/rows.hpp.
#include <algorithm>

#include "cuda/policy/rows_walk.hpp"

namespace exphil::cuda {
namespace {

using policy::Kind;

// The first layer's leading product: its first phase, where the hidden values alone decide it.
int leading_product(const policy::Network& n) {
  const policy::Phase first = n.layer.phases[0];
  if (first.kind != Kind::product) return policy::kNoPhase;
  const policy::Product& product = n.products[first.index];
  return product.in == n.hidden && !product.adds && !product.is_short ? first.index : policy::kNoPhase;
}

}  // namespace

KernelSpec kept_kernel(const char* entry) {
  return {"policy/kept.cu", entry, {}};
}

KeptValues::KeptValues(const policy::Network& n) {
  for (int i = 0; i < n.input.count; ++i) {
    const policy::Phase phase = n.input.phases[i];
    const bool alone =
        phase.kind == Kind::gate || (phase.kind == Kind::product && !n.products[phase.index].is_short);
    if (!alone) return;
  }
  const int product = leading_product(n);
  if (product != policy::kNoPhase) lead = n.rows(n.products[product]);
  const policy::Phase last = n.layer.phases[n.layer.count - 1];
  const bool cell_alone =
      last.kind == Kind::cell && policy::product_before(n, n.cells[last.index]) != policy::kNoPhase;
  if (!cell_alone) hidden = policy::row_place(n, n.hidden).stride;
}

// Up to the last slot, and from the first one on.
void RowKernels::Walk::fill_ring(const KeptFrames& kept) {
  const policy::KeptRing& ring = kept.ring;
  for (std::int64_t done = 0; done < kept.fresh;) {
    const std::int64_t slot = (ring.first + job_.seq - kept.fresh + done) % ring.slots;
    RowJob job;
    job.rows = std::min(kept.fresh - done, ring.slots - slot);
    job.frames = kept.frames + done * n_.size(n_.frame);
    Walk(k_, stream_, b_, job).run_lead(ring.lead + slot * k_.kept_.lead);
    done += job.rows;
  }
}

void RowKernels::Walk::gather_kept(const KeptFrames& kept) {
  constexpr std::int64_t kBlocksEach = 16;  // that put one session's rows into its ring, at the most
  policy::KeptArguments a{};
  a.rings = kept.rings, a.ring = kept.ring;
  a.hidden_values = k_.kept_.hidden, a.lead_values = k_.kept_.lead;
  a.seq = job_.seq;
  a.hidden = array(n_.hidden);
  if (a.lead_values > 0) a.lead = array(n_.products[n_.layer.phases[0].index].out[0].vector);
  if (kept.fresh > 0) {
    RowJob job;
    job.rows = kept.fresh, job.frames = kept.frames;
    Walk(k_, stream_, b_, job).run_lead(nullptr);
    const bool unchanged = n_.hidden == n_.frame && kept.frames != nullptr;
    a.new_hidden = unchanged ? kept.frames : a.hidden, a.new_lead = a.lead;
    const auto blocks = static_cast<unsigned>(std::min(kBlocksEach, kept.fresh));
    start(k_.keep_, {static_cast<unsigned>(job_.sequences), blocks}, policy::kKeptThreads, a);
  }
  start(k_.gather_, {static_cast<unsigned>(job_.rows)}, policy::kKeptThreads, a);
}

std::optional<int> RowKernels::walked_at_once() const {
  const policy::Network& n = dims_.network();
  const policy::Phase last = n.layer.phases[n.layer.count - 1];
  if (last.kind != policy::Kind::cell || n.cells[last.index].before == policy::kNoVector) return std::nullopt;
  const std::optional<CellWalkWide>& wide = wide_walks_[static_cast<std::size_t>(last.index)];
  if (wide) return wide->most_side_by_side(kWalksSideBySide);
  const std::optional<CellWalk>& walk = walks_[static_cast<std::size_t>(last.index)];
  return walk ? walk->most_at_once() : 0;
}

bool RowKernels::walks_rings() const {
  const policy::Network& n = dims_.network();
  const policy::Phase last = n.layer.phases[n.layer.count - 1];
  return last.kind == policy::Kind::cell && walks_[static_cast<std::size_t>(last.index)] &&
         policy::product_before(n, n.cells[last.index]) != policy::kNoPhase;
}

}  // namespace exphil::cuda
