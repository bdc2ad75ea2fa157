// The launches of a gatherer: when they begin, which frames they have, and what becomes of their answers.
#include <time.h>

#include <algorithm>
#include <exception>

#include "core/session/gatherer.hpp"
#include "core/session/launched_frames.hpp"
#include "core/session/session.hpp"
#include "core/session/session_group.hpp"
#include "core/work/background.hpp"

namespace exphil::core {

namespace {

// Where launches on a device have at least so many frames, a launch waits for more of them for as long as it
// usually takes itself, at most kMostPause. So launches take at most half of the time, and a frame is
// answered at most a launch later. Processes that wake by the VM's timers do so at the beginning of each
// millisecond, so two launches have all frames of a millisecond instead of four or five, and wake half as
// many schedulers. A launch that usually takes longer than kMostPause has no other wait for it to end
// (Gatherer::long_). On the host the cores that would wait compute: a pause made the median answer to 512
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

void Gatherer::run_launch(std::unique_lock<std::mutex>& lock) {
  if (!places_.collect(long_.load() || left_.load())) return;  // who launches or collects looks at its end
  if (waiting_.empty()) return places_.stop_collecting();
  const auto pause = end_of_pause();
  lock.unlock();
  std::shared_ptr<LaunchedFrames> launch;
  while ((launch = unused_launch()) == nullptr) {  // no memory: some will be unused soon
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (pause) std::this_thread::sleep_until(*pause);
  note_frame();
  take_waiting(*launch);
  full_ = launch->frames.size() == most_frames_;
  left_ = full_ && !waiting_.empty();
  places_.begin_launch();
  if (may_launch()) wake_launching_thread();
  compute(*launch);
  launch->cut_answers();
  const std::size_t parts = launch->parts();
  lock.lock();
  end_launch(*launch);
  answering_.push_back(launch);
  // To wake another thread for few would take longer.
  const bool few = launch->frames.size() <= LaunchedFrames::kLeastAnswers;
  for (std::size_t i = 0; !few && i < std::min(parts, answering_threads_); ++i) answerers_.wake.notify_one();
  if (few) answer_some(lock);
}

void Gatherer::end_launch(const LaunchedFrames& launch) noexcept {
  count_launch(launch.frames.size());
  usual_frames_ += (static_cast<float>(launch.frames.size()) - usual_frames_) / kUsual;
  usual_microseconds_ += (launch.microseconds - usual_microseconds_) / kUsual;
  long_ = usual_frames_ >= kManyFrames && usual_microseconds_ > kMostPause;
  const bool left = !waiting_.empty() && !places_.is_collected();
  waiting_since_ = left ? std::optional(Clock::now()) : std::nullopt;
  places_.end_launch();
}

// Where launches end within the pause, it begins when the one before has ended, or with the first frame after
// that: so they take at most half of the time. Else it begins with the first frame that waits, because the
// launch before may still be under way.
std::optional<Gatherer::Clock::time_point> Gatherer::end_of_pause() noexcept {
  const auto left = std::exchange(waiting_since_, std::nullopt);
  if (!on_device_ || usual_frames_ < kManyFrames || full_) return std::nullopt;
  const bool beside = long_.load() && at_once() > 1;
  const auto since = beside ? waiting_.oldest()->submitted_ : left.value_or(Clock::now());
  const std::chrono::duration<float, std::micro> pause(std::min(usual_microseconds_, kMostPause));
  return since + std::chrono::duration_cast<Clock::duration>(pause);
}

// There are few: as many as are under way, or have answers that nobody has delivered yet. null where there is
// no memory.
std::shared_ptr<LaunchedFrames> Gatherer::unused_launch() noexcept {
  for (const auto& launch : launches_made_) {
    if (launch->unused()) return launch;
  }
  return make_launch();
}

std::shared_ptr<LaunchedFrames> Gatherer::make_launch() noexcept {
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
  launch.begin();
  while (launch.frames.size() < most_frames_) {
    GatheredFrame* const frame = waiting_.take();
    if (frame == nullptr) break;
    launch.frames.emplace_back(frame);
  }
}

void Gatherer::compute(LaunchedFrames& launch) const noexcept {
  launch.error = nullptr;
  launch.told = {};
  launch.told.frames = static_cast<std::int64_t>(launch.frames.size());
  const bool alone = launch.frames.size() == 1;
  const double begin = microseconds_of(CLOCK_MONOTONIC);
  const double begin_processor = alone ? microseconds_of(CLOCK_THREAD_CPUTIME_ID) : 0;
  try {
    launch.obs.clear();
    std::vector<Session*> sessions;
    sessions.reserve(launch.frames.size());
    for (const GatheredFramePtr& frame : launch.frames) {
      sessions.push_back(&frame->session());
      launch.obs.insert(launch.obs.end(), frame->obs_.begin(), frame->obs_.end());
    }
    launch.d_output = static_cast<std::size_t>(policy_->config().d_output);
    launch.out.resize(launch.frames.size() * launch.d_output);
    SessionGroup(std::move(sessions)).step_locked(launch.obs.data(), launch.out.data());
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
