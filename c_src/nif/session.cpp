// One agent's calls: step, prefill, rolling back, and saving and restoring its state. core::Session locks;
// every call may come from any thread.
#include <memory>

#include "nif/frames.hpp"
#include "nif/functions.hpp"
#include "nif/group.hpp"
#include "nif/step_timer.hpp"

namespace exphil::nif {

Term step(Call& call, SessionHandle& session, Frames obs) {
  const core::PolicyConfig& config = session.loaded->policy->config();
  obs.require({config.d_input}, "obs");
  Result out(call, *session.loaded->backend, f32_bytes(1, config.d_output, "obs"));
  StepTimer timer(session);
  try {
    session.session->step(obs.data, out.floats(), call.may_wait());
  } catch (const core::Late& late) {
    throw timer.late(call, late);
  }
  return obs.answer(call, {config.d_output}, out.term());
}

Term finish_step(Call& call, LateHandle& late, SessionHandle& session, Frames obs) {
  const std::int64_t d_output = session.loaded->policy->config().d_output;
  Result out(call, *session.loaded->backend, f32_bytes(1, d_output, "obs"));
  const StepTimer timer(session, late.begin);
  late.frame->answer(out.floats());
  return obs.answer(call, {d_output}, out.term());
}

Term step_batch(Call& call, GroupOrList sessions, Frames obs) {
  const core::PolicyConfig& config = sessions.loaded().policy->config();
  const std::int64_t count = sessions.count();
  obs.require_shape({count, config.d_input}, "obs");
  Result out(call, *sessions.loaded().backend, f32_bytes(count, config.d_output, "obs"));
  sessions.step(obs.data, out.floats());
  return obs.answer(call, {count, config.d_output}, out.term());
}

Term prefill(Call& call, SessionHandle& session, Frames frames) {
  const core::PolicyConfig& config = session.loaded->policy->config();
  const std::int64_t seq = frames.require_rows(config.d_input, "frames");
  Result out(call, *session.loaded->backend, f32_bytes(seq, config.d_output, "frames"));
  session.session->prefill(frames.data, seq, out.floats());
  session.replaced_frames();
  return frames.answer(call, {seq, config.d_output}, out.term());
}

Term rollback(Call& call, SessionHandle& session, std::int64_t frames_back) {
  session.session->roll_back(frames_back, call.may_wait());
  return encode_atom(call, "ok");
}

Term recorded_frames(Call& call, SessionHandle& session) {
  return encode_integer(call, session.session->recorded(call.may_wait()));
}

Term resimulate(Call& call, SessionHandle& session, std::int64_t frames_back, Frames frames) {
  const core::PolicyConfig& config = session.loaded->policy->config();
  const std::int64_t seq = frames.require_rows(config.d_input, "frames");
  Result out(call, *session.loaded->backend, f32_bytes(seq, config.d_output, "frames"));
  session.session->resimulate(frames_back, frames.data, seq, out.floats(), call.may_wait());
  return frames.answer(call, {seq, config.d_output}, out.term());
}

Term snapshot(Call& call, SessionHandle& session) {
  std::shared_ptr<core::Snapshot> taken = session.session->snapshot(call.may_wait());
  const std::size_t weight = snapshot_weight(session.loaded->policy->config());
  return encode_handle(call, SnapshotHandle{session.loaded, std::move(taken)}, weight);
}

Term restore(Call& call, SessionHandle& session, SnapshotHandle& snapshot) {
  session.session->restore(*snapshot.snapshot, call.may_wait());
  session.replaced_frames();
  return encode_atom(call, "ok");
}

Term export_state(Call& call, SessionHandle& session) {
  const std::vector<std::uint8_t> bytes = session.session->export_state();
  return encode_bytes(call, bytes.data(), bytes.size());
}

Term import_state(Call& call, SessionHandle& session, Binary state) {
  session.session->import_state(state.data, state.size);
  session.replaced_frames();
  return encode_atom(call, "ok");
}

}  // namespace exphil::nif
