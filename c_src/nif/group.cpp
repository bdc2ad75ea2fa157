#include "nif/group.hpp"

#include "nif/functions.hpp"

namespace exphil::nif {

Term references_of(ErlNifEnv* env, Term term) {
  unsigned length = 0;
  if (!enif_get_list_length(env, term, &length)) return term;
  std::vector<Term> references;
  references.reserve(length);
  Term head = 0;
  while (enif_get_list_cell(env, term, &head, &term)) references.push_back(session_reference(env, head));
  return enif_make_list_from_array(env, references.data(), length);
}

const std::shared_ptr<LoadedPolicy>* find_batch(ErlNifEnv* env, Term term) {
  if (const auto* group = find_handle<GroupHandle>(env, term)) return &group->kept->members[0].loaded;
  const auto* session = find_handle<SessionHandle>(env, first_reference(env, term));
  return session != nullptr ? &session->loaded : nullptr;
}

GroupOrList Decoder<GroupOrList>::decode(Call& call, Term term, const char* argument) {
  unsigned length = 0;
  if (!enif_get_list_length(call.env(), term, &length)) {
    const auto& handle = decode_handle<GroupHandle>(
        call, term, argument, "a list of sessions, or a group that Policy.group returned");
    const LoadedPolicy* const loaded = handle.kept->members[0].loaded.get();
    require_current(*loaded, argument);  // weights are replaced on all devices of a model
    return {loaded, {handle.kept, &handle.kept->group}};
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
  std::shared_ptr<core::SessionGroup> group;
  if (loaded != nullptr) group = loaded->repeated.find(numbers, sessions);
  if (!group) group = std::make_shared<core::SessionGroup>(std::move(sessions));
  return {loaded, std::move(group)};
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
