#include "core/session/launched_frames.hpp"

#include <array>
#include <new>

#include "core/session/session.hpp"

namespace exphil::core {

namespace {

// Answers are passed on where a launch has at least kPassedOn of them, and a part kLeastPassedOn. Fewer come
// from a machine that has time for their messages, or none at all, and there the way through another process
// is the longer one: of 80 agents on two cores 5 to 10% of the frames were late after a node had died, 3 to
// 4% where none was passed on.
constexpr std::size_t kPassedOn = 32, kLeastPassedOn = 4;
}  // namespace

void GatheredFrame::begin(Session& session, const float* obs, bool acts) {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t lane = threads.fetch_add(1, std::memory_order_relaxed) % kLanes;
  lane_ = lane;
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

void GatheredAnswers::deliver() noexcept {
  if (delivered_.exchange(true)) return;
  const std::shared_ptr<LaunchedFrames> launch = std::move(launch_);
  launch->deliver(part_);
}

// Within a lane as they came.
void LaunchedFrames::cut_answers() noexcept {
  constexpr std::size_t kLanes = GatheredFrame::kLanes;
  std::array<std::size_t, kLanes + 1> next{};
  for (const GatheredFramePtr& frame : frames) ++next[frame->lane_ + 1];
  for (std::size_t lane = 0; lane < kLanes; ++lane) next[lane + 1] += next[lane];
  order_.resize(frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i) order_[next[frames[i]->lane_]++] = i;
  ends_.clear();
  std::size_t begin = 0;
  for (std::size_t i = 1; i < order_.size(); ++i) {
    const bool of_another_lane = frames[order_[i]]->lane_ != frames[order_[i - 1]]->lane_;
    if (i - begin < (of_another_lane ? kLeastAnswers : kMostAnswers)) continue;
    ends_.push_back(i);
    begin = i;
  }
  ends_.push_back(order_.size());
  unanswered_.store(ends_.size(), std::memory_order_relaxed);  // before any thread has a part
  taken = 0;
}

bool LaunchedFrames::is_passed_on(std::size_t part) const {
  return order_.size() >= kPassedOn && ends_[part] - begin_of(part) >= kLeastPassedOn;
}

void LaunchedFrames::answer(const std::shared_ptr<LaunchedFrames>& launch, std::size_t part) noexcept {
  if (!launch->is_passed_on(part)) return launch->deliver(part);
  try {
    auto answers = std::make_unique<GatheredAnswers>(launch, part);  // which delivers them at its end
    launch->frames[launch->order_[launch->begin_of(part)]]->pass_on(answers);
  } catch (const std::bad_alloc&) {
    launch->deliver(part);
  }
}

// A session may be gone when its frame is released, and with the last one the gatherer.
void LaunchedFrames::deliver(std::size_t part) noexcept {
  for (std::size_t at = begin_of(part); at < ends_[part]; ++at) {
    const std::size_t row = order_[at];
    const GatheredFramePtr frame = std::move(frames[row]);
    const float* const values = out.data() + row * d_output;
    const Action action = frame->end(error ? nullptr : values);
    if (error) {
      frame->fail(error);
    } else {
      frame->answer(values, action, told);
    }
  }
  unanswered_.fetch_sub(1, std::memory_order_release);
}

}  // namespace exphil::core
