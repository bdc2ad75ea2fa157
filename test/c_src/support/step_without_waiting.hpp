// A frame as a process of Elixir plays it on its own scheduler: what is late is finished at once, and what
// cannot be sent without waiting is sent by a call that may wait. For tests and benchmarks.
#pragma once

#include "core/session/session.hpp"

namespace exphil::test {

inline void step_without_waiting(core::Session& session, const float* obs, float* out) {
  try {
    session.step(obs, out, false);
  } catch (const core::Late& late) {
    late.frame->answer(out);
  } catch (const core::WouldWait&) {
    session.step(obs, out);
  }
}

}  // namespace exphil::test
