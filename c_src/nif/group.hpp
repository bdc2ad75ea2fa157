// Groups of sessions: the resource behind Policy.group, and the argument of step_batch and act_batch, which
// is a group or a list of sessions. Used by group.cpp, session.cpp and act.cpp; a handle never changes, and
// core::SessionGroup locks.
#pragma once

#include <memory>
#include <optional>
#include <utility>
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

// What the first session of a group, or of a list, has loaded; null for anything else.
const std::shared_ptr<LoadedPolicy>* find_batch(ErlNifEnv* env, Term term);

// What a call of one frame for each of several sessions is of.
class GroupOrList {
 public:
  explicit GroupOrList(const GroupHandle& handle)
      : loaded_(handle.kept->members[0].loaded.get()), kept_(&handle.kept->group) {}
  // loaded: null where there are no sessions, which is an error.
  GroupOrList(const LoadedPolicy* loaded, std::vector<core::Session*> sessions)
      : loaded_(loaded), own_(std::move(sessions)) {}
  GroupOrList(const LoadedPolicy* loaded, std::shared_ptr<core::SessionGroup> repeated)
      : loaded_(loaded), kept_(repeated.get()), repeated_(std::move(repeated)) {}
  const LoadedPolicy& loaded() const { return *loaded_; }  // that of the first session
  core::SessionGroup& group() { return kept_ != nullptr ? *kept_ : *own_; }

 private:
  const LoadedPolicy* loaded_;
  core::SessionGroup* kept_ = nullptr;
  std::shared_ptr<core::SessionGroup> repeated_;  // of a list that earlier calls had: kept_
  std::optional<core::SessionGroup> own_;         // of another list, for this call
};

template <>
struct Decoder<GroupOrList> {
  static GroupOrList decode(Call& call, Term term, const char* argument);
};

}  // namespace exphil::nif
