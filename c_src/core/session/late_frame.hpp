// A session's frame that the device had not computed when its caller's time was over. It has the session's
// lock until it is finished. Made by session.cpp; nif/ finishes it in a dirty job, or whoever needs the
// session first. Safe from any thread.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "core/session/play.hpp"
#include "core/work/handover_mutex.hpp"

namespace exphil::core {

class Session;

class LateFrame : public HandoverMutex::Task {
 public:
  // acts: the frame chooses an action. The session outlives every call of run() and answer().
  LateFrame(Session& session, bool acts);

  // Waits for the device, changes the session, and unlocks it; once.
  void run() noexcept override;
  // run(), and what the frame's own call would have returned or thrown. out: {d_output} of room.
  Action answer(float* out);

 private:
  Session& session_;
  const bool acts_;
  std::mutex mutex_;
  bool done_ = false;
  std::vector<float> out_;
  Action action_;  // where it acts
  std::exception_ptr error_;
};

// Thrown by a call of a session that may not wait, where its frame has begun and is late. Whoever catches it
// keeps the session until answer() has returned, or drops both.
struct Late {
  std::shared_ptr<LateFrame> frame;
};

}  // namespace exphil::core
