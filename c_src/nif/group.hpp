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

// What a call of one frame for each of several sessions is of.
struct GroupOrList {
  const LoadedPolicy* loaded;  // that of the first session
  // A kept group, the group of a list that earlier calls had, or one for this call.
  std::shared_ptr<core::SessionGroup> group;
};

template <>
struct Decoder<GroupOrList> {
  static GroupOrList decode(Call& call, Term term, const char* argument);
};

}  // namespace exphil::nif
