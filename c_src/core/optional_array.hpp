// Arrays that a call may leave out. Pure; any thread.
#pragma once

#include <cstdint>

namespace exphil::core {

// What is at `first` of an array; null where there is none.
template <class T>
T* advanced(T* array, std::int64_t first) {
  return array == nullptr ? nullptr : array + first;
}

}  // namespace exphil::core
