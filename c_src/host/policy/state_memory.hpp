// Memory for the states of a policy's sessions and snapshots, all of one size: cut from blocks, which are
// huge pages where there are many states. A state of its own pages costs a page fault for every 4 KB: a
// session with a history of 8 has 170 of them, which take 0.3 to 0.6 ms. When a VM is killed the system frees
// each before it closes the VM's sockets, by which other nodes see it gone (bench/results/fleet.md). On a
// virtual machine the first use of a huge page may take 5 ms: whoever may need many states at once asks for
// their memory from the start. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "host/simd/aligned.hpp"

namespace exphil::host {

class StateMemory {
 public:
  // reserved: states that have memory when the first is taken, and until the end; see reservable().
  explicit StateMemory(std::int64_t floats, std::int64_t reserved = 0);

  // As many of the wanted states as fit into a quarter of `memory` bytes. A system that promises more than
  // the machine has ends the process which uses it.
  static std::int64_t reservable(std::int64_t wanted, std::int64_t floats, std::size_t memory);

  // Zeros, aligned to a line. Throws out_of_memory or std::bad_alloc.
  float* take();
  void give_back(float* state) noexcept;

  std::int64_t floats() const { return floats_; }
  std::size_t block_bytes() const;  // of all blocks: beyond those reserved, room for twice the states at most

 private:
  struct Block {
    Block(std::int64_t floats, std::int64_t of_states) : memory(floats), states(of_states) {
      freed.reserve(static_cast<std::size_t>(of_states));
    }
    bool is_full() const { return freed.empty() && fresh == states; }
    bool is_empty() const { return static_cast<std::int64_t>(freed.size()) == fresh; }

    AlignedBuffer memory;  // zeros from the state with number `fresh` on
    const std::int64_t states;
    std::int64_t fresh = 0;
    std::vector<float*> freed;
  };

  void add_block();

  const std::int64_t floats_, stride_, reserved_;
  mutable std::mutex mutex_;
  std::map<const float*, std::unique_ptr<Block>> blocks_;  // by their first state
  std::vector<Block*> open_;                               // those that are not full
  std::int64_t taken_ = 0, room_ = 0;  // states in use, and those that the blocks have room for
  int empty_ = 0;                      // blocks of which no state is in use: one is kept
};

}  // namespace exphil::host
