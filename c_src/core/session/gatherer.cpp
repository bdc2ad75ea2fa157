#include "core/session/gatherer.hpp"

#include <time.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/session/session.hpp"
#include "core/work/background.hpp"
#include "core/work/own_thread.hpp"

namespace exphil::core {

namespace {

// Launches of one frame in a row until callers step alone again: in a fleet now and then one frame finds
// nobody beside it, and to step it alone takes as long as several frames together.
constexpr int kCrowd = 8;
// One launches while the others answer: a message to a process takes about 2 us.
constexpr int kCoresPerThread = 4, kMostThreads = 4;

double microseconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

// Of a call in this thread.
template <class Call>
void measure(GatheredLaunch* launch, const Call& call) {
  const double begin = microseconds_of(CLOCK_MONOTONIC);
  const double begin_processor = microseconds_of(CLOCK_THREAD_CPUTIME_ID);
  call();
  launch->microseconds = static_cast<float>(microseconds_of(CLOCK_MONOTONIC) - begin);
  launch->processor_microseconds =
      static_cast<float>(microseconds_of(CLOCK_THREAD_CPUTIME_ID) - begin_processor);
}

}  // namespace

GatheredFrame::GatheredFrame(Session& session, const float* obs, bool acts)
    : session_(session), acts_(acts), obs_(obs, obs + session.policy()->config().d_input) {}

// What one thread launches and answers; its memory is used again.
struct Gatherer::Launch {
  std::array<std::unique_ptr<GatheredFrame>, kMost> frames;
  std::size_t count = 0;
  std::vector<Session*> sessions;
  std::vector<float> obs, out;
  std::exception_ptr error;
  GatheredLaunch told;
};

Gatherer::~Gatherer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Gatherer::add_session() {
  const std::lock_guard<std::mutex> lock(sessions_mutex_);
  if (threads_.empty()) {
    const int wanted = std::clamp(process_cores() / kCoresPerThread, 1, kMostThreads);
    try {
      for (int i = 0; i < wanted; ++i) threads_.emplace_back([this] { run(); });
    } catch (const std::exception& error) {  // those that run do the work
      if (threads_.empty()) {
        fail(ErrorKind::out_of_memory, ":gather",
             "the system gives no thread for gathering frames: ", error.what());
      }
    }
  }
  policy_->reserve_batch(std::min<std::int64_t>(sessions_ + 1, kMost));
  ++sessions_;
}

void Gatherer::remove_session() noexcept {
  const std::lock_guard<std::mutex> lock(sessions_mutex_);
  --sessions_;
}

std::optional<Gatherer::Turn> Gatherer::take_turn() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (launching_ || !waiting_.empty() || crowd_ > 0) return std::nullopt;
  launching_ = true;
  return std::make_optional<Turn>(*this);
}

void Gatherer::end_turn(std::size_t frames) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    end_launch(frames);
    if (waiting_.empty()) return;
  }
  wake_.notify_one();
}

// Called with the mutex.
void Gatherer::end_launch(std::size_t frames) noexcept {
  launching_ = false;
  if (frames == 0) return;
  crowd_ = frames > 1 ? kCrowd : std::max(0, crowd_ - 1);
  counts_.frames += static_cast<std::int64_t>(frames);
  counts_.launches += 1;
  counts_.most = std::max(counts_.most, static_cast<std::int64_t>(frames));
}

void Gatherer::submit(std::unique_ptr<GatheredFrame>&& frame) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(frame));
    if (launching_ || waiting_.size() > 1) return;  // whoever launches, or was woken, finds it
  }
  wake_.notify_one();
}

void Gatherer::finish(Turn turn, std::shared_ptr<LateFrame> late,
                      std::unique_ptr<GatheredFrame> frame) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    turn.gatherer_ = nullptr;  // run_late() ends it
    late_ = {std::move(late), std::move(frame)};
  }
  wake_.notify_one();
}

GatherCounts Gatherer::counts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

void Gatherer::run() {
  begin_own_thread("exphil_gather");
  Launch launch;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || has_work(); });
    if (stopping_) return;
    if (late_.step != nullptr) {
      run_late(lock, launch);
    } else {
      run_launch(lock, launch);
    }
  }
}

void Gatherer::run_late(std::unique_lock<std::mutex>& lock, Launch& launch) {
  const Late late = std::move(late_);
  lock.unlock();
  GatheredFrame& frame = *late.frame;
  launch.error = nullptr;
  Action action;
  try {
    launch.out.resize(static_cast<std::size_t>(frame.session().policy()->config().d_output));
    action = late.step->answer(launch.out.data());
  } catch (...) {
    launch.error = std::current_exception();
  }
  end_turn(1);
  if (launch.error) {
    frame.fail(launch.error);
  } else {
    frame.answer(launch.out.data(), action, {});
  }
  lock.lock();
}

void Gatherer::run_launch(std::unique_lock<std::mutex>& lock, Launch& launch) {
  launching_ = true;
  launch.count = std::min(waiting_.size(), kMost);
  for (std::size_t i = 0; i < launch.count; ++i) {
    launch.frames[i] = std::move(waiting_.front());
    waiting_.pop_front();
  }
  lock.unlock();
  note_frame();
  compute(launch);
  lock.lock();
  end_launch(launch.count);
  const bool more = !waiting_.empty();
  lock.unlock();
  if (more) wake_.notify_one();
  deliver(launch);
  lock.lock();
}

void Gatherer::compute(Launch& launch) noexcept {
  launch.error = nullptr;
  launch.told = {};
  launch.told.frames = static_cast<std::int64_t>(launch.count);
  try {
    launch.obs.clear();
    launch.sessions.clear();
    for (std::size_t i = 0; i < launch.count; ++i) {
      const GatheredFrame& frame = *launch.frames[i];
      launch.sessions.push_back(&frame.session());
      launch.obs.insert(launch.obs.end(), frame.obs_.begin(), frame.obs_.end());
    }
    const PolicyConfig& config = launch.sessions[0]->policy()->config();
    launch.out.resize(launch.count * static_cast<std::size_t>(config.d_output));
    const auto step = [&] { Session::step_locked(launch.sessions, launch.obs.data(), launch.out.data()); };
    if (launch.count > 1) return step();
    measure(&launch.told, step);
  } catch (...) {
    launch.error = std::current_exception();
  }
}

void Gatherer::deliver(Launch& launch) noexcept {
  const auto d_output = static_cast<std::size_t>(launch.frames[0]->session().policy()->config().d_output);
  for (std::size_t i = 0; i < launch.count; ++i) {
    const std::unique_ptr<GatheredFrame> frame = std::move(launch.frames[i]);
    Session& session = frame->session();
    const float* const out = launch.out.data() + i * d_output;
    Action action;
    if (!launch.error && frame->acts()) action = session.choose_locked(out, *frame->noise_);
    session.mutex_.unlock();
    if (launch.error) {
      frame->fail(launch.error);
    } else {
      frame->answer(out, action, launch.told);
    }
  }
}

}  // namespace exphil::core
