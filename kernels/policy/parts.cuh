// A part of a section of memory: where an array begins and how long it is. Compiled by the host compiler and
// by NVRTC (policy/layout.cuh).
#pragma once

namespace exphil {
namespace policy {

constexpr long long round_up_bytes(long long bytes, long long multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

// A run of elements of one type. Its offset is in bytes, so that parts of one section may have elements of
// different sizes.
template <class T>
struct Part {
  long long at = 0;     // bytes from the start of the section
  long long count = 0;  // elements

  constexpr Part() = default;
  // The first aligned offset from `after` on. 16 bytes: for bulk copies and float4 loads.
  constexpr Part(long long after, long long elements, long long alignment = 16)
      : at(round_up_bytes(after, alignment)), count(elements) {}

  constexpr long long end() const { return at + count * static_cast<long long>(sizeof(T)); }
  constexpr long long index() const { return at / static_cast<long long>(sizeof(T)); }  // elements
  T* in(void* section) const { return static_cast<T*>(section) + index(); }
  const T* in(const void* section) const { return static_cast<const T*>(section) + index(); }
};

}  // namespace policy
}  // namespace exphil
