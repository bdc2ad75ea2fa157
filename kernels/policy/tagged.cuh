// Words that carry a value and the number of the launch that wrote it: the value's bits below, the number
// above. A word is written and read as one, so a value is seen only together with its number: no fence and no
// flag is needed, in whatever order the words arrive. Used for what the host polls (in its memory), and for
// what one launch makes while another reads it.
#pragma once

#include "kernels/policy/ptx.cuh"

namespace exphil {
namespace policy {

using Tagged = unsigned long long;

__device__ __forceinline__ void store_tagged(Tagged* to, unsigned number, float value) {
  store_system(to, static_cast<Tagged>(number) << 32 | __float_as_uint(value));
}

__device__ __forceinline__ bool has_number(Tagged word, unsigned number) {
  return static_cast<unsigned>(word >> 32) == number;
}
__device__ __forceinline__ float value_of(Tagged word) {
  return __uint_as_float(static_cast<unsigned>(word));
}
// Reads a word that was read before again, until it has the number.
__device__ __forceinline__ void await_number(const Tagged* from, unsigned number, Tagged* word) {
  while (!has_number(*word, number)) *word = load_system(from);
}

}  // namespace policy
}  // namespace exphil
