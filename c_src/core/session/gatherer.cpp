#include "core/session/gatherer.hpp"

#include <sys/prctl.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/session/launched_frames.hpp"
#include "core/session/session.hpp"
#include "core/work/own_thread.hpp"
#include "core/work/parallel.hpp"

namespace exphil::core {

namespace {

// Launches of one frame in a row until callers step alone again: in a fleet now and then one frame finds
// nobody beside it, and to step it alone takes as long as several frames together.
constexpr int kCrowd = 8;
// A message to a process takes now and then milliseconds of a thread that is no scheduler, because it waits
// for the queue of a scheduler that has lost its core. So several threads answer. Those that launch answer
// only where all frames are one part, and on few cores, where there is one thread for all.
constexpr int kCoresPerThread = 4, kFewCores = 8, kMostAnswering = 4;

}  // namespace

Gatherer::Gatherer(std::shared_ptr<Policy> policy, int cores)
    : policy_(std::move(policy)),
      cores_(cores),
      on_device_(policy_->on_device()),
      most_frames_(on_device_ ? kMostOnDevice : kMostOnHost),
      places_(on_device_ && cores >= kFewCores
                  ? static_cast<unsigned>(std::clamp(policy_->batches_at_once(), 1, kMostAtOnce))
                  : 1) {}

Gatherer::~Gatherer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  for (Sleepers& launcher : launchers_) launcher.wake.notify_all();
  answerers_.wake.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Gatherer::start_threads() {
  const auto answering =
      cores_ < kFewCores ? 0 : static_cast<std::size_t>(std::min(cores_ / kCoresPerThread, kMostAnswering));
  const std::size_t launching = places_.most();
  const auto start_launcher = [this](Sleepers& launcher) {
    threads_.emplace_back([this, &launcher] { run(launcher, &Gatherer::launching_thread_has_work, true); });
  };
  while (launches_made_.size() < launching) {
    if (make_launch() == nullptr) throw std::bad_alloc();
  }
  try {
    threads_.reserve(launching + answering);
    start_launcher(launchers_[0]);
    while (threads_.size() < 1 + answering) {
      threads_.emplace_back([this] { run(answerers_, &Gatherer::may_answer, false); });
      const std::lock_guard<std::mutex> lock(mutex_);
      ++answering_threads_;
    }
    for (std::size_t i = 1; i < launching; ++i) start_launcher(launchers_[i]);
  } catch (const std::exception& error) {  // those that run do the work
    if (threads_.empty()) {
      fail(ErrorKind::out_of_memory, ":gather",
           "the system gives no thread for gathering frames: ", error.what());
    }
  }
}

void Gatherer::add_session(std::int64_t window) {
  const auto most = static_cast<std::int64_t>(most_frames_);
  const std::lock_guard<std::mutex> lock(sessions_mutex_);
  if (threads_.empty()) start_threads();
  if (window > 0) {
    policy_->reserve_windows(std::min(windows_ + 1, most), std::max(window, longest_window_));
    ++windows_, longest_window_ = std::max(window, longest_window_);
  }
  // Frames of windows that were begun ahead are steps too. At once for the largest launch: while a GPU
  // allocates, all frames on it wait for some 30 ms. Again for each session, because its state is in a place
  // that was free for a launch before.
  policy_->reserve_batch(most, at_once());
}

void Gatherer::remove_session(std::int64_t window) noexcept {
  const std::lock_guard<std::mutex> lock(sessions_mutex_);
  if (window > 0) --windows_;
}

std::optional<Gatherer::Turn> Gatherer::take_turn() noexcept {
  if (crowd_.load(std::memory_order_relaxed) > 0 || !waiting_.empty()) return std::nullopt;
  if (!places_.take_all()) return std::nullopt;
  return std::make_optional<Turn>(*this);
}

void Gatherer::end_turn(std::size_t frames) noexcept {
  if (frames > 0) count_launch(frames);
  places_.give_all_back();
  if (!waiting_.empty()) wake_launching_thread();
}

void Gatherer::count_launch(std::size_t frames) noexcept {
  const auto count = static_cast<std::int64_t>(frames);
  crowd_ = frames > 1 ? kCrowd : std::max(0, crowd_ - 1);
  frames_ = frames_ + count;  // nobody else writes now
  launches_ = launches_ + 1;
  most_ = std::max<std::int64_t>(most_, count);
}

GatherCounts Gatherer::counts() const noexcept {
  return {frames_.load(), launches_.load(), most_.load()};
}

Gatherer::Sleepers* Gatherer::sleeping_launcher() noexcept {
  const auto sleeps = [](const Sleepers& launcher) { return launcher.idle.load() > 0; };
  const auto found = std::find_if(launchers_.begin(), launchers_.end(), sleeps);
  return found == launchers_.end() ? nullptr : &*found;
}

// The mutex is taken so that a thread which has found nothing to do is asleep by now, and hears of it.
void Gatherer::wake_launching_thread() noexcept {
  Sleepers* launcher = sleeping_launcher();
  if (launcher == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    launcher = sleeping_launcher();
  }
  if (launcher != nullptr) launcher->wake.notify_one();
}

void Gatherer::submit(GatheredFramePtr submitted) noexcept {
  if (at_once() > 1) submitted->submitted_ = Clock::now();
  const bool first = waiting_.push(submitted.release());
  // Whoever submitted the frame before has woken a thread, or whoever launches looks when that ends.
  if (first && may_collect()) wake_launching_thread();
}

void Gatherer::finish(Turn turn, std::shared_ptr<LateFrame> late, GatheredFramePtr frame) noexcept {
  Sleepers* who = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    turn.gatherer_ = nullptr;  // run_late() ends it
    late_ = {std::move(late), std::move(frame)};
    who = &who_answers();
  }
  who->wake.notify_one();
}

