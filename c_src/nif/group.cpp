#include "nif/group.hpp"

#include "nif/functions.hpp"

namespace exphil::nif {

const std::shared_ptr<LoadedPolicy>* find_batch(ErlNifEnv* env, Term term) {
  if (const auto* group = find_handle<GroupHandle>(env, term)) return &group->kept->members[0].loaded;
  Term head = 0, tail = 0;
  if (!enif_get_list_cell(env, term, &head, &tail)) return nullptr;
  const auto* session = find_handle<SessionHandle>(env, session_reference(env, head));
  return session != nullptr ? &session->loaded : nullptr;
}

GroupOrList Decoder<GroupOrList>::decode(Call& call, Term term, const char* argument) {
  unsigned length = 0;
  if (!enif_get_list_length(call.env(), term, &length)) {
    const auto& handle = decode_handle<GroupHandle>(
        call, term, argument, "a list of sessions, or a group that Policy.group returned");
    GroupOrList group(handle);
    require_current(group.loaded(), argument);  // weights are replaced on all devices of a model
    return group;
  }
  std::vector<core::Session*> sessions;
  core::RepeatedLists::Numbers numbers;
  sessions.reserve(length), numbers.reserve(length);
  LoadedPolicy* loaded = nullptr;
  Term head = 0;
  while (enif_get_list_cell(call.env(), term, &head, &term)) {
    const SessionHandle& handle = *Decoder<ListedSession>::decode(call, head, argument).handle;
    if (loaded == nullptr) loaded = handle.loaded.get();
    sessions.push_back(handle.session.get());
    numbers.push_back(handle.number);
  }
  if (loaded != nullptr) {
    auto repeated = loaded->repeated.find(numbers, sessions);
    if (repeated) return GroupOrList(loaded, std::move(repeated));
  }
  return GroupOrList(loaded, std::move(sessions));
}

Term new_group(Call& call, std::vector<ListedSession> sessions) {
  std::vector<KeptGroup::Member> members;
  std::vector<core::Session*> plain;
  members.reserve(sessions.size()), plain.reserve(sessions.size());
  for (const auto [handle] : sessions) {
    members.push_back({handle->loaded, handle->session});
    plain.push_back(handle->session.get());
  }
  core::SessionGroup group(std::move(plain));
  group.keep();
  return encode_handle(
      call, GroupHandle{std::make_shared<KeptGroup>(KeptGroup{std::move(members), std::move(group)})});
}

}  // namespace exphil::nif
