#include "core/session/replicas.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/work/own_thread.hpp"

namespace exphil::core {

Replicas::~Replicas() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Replicas::Place::Place(std::shared_ptr<Replicas> replicas, std::size_t device)
    : Place(std::move(replicas), device, Counted{}) {
  const std::lock_guard<std::mutex> lock(replicas_->mutex_);
  replicas_->start();
  ++replicas_->sessions_[device_];
}

Replicas::Place::~Place() {
  if (!replicas_) return;
  const std::lock_guard<std::mutex> lock(replicas_->mutex_);
  --replicas_->sessions_[device_];
}

Replicas::Place Replicas::least_loaded(std::shared_ptr<Replicas> replicas) {
  Replicas& r = *replicas;
  const std::vector<std::size_t> alive = r.alive();
  const std::lock_guard<std::mutex> lock(r.mutex_);
  r.start();
  const auto chosen = std::min_element(alive.begin(), alive.end(), [&r](std::size_t a, std::size_t b) {
    return r.sessions_[a] < r.sessions_[b];
  });
  ++r.sessions_[*chosen];
  return Place(std::move(replicas), *chosen, Place::Counted{});
}

void Replicas::set_lost(std::size_t device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lost_[device] = true;
}

std::vector<std::size_t> Replicas::alive() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool none = std::find(lost_.begin(), lost_.end(), false) == lost_.end();
  std::vector<std::size_t> devices;
  for (std::size_t i = 0; i < lost_.size(); ++i) {
    if (none || !lost_[i]) devices.push_back(i);
  }
  return devices;
}

// Where the system gives no thread, the parts run one after another in the caller's.
void Replicas::start() {
  try {
    while (threads_.size() + 1 < devices()) threads_.emplace_back([this] { run_thread(); });
  } catch (const std::exception&) {
  }
}

void Replicas::run_thread() {
  begin_own_thread("exphil_devices");
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    const Task task = tasks_.front();
    tasks_.pop_front();
    run_task(lock, task);
  }
}

void Replicas::run_task(std::unique_lock<std::mutex>& lock, Task task) {
  lock.unlock();
  std::exception_ptr error;
  try {
    task.call->part(task.number);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  task.call->errors[task.number] = std::move(error);
  if (--task.call->left == 0) ended_.notify_all();
}

// The caller also takes those of its parts that no thread has begun, so that it does not wait for a thread
// that is busy with another call.
std::vector<std::exception_ptr> Replicas::run(std::size_t count, const Part& part) {
  Call call{part, std::vector<std::exception_ptr>(count), count};
  std::unique_lock<std::mutex> lock(mutex_);
  start();
  const auto is_own = [&call](const Task& task) { return task.call == &call; };
  try {
    for (std::size_t i = 1; i < count; ++i) tasks_.push_back({&call, i});
  } catch (...) {  // no thread has seen them
    tasks_.erase(std::remove_if(tasks_.begin(), tasks_.end(), is_own), tasks_.end());
    throw;
  }
  wake_.notify_all();
  run_task(lock, {&call, 0});
  while (call.left > 0) {
    const auto own = std::find_if(tasks_.begin(), tasks_.end(), is_own);
    if (own == tasks_.end()) {
      ended_.wait(lock);
    } else {
      const Task task = *own;
      tasks_.erase(own);
      run_task(lock, task);
    }
  }
  return std::move(call.errors);
}

}  // namespace exphil::core
