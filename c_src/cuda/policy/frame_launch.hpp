// A launch that computes a frame of a batch of agents: the whole of it, or up to the phases of the output. A
// cluster of blocks has a tile of agents. It may be launched before its frames are there, and waits for them
// (frame_lane.hpp). Made by cuda/policy/batch_frame.cpp and scan_frame.cpp, where the network and the device
// have one; immutable.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "cuda/device/context.hpp"
#include "cuda/jit/launch.hpp"
#include "kernels/policy/arguments.cuh"
#include "kernels/policy/batch_frame_layout.cuh"

namespace exphil::cuda {

class FrameLaunch {
 public:
  // Of a kernel: blocks of a cluster; agents of a tile, and at a time, at most; threads and bytes of shared
  // memory of a block; whether it has the output, or ends with hidden.
  // spreads: the tiles whose frames are copied first have more agents.
  struct Shape {
    int team, rows, chunk, threads;
    long long shared;
    bool has_outputs, spreads;
  };
  // Numbers of agents for which it is faster than launches for each phase or layer; most_known: of a batch
  // of which it gets more than frames and states (FrameArguments::known).
  struct Range {
    std::int64_t least, most, most_known;
  };
  // None where the device has no room for a cluster. It takes as many agents as there is room for.
  static std::optional<FrameLaunch> find(Context& context, const KernelSpec& kernel, const Shape& shape,
                                         Range range);

  bool takes(std::int64_t rows, bool known) const {
    return rows <= range_.most_known && (known || (rows >= range_.least && rows <= range_.most));
  }
  std::int64_t most() const { return range_.most_known; }  // agents that it takes
  // How a batch that it takes is cut. Tiles have so many rows or fewer, and so has the last chunk of a tile.
  struct Split {
    std::int64_t rows, tiles, spread, tile_rows, chunks, chunk_rows;  // chunks: of a tile
    std::int64_t first(std::int64_t tile) const {
      return policy::first_of_tile(rows, static_cast<int>(tiles), static_cast<int>(spread),
                                   static_cast<int>(tile));
    }
  };
  Split split(std::int64_t rows) const;
  std::int64_t team() const { return shape_.team; }
  bool has_outputs() const { return shape_.has_outputs; }
  // arguments: those of the kernel, all but the split.
  template <class Arguments>
  void enqueue(Context& context, CUstream stream, Arguments arguments) const {
    const Split split = this->split(arguments.rows);
    arguments.tiles = static_cast<int>(split.tiles), arguments.spread = static_cast<int>(split.spread);
    arguments.tile_rows = static_cast<int>(split.tile_rows);
    arguments.chunk_rows = static_cast<int>(split.chunk_rows);
    launch(context, function_, {static_cast<unsigned>(split.tiles * shape_.team)},
           {static_cast<unsigned>(shape_.threads)}, static_cast<std::size_t>(shape_.shared), stream,
           arguments);
  }

 private:
  Shape shape_{};
  Range range_{};
  CUfunction function_ = nullptr;
  std::int64_t clusters_ = 0;  // that the device has room for
};

}  // namespace exphil::cuda
