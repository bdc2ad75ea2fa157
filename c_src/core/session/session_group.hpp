// Sessions of one model that go on together, each by one frame, in one call. A list of sessions is a group
// for one call; Policy.group keeps one for many. What does not change is found out when the group is made:
// that all are of one model, which device each is on, and the states of those that have only one.
//
// The sessions are ordinary ones: they may be stepped alone, and be in several groups. Any thread may call a
// group, several concurrently: a call has the locks of all sessions of the group while it uses their states
// and the group's own memory. Used by nif/ and by the gatherer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/policy/policy.hpp"
#include "core/session/group_locks.hpp"
#include "core/session/play.hpp"

namespace exphil::core {

class Session;

class SessionGroup {
 public:
  // The order of the sessions is that of the rows of obs and out. Throws invalid_argument where there are
  // none, mismatch unless all are of one model. The sessions exist during every call but step_if() and
  // act_if(); they may end before the group does.
  explicit SessionGroup(std::vector<Session*> sessions);

  // For a group of many calls. Throws invalid_argument where a session appears twice, which otherwise each
  // call does; calls that find a session in use need not sort the sessions, the policy may keep something
  // from one frame to the next, and has reserved the memory for a frame. Throws out_of_memory.
  void keep();

  std::size_t size() const { return sessions_.size(); }
  bool has(const Session& session) const;

  // obs: {size, d_input}; out: {size, d_output}. invalid_argument where a session appears twice, or a frame
  // is not finite. The devices of the model compute side by side. Where one fails, no session has changed.
  void step(const float* obs, float* out);
  // The same, with the action of each session; logits: {size, d_output}, written. Throws unsupported where
  // the policy has no controller.
  std::vector<Action> act(const float* obs, float* logits);

  // These two for a call that is probably of this group: is_right() finds out, in this thread, while the
  // policy computes the frame. False or nothing, and nothing has changed, where it is another group's call,
  // or where the frame cannot begin before that is known; is_right() may not have been called then. The group
  // was kept. Its policy exists; its sessions may have ended.
  using IsRight = std::function<bool()>;
  bool step_if(const IsRight& is_right, const float* obs, float* out);
  std::optional<std::vector<Action>> act_if(const IsRight& is_right, const float* obs, float* logits);

 private:
  friend class Gatherer;

  // The sessions on one device. Where a history has several entries, its states are others in each frame:
  // such a session is moving.
  struct Part {
    struct Moving {
      Session* session;
      std::size_t at;  // in from and to
    };
    struct Windowed {
      Session* session;
      std::int64_t row;
      bool begun;  // whether its last frame was, ahead
    };
    Policy* policy;
    std::vector<State*> from, to;    // the carried states; to is empty where none is moving
    std::vector<std::int64_t> rows;  // of obs and out, for each of them; empty: one after another
    std::vector<Moving> moving;
    std::vector<Windowed> windows;
    std::unique_ptr<GroupMemory> memory;  // of the carried states; null for a group of one call
  };

  void add(Session& session, std::int64_t row, bool numbered);
  bool is_one_batch() const;  // all of one device, with carried states
  void begin(const float* obs);
  void tell_paces();
  // These call then() with all locks, after the frame. It does not throw.
  template <class Then>
  void step_then(const float* obs, float* out, Then then);
  template <class Then>
  bool step_if_then(const IsRight& is_right, const float* obs, float* out, Then then);
  // These with all locks.
  void choose(const float* logits, std::vector<Action>* actions);
  void step_locked(const float* obs, float* out);
  void advance_histories();
  void step_devices(const float* obs, float* out);
  static GroupStates states_of(Part& part);
  static void step_part(Part& part, const float* obs, float* out);
  static void step_carried(Part& part, const float* obs, float* out);
  static void step_with_windows(Part& part, const float* obs, float* out);

  std::vector<Session*> sessions_;
  std::vector<Session*> in_address_order_;  // empty until keep()
  GroupClaiming claiming_;
  std::vector<Part> parts_;
};

}  // namespace exphil::core
