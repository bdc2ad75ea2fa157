// Groups of sessions: the resource behind Policy.group, and the argument of step_batch and act_batch, which
// is a group or a list of sessions. Used by group.cpp, session.cpp and act.cpp; a handle never changes, and
// core::SessionGroup locks.
#pragma once

#include <memory>
#include <vector>

#include "core/session/session_group.hpp"
#include "nif/resources.hpp"

namespace exphil::nif {

// A group, and what keeps its sessions. Members are destroyed in reverse order: a session before its policy.
struct KeptGroup {
  struct Member {
    std::shared_ptr<LoadedPolicy> loaded;
    std::shared_ptr<core::Session> session;
  };
  std::vector<Member> members;
  core::SessionGroup group;
};
struct GroupHandle {
  std::shared_ptr<KeptGroup> kept;
};
inline void release(GroupHandle& handle) noexcept {
  core::reap(std::move(handle.kept));
}

// Of a list of sessions one of their references, for a job that copies it: the structs of a thousand sessions
// have 1.5 MB, because each has its policy's. Any other term as it is.
Term references_of(ErlNifEnv* env, Term term);

// What the first session of a group, or of a list, has loaded; null for anything else.
const std::shared_ptr<LoadedPolicy>* find_batch(ErlNifEnv* env, Term term);

// What a call of one frame for each of several sessions is of. A list that calls repeat is taken apart while
// the frame of the group that it probably is, is computed: to find a thousand sessions takes 25 us.
class GroupOrList {
 public:
  explicit GroupOrList(const GroupHandle& handle);
  // Throws as the list's sessions do; of a list that calls repeat, step() and act() throw that.
  GroupOrList(Call& call, Term list, std::int64_t count, const char* argument);

  const LoadedPolicy& loaded() const { return *loaded_; }  // that of the first session
  std::int64_t count() const { return count_; }
  void step(const float* obs, float* out);
  std::vector<core::Action> act(const float* obs, float* logits);

 private:
  core::SessionGroup& find();
  bool is_guess() { return &find() == guess_.get(); }

  LoadedPolicy* loaded_ = nullptr;
  std::int64_t count_;
  // A kept group, the group of a list that earlier calls had, or one for this call; of a list null until
  // find().
  std::shared_ptr<core::SessionGroup> group_, guess_;
  Call* call_ = nullptr;
  Term list_ = 0;
  const char* argument_ = nullptr;
};

template <>
struct Decoder<GroupOrList> {
  static GroupOrList decode(Call& call, Term term, const char* argument);
};

}  // namespace exphil::nif
