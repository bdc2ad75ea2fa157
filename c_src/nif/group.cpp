#include "nif/group.hpp"

#include <optional>
#include <utility>

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

GroupOrList::GroupOrList(const GroupHandle& handle)
    : loaded_(handle.kept->members[0].loaded.get()),
      count_(static_cast<std::int64_t>(handle.kept->members.size())),
      group_(handle.kept, &handle.kept->group) {}

GroupOrList::GroupOrList(Call& call, Term list, std::int64_t count, const char* argument)
    : count_(count), call_(&call), list_(list), argument_(argument) {
  if (const auto* first = find_handle<SessionHandle>(call.env(), first_reference(call.env(), list))) {
    loaded_ = first->loaded.get();
    guess_ = loaded_->repeated.guess(first->number, static_cast<std::size_t>(count));
  }
  if (!guess_) find();
}

core::SessionGroup& GroupOrList::find() {
  if (group_) return *group_;
  std::vector<core::Session*> sessions;
  core::RepeatedLists::Numbers numbers;
  sessions.reserve(static_cast<std::size_t>(count_)), numbers.reserve(static_cast<std::size_t>(count_));
  Term head = 0, rest = list_;
  while (enif_get_list_cell(call_->env(), rest, &head, &rest)) {
    const SessionHandle& handle = *Decoder<ListedSession>::decode(*call_, head, argument_).handle;
    sessions.push_back(handle.session.get());
    numbers.push_back(handle.number);
  }
  if (loaded_ != nullptr) group_ = loaded_->repeated.find(numbers, sessions, guess_.get());
  if (!group_) group_ = std::make_shared<core::SessionGroup>(std::move(sessions));
  return *group_;
}

void GroupOrList::step(const float* obs, float* out) {
  if (guess_ && guess_->step_if([this] { return is_guess(); }, obs, out)) return;
  find().step(obs, out);
}

std::vector<core::Action> GroupOrList::act(const float* obs, float* logits) {
  std::optional<std::vector<core::Action>> actions;
  if (guess_) actions = guess_->act_if([this] { return is_guess(); }, obs, logits);
  return actions ? *std::move(actions) : find().act(obs, logits);
}

GroupOrList Decoder<GroupOrList>::decode(Call& call, Term term, const char* argument) {
  unsigned length = 0;
  if (enif_get_list_length(call.env(), term, &length)) return GroupOrList(call, term, length, argument);
  const auto& handle = decode_handle<GroupHandle>(
      call, term, argument, "a list of sessions, or a group that Policy.group returned");
  const GroupOrList group(handle);
  require_current(group.loaded(), argument);  // weights are replaced on all devices of a model
  return group;
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
