#include "core/session/gatherer.hpp"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <array>

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
// A message to a process takes now and then milliseconds of a thread that is no scheduler, because it waits
// for the queue of a scheduler that has lost its core. So several threads answer. The one that launches
// answers only where all frames are one part, and on few cores, where it is alone.
constexpr int kCoresPerThread = 4, kFewCores = 8, kMostAnswering = 4;
// The answers that one thread delivers: at least so many, where there are, so that few frames wake few
// threads; and at most so many of one lane, because the last waits for all others, and a scheduler that
// delivers them does nothing else.
constexpr std::size_t kLeastAnswers = 8, kMostAnswers = 32;
// Answers are passed on where a launch has at least kPassedOn of them, and a part kLeastPassedOn. Fewer come
// from a machine that has time for their messages, or none at all, and there the way through another process
// is the longer one: of 80 agents on two cores 5 to 10% of the frames were late after a node had died, 3 to
// 4% where none was passed on.
constexpr std::size_t kPassedOn = 32, kLeastPassedOn = 4;
// Threads that submit frames; where there are more, some have the same number.
constexpr std::size_t kLanes = 256;
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

std::size_t this_lane() noexcept {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t lane = threads.fetch_add(1, std::memory_order_relaxed) % kLanes;
  return lane;
}

}  // namespace

void GatheredFrame::begin(Session& session, const float* obs, bool acts) {
  session_ = &session;
  acts_ = acts;
  obs_.assign(obs, obs + session.policy()->config().d_input);
}

// With its outputs, or null where it has none. Its session is free then.
Action GatheredFrame::end(const float* out) noexcept {
  Action action;
  if (out != nullptr && acts_) action = session_->choose_locked(out, *noise_);
  session_->mutex_.unlock();
  return action;
}

// What one thread launches and several answer; its memory is used again.
struct LaunchedFrames {
  std::vector<GatheredFramePtr> frames;
  std::size_t d_output = 0;
  std::vector<float> out;  // {frames, d_output}
  std::exception_ptr error;
  GatheredLaunch told;
  float microseconds = 0;
  // The frames in the order of their answers, and where in it each part ends that one thread delivers.
  std::vector<std::size_t> order, ends;
  std::size_t taken = 0;                   // parts that some thread delivers; with the gatherer's mutex
  std::atomic<std::size_t> unanswered{0};  // parts; none: the launch is unused

  // With room for so many frames: nothing below allocates but `out`.
  explicit LaunchedFrames(std::size_t most) { frames.reserve(most), order.reserve(most), ends.reserve(most); }
  std::size_t begin_of(std::size_t part) const { return part == 0 ? 0 : ends[part - 1]; }
  void order_answers() noexcept;
  void deliver(std::size_t part) noexcept;
};

// By the lanes of the frames, and within a lane as they came.
void LaunchedFrames::order_answers() noexcept {
  std::array<std::size_t, kLanes + 1> next{};
  for (const GatheredFramePtr& frame : frames) ++next[frame->lane_ + 1];
  for (std::size_t lane = 0; lane < kLanes; ++lane) next[lane + 1] += next[lane];
  order.resize(frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i) order[next[frames[i]->lane_]++] = i;
  ends.clear();
  std::size_t begin = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const bool of_another_lane = frames[order[i]]->lane_ != frames[order[i - 1]]->lane_;
    if (i - begin < (of_another_lane ? kLeastAnswers : kMostAnswers)) continue;
    ends.push_back(i);
    begin = i;
  }
  ends.push_back(order.size());
}

// A session may be gone when its frame is released, and with the last one the gatherer.
void LaunchedFrames::deliver(std::size_t part) noexcept {
  for (std::size_t at = begin_of(part); at < ends[part]; ++at) {
    const std::size_t row = order[at];
    const GatheredFramePtr frame = std::move(frames[row]);
    const float* const values = out.data() + row * d_output;
    const Action action = frame->end(error ? nullptr : values);
    if (error) {
      frame->fail(error);
    } else {
      frame->answer(values, action, told);
    }
  }
  unanswered.fetch_sub(1, std::memory_order_release);
}

void GatheredAnswers::deliver() noexcept {
  if (delivered_.exchange(true)) return;
  const std::shared_ptr<LaunchedFrames> launch = std::move(launch_);
  launch->deliver(part_);
}

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
  submitted->lane_ = this_lane();
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
  std::shared_ptr<LaunchedFrames> launch = unused_launch();
  while (launch == nullptr) {  // no memory: some will be unused soon
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    launch = unused_launch();
  }
  pause_before_launch();
  note_frame();
  take_waiting(*launch);
  compute(*launch);
  launch->order_answers();
  const std::size_t parts = launch->ends.size();
  launch->unanswered.store(parts, std::memory_order_relaxed);  // before any thread has a part
  count_launch(launch->frames.size());
  usual_frames_ += (static_cast<float>(launch->frames.size()) - usual_frames_) / kUsual;
  usual_microseconds_ += (launch->microseconds - usual_microseconds_) / kUsual;
  full_ = launch->frames.size() == most_frames_;
  waiting_since_ = waiting_.empty() ? std::nullopt : std::optional(Clock::now());
  launching_.store(false);
  lock.lock();
  launch->taken = 0;
  answering_.push_back(launch);
  // To wake another thread for few would take longer.
  if (launch->frames.size() <= kLeastAnswers) return answer_some(lock);
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
    if (launch->unanswered.load(std::memory_order_acquire) == 0) return launch;
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
    launched_sessions_.clear();
    for (const GatheredFramePtr& frame : launch.frames) {
      launched_sessions_.push_back(&frame->session());
      obs_.insert(obs_.end(), frame->obs_.begin(), frame->obs_.end());
    }
    launch.d_output = static_cast<std::size_t>(policy_->config().d_output);
    launch.out.resize(launch.frames.size() * launch.d_output);
    Session::step_locked(launched_sessions_, obs_.data(), launch.out.data());
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
  if (launch->taken == launch->ends.size()) answering_.erase(answering_.begin());
  lock.unlock();
  if (!pass_on(launch, part)) launch->deliver(part);
  lock.lock();
}

// False where nothing was done.
bool Gatherer::pass_on(const std::shared_ptr<LaunchedFrames>& launch, std::size_t part) noexcept {
  const std::size_t begin = launch->begin_of(part);
  if (launch->order.size() < kPassedOn || launch->ends[part] - begin < kLeastPassedOn) return false;
  try {
    auto answers = std::make_unique<GatheredAnswers>(launch, part);  // which delivers them at its end
    launch->frames[launch->order[begin]]->pass_on(answers);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace exphil::core
