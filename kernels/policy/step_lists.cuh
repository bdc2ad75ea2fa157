// The lists of phases that a team's step walks over, and which products of a list come early. Included by
// policy/step.cuh.
#pragma once

#include "kernels/policy/team.cuh"

namespace exphil {
namespace policy {

// The lists of phases. The weights of the input, of the output and of each layer are staged by themselves.
enum class List : int { input, layer, output };
constexpr Block list_of(List list) {
  return list == List::input ? kNetwork.input : list == List::layer ? kNetwork.layer : kNetwork.output;
}
template <List kList, int kAt>
constexpr PhaseWeights weights_of() {
  return kList == List::input   ? kTeam.input.phases[kAt]
         : kList == List::layer ? kTeam.layer.phases[kAt]
                                : kTeam.output.phases[kAt];
}

// A layer's first product with a matrix, which is not staged: a thread holds its weights where they are few.
constexpr int kFirstAt = first_product(kNetwork);
using FirstProduct = BlockProduct<kNetwork.layer.phases[kFirstAt].index>;
static_assert(kNetwork.layer.phases[0].kind == Kind::product && FirstProduct::kSplit == Split::rows,
              "a layer begins with a product of a vector on the board");
// The threads that have its sums: where that costs none of them another one, all but the warp that finds the
// norm's factors meanwhile.
constexpr int kFirstThreads =
    AGENTS == 1 && FirstProduct::kNormed &&
            divide_up(FirstProduct::kTasks, most(THREADS - 32, 1)) == divide_up(FirstProduct::kTasks, THREADS)
        ? THREADS - 32
        : THREADS;
constexpr int kFirstPer = divide_up(FirstProduct::kTasks, kFirstThreads);
// Up to 64 registers; beside heads, whose first product has more rows and whose states are a few, up to 96.
constexpr bool kHoldFirst = kFirstPer <= (kNetwork.has(Kind::heads) ? 3 : 2);

// Products of a cell's state before the frame need nothing of the frame. Those of the first layer come before
// it, and those of the next layer while the blocks exchange the output of a layer's last cell. A launch ahead
// of its frame has all of them before.
constexpr int kEarlyLayers = ARMED ? kNetwork.layers : 1;
constexpr bool is_early(List list, int at) {
  const Phase phase = list_of(list).phases[at];
  return list == List::layer && phase.kind == Kind::product &&
         kNetwork.recalled(kNetwork.products[phase.index].in);
}
constexpr int kLastCell = [] {
  int last = -1;
  for (int i = 0; i < kNetwork.layer.count; ++i) {
    if (kNetwork.layer.phases[i].kind == Kind::cell) last = i;
  }
  return last;
}();

}  // namespace policy
}  // namespace exphil