bool Gatherer::may_answer() const noexcept {
  return late_.step != nullptr || !answering_.empty();
}

bool Gatherer::launching_thread_has_work() const noexcept {
  return may_launch() || (answering_threads_ == 0 && may_answer());
}

Gatherer::Sleepers& Gatherer::who_answers() noexcept {
  return answering_threads_ == 0 ? launchers_[0] : answerers_;
}

void Gatherer::run(Sleepers& sleepers, HasWork has_work, bool launches) {
  begin_own_thread("exphil_gather");
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds; the 50 us of other threads are a third of a pause
  // Whoever has thousands of frames to copy has a machine full of processes that play, and other threads
  // would only take cores from them: 1,024 frames take 140 us alone, and 120 where others help.
  if (launches && on_device_) compute_alone();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (!(this->*has_work)()) {
      ++sleepers.idle;  // before it looks again; see waiting_
      sleepers.wake.wait(lock, [&] { return stopping_ || (this->*has_work)(); });
      --sleepers.idle;
    }
    if (stopping_) return;
    if (launches && !(answering_threads_ == 0 && may_answer())) {
      run_launch(lock);
    } else if (late_.step != nullptr) {
      run_late(lock);
    } else {
      answer_some(lock);
    }
  }
}

void Gatherer::run_late(std::unique_lock<std::mutex>& lock) {
  Late late = std::exchange(late_, {});
  lock.unlock();
  GatheredFrame& frame = *late.frame;
  std::vector<float> out;
  std::exception_ptr error;
  Action action;
  try {
    out.resize(static_cast<std::size_t>(frame.session().policy()->config().d_output));
    action = late.step->answer(out.data());
  } catch (...) {
    error = std::current_exception();
  }
  end_turn(1);
  if (error) {
    frame.fail(error);
  } else {
    frame.answer(out.data(), action, {});
  }
  late = {};
  lock.lock();
}

}  // namespace exphil::core
