// Rows that sessions with a window keep of their frames (c_src/cuda/policy/kept_ring.hpp), and the launches
// that put new ones there and copy those of windows side by side (policy/kept.cu).
//
// Plain types, compiled by the host compiler and by NVRTC.
#pragma once

namespace exphil {
namespace policy {

constexpr int kKeptThreads = 128;  // of a block, which copies one row at a time

// The rows of one session, and a window of them: frame t is in slot first + t, slot 0 after the last one.
struct KeptRing {
  float *hidden, *lead;  // {slots}: before the first layer; of its leading product. Null: not kept
  int slots;
  int copies;  // 2: each row is there again `slots` rows on
  int first;
  int fresh, first_fresh;  // its last frames that are not there yet: which of the launch's new rows they are
};

struct KeptArguments {
  const KeptRing* rings;  // {sequences}; null: the one in `ring`
  KeptRing ring;
  const float *new_hidden, *new_lead;  // policy_keep_rows: the new rows
  float *hidden, *lead;                // policy_gather_rows: where those of all windows go, {sequences, seq}
  int hidden_values, lead_values;      // of a row: multiples of 4
  int seq;
};

}  // namespace policy
}  // namespace exphil
