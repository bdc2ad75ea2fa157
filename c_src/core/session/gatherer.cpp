#include "core/session/gatherer.hpp"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/session/session.hpp"
#include "core/work/background.hpp"
#include "core/work/own_thread.hpp"
#include "core/work/parallel.hpp"

namespace exphil::core {

namespace {

// Launches of one frame in a row until callers step alone again: in a fleet now and then one frame finds
// nobody beside it, and to step it alone takes as long as several frames together.
constexpr int kCrowd = 8;
// A message to a process takes 7 us of a thread that is no scheduler where the VM is busy (1 to 2 where it is
// not), and now and then milliseconds, because it waits for the queue of a scheduler that has lost its core.
// So several threads answer the frames of a launch, so many at a time: of 4,096 processes on 16 cores 30,545
// frames of 1.2 million were late with four threads, 813 with eight. The one that launches answers only where
// all frames are one part, and on few cores, where it is alone.
constexpr int kCoresPerThread = 2, kFewCores = 8, kMostAnswering = 8;
constexpr std::size_t kAnsweredAtOnce = 8;
// Launches whose frames wait for their answers, beside the one under way.
constexpr std::size_t kLaunchesAhead = 8;
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

void GatheredFrame::begin(Session& session, const float* obs, bool acts) {
  session_ = &session;
  acts_ = acts;
  obs_.assign(obs, obs + session.policy()->config().d_input);
}

// What one thread launches and several answer; its memory is used again.
struct Gatherer::Launch {
  std::vector<GatheredFramePtr> frames;  // most_frames() of them
  std::size_t count = 0;
  std::size_t taken = 0, answered = 0;  // frames that a thread answers, and has answered; with the mutex
  std::vector<Session*> sessions;
  std::vector<float> obs, out;
  std::exception_ptr error;
  GatheredLaunch told;
  float microseconds = 0;
};

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
  const std::size_t launches = answering == 0 ? 1 : 1 + kLaunchesAhead;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    launches_made_.reserve(launches), free_.reserve(launches), answering_.reserve(launches);
    while (launches_made_.size() < launches) {
      auto launch = std::make_unique<Launch>();
      launch->frames.resize(most_frames_);
      free_.push_back(launch.get());
      launches_made_.push_back(std::move(launch));
    }
  }
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

void Gatherer::add_session() {
  const std::lock_guard<std::mutex> lock(sessions_mutex_);
  if (threads_.empty()) start_threads();
  policy_->reserve_batch(std::min(sessions_ + 1, static_cast<std::int64_t>(most_frames_)));
  ++sessions_;
}

void Gatherer::remove_session() noexcept {
  const std::lock_guard<std::mutex> lock(sessions_mutex_);
  --sessions_;
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
  return !free_.empty() && !launching_.load() && !waiting_.empty();
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
  Launch* const launch = free_.back();
  free_.pop_back();
  lock.unlock();
  pause_before_launch();
  note_frame();
  take_waiting(launch);
  compute(launch);
  count_launch(launch->count);
  usual_frames_ += (static_cast<float>(launch->count) - usual_frames_) / kUsual;
  usual_microseconds_ += (launch->microseconds - usual_microseconds_) / kUsual;
  full_ = launch->count == most_frames_;
  waiting_since_ = waiting_.empty() ? std::nullopt : std::optional(Clock::now());
  launching_.store(false);
  lock.lock();
  launch->taken = launch->answered = 0;
  answering_.push_back(launch);
  const std::size_t parts = (launch->count + kAnsweredAtOnce - 1) / kAnsweredAtOnce;
  if (parts == 1) return answer_some(lock);  // to wake another thread would take longer
  for (std::size_t i = 0; i < std::min(parts, answering_threads_); ++i) answerers_.wake.notify_one();
}

void Gatherer::pause_before_launch() const noexcept {
  if (!on_device_ || usual_frames_ < kManyFrames || full_) return;
  const std::chrono::duration<float, std::micro> pause(std::min(usual_microseconds_, kMostPause));
  const Clock::time_point since = waiting_since_.value_or(Clock::now());
  std::this_thread::sleep_until(since + std::chrono::duration_cast<Clock::duration>(pause));
}

void Gatherer::take_waiting(Launch* launch) noexcept {
  launch->count = 0;
  while (launch->count < most_frames_) {
    GatheredFrame* const frame = waiting_.take();
    if (frame == nullptr) break;
    launch->frames[launch->count++].reset(frame);
  }
}

void Gatherer::compute(Launch* launch) noexcept {
  launch->error = nullptr;
  launch->told = {};
  launch->told.frames = static_cast<std::int64_t>(launch->count);
  const bool alone = launch->count == 1;
  const double begin = microseconds_of(CLOCK_MONOTONIC);
  const double begin_processor = alone ? microseconds_of(CLOCK_THREAD_CPUTIME_ID) : 0;
  try {
    launch->obs.clear();
    launch->sessions.clear();
    for (std::size_t i = 0; i < launch->count; ++i) {
      const GatheredFrame& frame = *launch->frames[i];
      launch->sessions.push_back(&frame.session());
      launch->obs.insert(launch->obs.end(), frame.obs_.begin(), frame.obs_.end());
    }
    const PolicyConfig& config = launch->sessions[0]->policy()->config();
    launch->out.resize(launch->count * static_cast<std::size_t>(config.d_output));
    Session::step_locked(launch->sessions, launch->obs.data(), launch->out.data());
  } catch (...) {
    launch->error = std::current_exception();
  }
  launch->microseconds = static_cast<float>(microseconds_of(CLOCK_MONOTONIC) - begin);
  if (!alone || launch->error) return;
  launch->told.microseconds = launch->microseconds;
  launch->told.processor_microseconds =
      static_cast<float>(microseconds_of(CLOCK_THREAD_CPUTIME_ID) - begin_processor);
}

void Gatherer::answer_some(std::unique_lock<std::mutex>& lock) {
  Launch* const launch = answering_.front();
  const std::size_t begin = launch->taken, end = std::min(launch->count, begin + kAnsweredAtOnce);
  launch->taken = end;
  if (end == launch->count) answering_.erase(answering_.begin());
  lock.unlock();
  deliver(launch, begin, end);
  lock.lock();
  launch->answered += end - begin;
  if (launch->answered < launch->count) return;
  free_.push_back(launch);
  if (free_.size() == 1) launcher_.wake.notify_one();  // which may wait for one
}

void Gatherer::deliver(Launch* launch, std::size_t begin, std::size_t end) noexcept {
  // Not of sessions[0], which may be gone: its frame may be another thread's, and answered.
  const auto d_output =
      static_cast<std::size_t>(launch->frames[begin]->session().policy()->config().d_output);
  for (std::size_t i = begin; i < end; ++i) {
    const GatheredFramePtr frame = std::move(launch->frames[i]);
    Session& session = frame->session();
    const float* const out = launch->out.data() + i * d_output;
    Action action;
    if (!launch->error && frame->acts()) action = session.choose_locked(out, *frame->noise_);
    session.mutex_.unlock();
    if (launch->error) {
      frame->fail(launch->error);
    } else {
      frame->answer(out, action, launch->told);
    }
  }
}

}  // namespace exphil::core
