#include "cuda/scan/parts.hpp"

#include <thread>

namespace exphil::cuda {

void side_by_side(std::size_t count, const std::function<void(std::size_t)>& part) {
  std::vector<std::exception_ptr> errors(count);
  const auto run = [&](std::size_t number) {
    try {
      part(number);
    } catch (...) {
      errors[number] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    for (std::size_t i = 1; i < count; ++i) threads.emplace_back(run, i);
  } catch (const std::exception&) {  // the parts that have no thread run here, in their order
  }
  run(0);
  for (std::size_t i = threads.size() + 1; i < count; ++i) run(i);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

StateFloats carried(bool complex, const StateFloats& decay, const StateFloats& before, const StateFloats& own,
                    bool conjugate) {
  StateFloats state(before.size());
  const float sign = conjugate ? -1.0f : 1.0f;
  for (std::size_t i = 0; i < state.size(); i += complex ? 2 : 1) {
    if (!complex) {
      state[i] = decay[i] * before[i] + own[i];
      continue;
    }
    const float re = decay[i], im = sign * decay[i + 1];
    state[i] = re * before[i] - im * before[i + 1] + own[i];
    state[i + 1] = re * before[i + 1] + im * before[i] + own[i + 1];
  }
  return state;
}

void PassedStates::give(std::size_t number, StateFloats state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  states_[number] = std::move(state);
  changed_.notify_all();
}

void PassedStates::fail_rest() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!states_[i]) errors_[i] = std::current_exception();
  }
  changed_.notify_all();
}

bool PassedStates::is_given(std::size_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return states_[number].has_value();
}

const StateFloats& PassedStates::take(std::size_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return states_[number] || errors_[number]; });
  if (errors_[number]) std::rethrow_exception(errors_[number]);
  return *states_[number];
}

}  // namespace exphil::cuda
