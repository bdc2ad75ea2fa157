#include "core/session/gatherer.hpp"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/session/launched_frames.hpp"
#include "core/session/session.hpp"
#include "core/session/session_group.hpp"
#include "core/work/background.hpp"
#include "core/work/own_thread.hpp"
#include "core/work/parallel.hpp"

namespace exphil::core {

namespace {

// Launches of one frame in a row until callers step alone again: in a fleet now and then one frame finds
// nobody beside it, and to step it alone takes as long as several frames together.
constexpr int kCrowd = 8;
// A message to a process takes now and then milliseconds of a thread that is no scheduler, because it waits
// for the queue of a scheduler that has lost its core. So several threads answer. The one that launches
// answers only where all frames are one part, and on few cores, where it is alone.
constexpr int kCoresPerThread = 4, kFewCores = 8, kMostAnswering = 4;
// Where launches on a device have at least so many frames, a launch waits for more of them for as long as it
// usually takes itself, at most kMostPause. So launches take at most half of the time, and a frame is
// answered at most a launch later. Processes that wake by the VM's timers do so at the beginning of each
// millisecond, so two launches have all frames of a millisecond instead of four or five, and wake half as
// many schedulers. On the host the cores that would wait compute: a pause made the median answer to 512
// processes on two cores 1.3 to 1.5 ms instead of 0.9 to 1.1.
constexpr float kManyFrames = 8;
constexpr float kMostPause = 250;  // microseconds
constexpr float kUsual = 8;        // launches of the averages that decide it

double microseconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

}  // namespace

Gatherer::Gatherer(std::shared_ptr<Policy> policy, int cores)
    : policy_(std::move(policy)),
      cores_(cores),
      on_device_(policy_->on_device()),
      most_frames_(on_device_ ? kMostOnDevice : kMostOnHost) {}

Gatherer::~Gatherer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  launcher_.wake.notify_all();
  answerers_.wake.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Gatherer::start_threads() {
  const auto answering =
      cores_ < kFewCores ? 0 : static_cast<std::size_t>(std::min(cores_ / kCoresPerThread, kMostAnswering));
  if (launches_made_.empty() && unused_launch() == nullptr) throw std::bad_alloc();
  try {
    threads_.reserve(1 + answering);
    threads_.emplace_back([this] { run(launcher_, &Gatherer::launching_thread_has_work, true); });
    while (threads_.size() < 1 + answering) {
      threads_.emplace_back([this] { run(answerers_, &Gatherer::may_answer, false); });
      const std::lock_guard<std::mutex> lock(mutex_);
      ++answering_threads_;
    }
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
    return;
  }
  // At once for the largest launch: while a GPU allocates, all frames on it wait for some 30 ms. Again for
  // each session, because its state is in a place that was free for a launch before.
  policy_->reserve_batch(most);
}

void Gatherer::remove_session(std::int64_t window) noexcept {
  const std::lock_guard<std::mutex> lock(sessions_mutex_);
  if (window > 0) --windows_;
}

std::optional<Gatherer::Turn> Gatherer::take_turn() noexcept {
  if (crowd_.load(std::memory_order_relaxed) > 0 || !waiting_.empty()) return std::nullopt;
  if (launching_.exchange(true)) return std::nullopt;
  return std::make_optional<Turn>(*this);
}

void Gatherer::end_turn(std::size_t frames) noexcept {
  if (frames > 0) count_launch(frames);
  launching_.store(false);
  if (!waiting_.empty() && launcher_.idle.load() > 0) wake_launching_thread();
}

void Gatherer::count_launch(std::size_t frames) noexcept {
  const auto count = static_cast<std::int64_t>(frames);
  crowd_ = frames > 1 ? kCrowd : std::max(0, crowd_ - 1);
  frames_ = frames_ + count;  // nobody else writes
  launches_ = launches_ + 1;
  most_ = std::max<std::int64_t>(most_, count);
}

GatherCounts Gatherer::counts() const noexcept {
  return {frames_.load(), launches_.load(), most_.load()};
}

// The mutex is taken so that a thread which has found nothing to do is asleep by now, and hears of it.
void Gatherer::wake_launching_thread() noexcept {
  { const std::lock_guard<std::mutex> lock(mutex_); }
  launcher_.wake.notify_one();
}

void Gatherer::submit(GatheredFramePtr submitted) noexcept {
  const bool first = waiting_.push(submitted.release());
  // Whoever submitted the frame before has woken the thread, and who has the turn looks when it ends.
  if (first && !launching_.load() && launcher_.idle.load() > 0) wake_launching_thread();
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

bool Gatherer::may_launch() const noexcept {
  return !launching_.load() && !waiting_.empty();
}

bool Gatherer::may_answer() const noexcept {
  return late_.step != nullptr || !answering_.empty();
}

bool Gatherer::launching_thread_has_work() const noexcept {
  return may_launch() || (answering_threads_ == 0 && may_answer());
}

Gatherer::Sleepers& Gatherer::who_answers() noexcept {
  return answering_threads_ == 0 ? launcher_ : answerers_;
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
      ++sleepers.idle;  // before it looks again; see launching_
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

void Gatherer::run_launch(std::unique_lock<std::mutex>& lock) {
  if (launching_.exchange(true)) return;  // by a caller, who wakes a thread at its end
  if (waiting_.empty()) return launching_.store(false);
  lock.unlock();
  std::shared_ptr<LaunchedFrames> launch;
  while ((launch = unused_launch()) == nullptr) {  // no memory: some will be unused soon
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pause_before_launch();
  note_frame();
  take_waiting(*launch);
  compute(*launch);
  launch->cut_answers();
  const std::size_t parts = launch->parts();
  count_launch(launch->frames.size());
  usual_frames_ += (static_cast<float>(launch->frames.size()) - usual_frames_) / kUsual;
  usual_microseconds_ += (launch->microseconds - usual_microseconds_) / kUsual;
  full_ = launch->frames.size() == most_frames_;
  waiting_since_ = waiting_.empty() ? std::nullopt : std::optional(Clock::now());
  launching_.store(false);
  lock.lock();
  answering_.push_back(launch);
  // To wake another thread for few would take longer.
  if (launch->frames.size() <= LaunchedFrames::kLeastAnswers) return answer_some(lock);
  for (std::size_t i = 0; i < std::min(parts, answering_threads_); ++i) answerers_.wake.notify_one();
}

void Gatherer::pause_before_launch() const noexcept {
  if (!on_device_ || usual_frames_ < kManyFrames || full_) return;
  const std::chrono::duration<float, std::micro> pause(std::min(usual_microseconds_, kMostPause));
  const Clock::time_point since = waiting_since_.value_or(Clock::now());
  std::this_thread::sleep_until(since + std::chrono::duration_cast<Clock::duration>(pause));
}

// There are few: as many as have answers that nobody has delivered yet. null where there is no memory.
std::shared_ptr<LaunchedFrames> Gatherer::unused_launch() noexcept {
  for (const auto& launch : launches_made_) {
    if (launch->unused()) return launch;
  }
  try {
    launches_made_.reserve(launches_made_.size() + 1);
    auto launch = std::make_shared<LaunchedFrames>(most_frames_);
    const std::lock_guard<std::mutex> lock(mutex_);
    answering_.reserve(launches_made_.size() + 1);
    return launches_made_.emplace_back(std::move(launch));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Gatherer::take_waiting(LaunchedFrames& launch) noexcept {
  launch.frames.clear();
  while (launch.frames.size() < most_frames_) {
    GatheredFrame* const frame = waiting_.take();
    if (frame == nullptr) break;
    launch.frames.emplace_back(frame);
  }
}

void Gatherer::compute(LaunchedFrames& launch) noexcept {
  launch.error = nullptr;
  launch.told = {};
  launch.told.frames = static_cast<std::int64_t>(launch.frames.size());
  const bool alone = launch.frames.size() == 1;
  const double begin = microseconds_of(CLOCK_MONOTONIC);
  const double begin_processor = alone ? microseconds_of(CLOCK_THREAD_CPUTIME_ID) : 0;
  try {
    obs_.clear();
    std::vector<Session*> sessions;
    sessions.reserve(launch.frames.size());
    for (const GatheredFramePtr& frame : launch.frames) {
      sessions.push_back(&frame->session());
      obs_.insert(obs_.end(), frame->obs_.begin(), frame->obs_.end());
    }
    launch.d_output = static_cast<std::size_t>(policy_->config().d_output);
    launch.out.resize(launch.frames.size() * launch.d_output);
    SessionGroup(std::move(sessions)).step_locked(obs_.data(), launch.out.data());
  } catch (...) {
    launch.error = std::current_exception();
  }
  launch.microseconds = static_cast<float>(microseconds_of(CLOCK_MONOTONIC) - begin);
  if (!alone || launch.error) return;
  launch.told.microseconds = launch.microseconds;
  launch.told.processor_microseconds =
      static_cast<float>(microseconds_of(CLOCK_THREAD_CPUTIME_ID) - begin_processor);
}

void Gatherer::answer_some(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<LaunchedFrames> launch = answering_.front();
  const std::size_t part = launch->taken++;
  if (launch->taken == launch->parts()) answering_.erase(answering_.begin());
  lock.unlock();
  LaunchedFrames::answer(launch, part);
  lock.lock();
}

}  // namespace exphil::core
