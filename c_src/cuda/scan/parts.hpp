// What the parts of a call over several devices have in common: they run side by side, each in a thread of
// its own, and pass states to each other through host memory.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace exphil::cuda {

// Calls part(0) to part(count - 1), each in a thread of its own, the first in this one, and throws the first
// error by number when all have ended.
void side_by_side(std::size_t count, const std::function<void(std::size_t)>& part);

// States of one sequence, {dim, state}, complex numbers as pairs.
using StateFloats = std::vector<float>;

// decay * before + own, or with `conjugate` conj(decay) * before + own.
StateFloats carried(bool complex, const StateFloats& decay, const StateFloats& before, const StateFloats& own,
                    bool conjugate = false);

// The states between the parts of a sequence. Each is given once, or never because of an error. Any thread.
// Not std::promise: it reads thread-local data of the C++ library, for which a library compiled with
// initial-exec has no room in a process that has loaded the C++ library late (Python with JAX).
class PassedStates {
 public:
  explicit PassedStates(std::size_t count) : states_(count), errors_(count) {}

  void give(std::size_t number, StateFloats state);
  // Those that are not given have the error that is being handled.
  void fail_rest();
  bool is_given(std::size_t number);
  // Waits for it. Throws the error of the part that was to give it.
  const StateFloats& take(std::size_t number);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<StateFloats>> states_;
  std::vector<std::exception_ptr> errors_;
};

}  // namespace exphil::cuda
