// One set of weights on several devices. Each device has a policy of its own, which knows nothing of the
// others; what their sessions share is here: which device a new session goes to, and threads on which the
// devices' parts of a call run side by side. A model on one device has no such object, and its calls do not
// come here. Used by session_group.cpp and nif/policy.cpp; every function is safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace exphil::core {

class Replicas {
 public:
  explicit Replicas(std::size_t devices) : sessions_(devices), lost_(devices) {}
  ~Replicas();  // no call is under way
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  std::size_t devices() const { return sessions_.size(); }

  // A session on one of the devices, counted there as long as this exists.
  class Place {
   public:
    Place(std::shared_ptr<Replicas> replicas, std::size_t device);
    Place(Place&&) = default;
    Place& operator=(Place&&) = delete;
    ~Place();
    std::size_t device() const { return device_; }
    const std::shared_ptr<Replicas>& replicas() const { return replicas_; }

   private:
    friend class Replicas;
    struct Counted {};
    Place(std::shared_ptr<Replicas> replicas, std::size_t device, Counted)
        : replicas_(std::move(replicas)), device_(device) {}
    std::shared_ptr<Replicas> replicas_;
    std::size_t device_;
  };
  // On the device with the fewest sessions, of several the first one. None that was lost, unless all were.
  static Place least_loaded(std::shared_ptr<Replicas> replicas);

  // New sessions go elsewhere from now on.
  void set_lost(std::size_t device);
  std::vector<std::size_t> alive() const;  // in their order; all, where every one was lost

  // Runs part(0) to part(count - 1) side by side, the first in this thread, and returns when all have ended:
  // what each threw, or null.
  using Part = std::function<void(std::size_t)>;
  std::vector<std::exception_ptr> run(std::size_t count, const Part& part);

 private:
  struct Call {
    const Part& part;
    std::vector<std::exception_ptr> errors;
    std::size_t left;
  };
  struct Task {
    Call* call;
    std::size_t number;
  };
  void start();       // with the mutex: the threads, once. They have the priority of the calling thread.
  void run_thread();  // a thread
  void run_task(std::unique_lock<std::mutex>& lock, Task task);

  mutable std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::vector<std::int64_t> sessions_;  // by device
  std::vector<bool> lost_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace exphil::core
