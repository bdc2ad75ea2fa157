// Copies to page-locked memory that a device will read, past the processor's caches: a core writes to lines
// that a device has just read at a fraction of its speed, because it first reads them back, and the device
// reads them faster from memory than from the caches of the core that wrote them. Any thread.
#pragma once

#include <cstddef>
#include <vector>

namespace exphil::cuda {

// Copies of whole lines of 64 bytes, to which `to` is aligned.
struct LineCopies {
  void (*copy)(char* to, const char* from, std::size_t lines);
  bool (*copy_finite)(char* to, const char* from, std::size_t lines);  // whether all floats are finite
};
// Those that this processor has; the first one is the fastest.
const std::vector<LineCopies>& line_copies();

// Orders stores past the caches before later ones of this thread.
void stream_fence();

// `to` and `from` do not overlap. Other threads see the bytes after an ordinary lock of a mutex.
void stream_copy(void* to, const void* from, std::size_t bytes,
                 const LineCopies& copies = line_copies().front());

// Copies rows of `width` floats to rows of `row`, which are padded with zeros. `to` is aligned to 64 bytes,
// and so is each row: `row` is a multiple of 16. The caller calls stream_fence() once after all of its rows:
// for each frame of a policy it would take as long as the frame. Returns whether all values are finite: to
// look while they are copied costs nothing, and to read a thousand frames for it takes 80 us.
bool stream_rows(float* to, std::size_t row, const float* from, std::size_t width, std::size_t count,
                 const LineCopies& copies = line_copies().front());

}  // namespace exphil::cuda
