#include "nif/resources.hpp"

#include <algorithm>
#include <atomic>

#include "nif/group.hpp"

namespace exphil::nif {

namespace {

template <class Handle>
void destroy(ErlNifEnv* env, void* object) noexcept {
  const SendingFrom from(env);  // answers that nobody has delivered
  Handle* handle = static_cast<Handle*>(object);
  release(*handle);
  handle->~Handle();
}

// No resource of this library monitors a process; see open_type.
void ignore_down(ErlNifEnv*, void*, ErlNifPid*, ErlNifMonitor*) noexcept {}

// The number in a name changes with the handle's layout. Objects of another layout stay with the library that
// created them; an upgrade takes over only objects of the same layout.
//
// Every type has a `down` callback, though nothing uses it: enif_alloc_resource reads type->fn.down twice,
// and while a module is loaded again another thread sets it for a moment in every type (prepare_opened_rt in
// OTP's erl_nif.c). A type that had none was then given a mutex without memory for it. Seen as "Fatal error
// in ethr_mutex_lock(): Invalid argument" in two of six storms on 16 cores, with OTP 25.
template <class Handle>
bool open_type(ErlNifEnv* env, const char* name) {
  ErlNifResourceTypeInit callbacks{};
  callbacks.dtor = destroy<Handle>;
  callbacks.down = ignore_down;
  const auto flags = static_cast<ErlNifResourceFlags>(ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER);
  ErlNifResourceType* type = enif_open_resource_type_x(env, name, &callbacks, flags, nullptr);
  if (type == nullptr) return false;
  ResourceType<Handle>::type = type;
  return true;
}

template <class Handle>
void keep_type() {
  static std::atomic<ErlNifResourceType*> kept{nullptr};
  ErlNifResourceType* const open = ResourceType<Handle>::type;
  if (kept.load(std::memory_order_relaxed) == open || kept.exchange(open) == open) return;
  make_resource(Handle{});
}

// Calls look(loaded) with what a handle of one of these kinds, or the first of a list of them, has loaded.
template <class Look>
bool look_at(ErlNifEnv* env, Term term, const Look& look) {
  term = first_reference(env, term);
  if (const auto* session = find_handle<SessionHandle>(env, term)) return look(*session->loaded), true;
  if (const auto* group = find_handle<GroupHandle>(env, term))
    return look(*group->kept->members[0].loaded), true;
  if (const auto* policy = find_handle<PolicyHandle>(env, term)) return look(*policy->found()), true;
  if (const auto* layer = find_handle<LayerHandle>(env, term)) return look(*layer->loaded), true;
  return false;
}

}  // namespace

Term session_reference(ErlNifEnv* env, Term term) {
  static const Term key = enif_make_atom(env, "ref");
  Term reference = 0;
  return enif_get_map_value(env, term, key, &reference) ? reference : term;
}

Term first_reference(ErlNifEnv* env, Term term) {
  Term head = 0, tail = 0;
  return enif_get_list_cell(env, term, &head, &tail) ? session_reference(env, head) : term;
}

void keep_resource_types() {
  keep_type<PolicyHandle>();
  keep_type<SessionHandle>();
  keep_type<SnapshotHandle>();
  keep_type<GroupHandle>();
  keep_type<ResultHandle>();
  keep_type<LayerHandle>();
  keep_type<TrainingHandle>();
  keep_type<AnswersHandle>();
}

const core::Backend* find_backend(ErlNifEnv* env, Term term) {
  const core::Backend* backend = nullptr;
  look_at(env, term, [&](const auto& loaded) { backend = loaded.backend; });
  return backend;
}

// A batch over several devices is a job of each of them in turn: neighbouring sessions are on different ones.
int find_device(ErlNifEnv* env, Term term) {
  constexpr unsigned kTurns = 8;
  static std::atomic<unsigned> turn{0};
  Term head = 0, tail = 0;
  if (enif_get_list_cell(env, term, &head, &tail)) {
    unsigned left = turn.fetch_add(1, std::memory_order_relaxed) % kTurns;
    while (left > 0 && enif_get_list_cell(env, tail, &head, &tail)) --left;
    term = session_reference(env, head);
  } else if (const auto* group = find_handle<GroupHandle>(env, term)) {
    const auto& members = group->kept->members;
    const unsigned left = turn.fetch_add(1, std::memory_order_relaxed) % kTurns;
    return members[std::min<std::size_t>(left, members.size() - 1)].loaded->device.index;
  }
  int index = -1;
  look_at(env, term, [&](const auto& loaded) { index = loaded.device.index; });
  return index;
}

bool open_resource_types(ErlNifEnv* env) {
  return open_type<PolicyHandle>(env, "model.4") && open_type<SessionHandle>(env, "session.3") &&
         open_type<SnapshotHandle>(env, "snapshot.3") && open_type<LateHandle>(env, "late.2") &&
         open_type<ResultHandle>(env, "result.1") && open_type<LayerHandle>(env, "layer.1") &&
         open_type<ClockHandle>(env, "clock.5") && open_type<TrainingHandle>(env, "training.1") &&
         open_type<AnswersHandle>(env, "answers.1") && open_type<GroupHandle>(env, "group.2");
}

void require_current(const LoadedPolicy& loaded, const char* argument) {
  if (!loaded.replaced.load(std::memory_order_relaxed)) return;
  core::fail(core::ErrorKind::mismatch, argument,
             "the session belongs to weights that Policy.update or a step of training replaced; start a new "
             "session");
}

std::size_t snapshot_weight(const core::PolicyConfig& config) {
  constexpr std::size_t kLeast = std::size_t{8} << 10, kMost = std::size_t{64} << 10;
  const auto floats = static_cast<std::size_t>(config.state_floats());
  return std::clamp(floats * sizeof(float) / 8, kLeast, kMost);
}

Result::Result(Call& call, core::Backend& backend, std::size_t bytes) : call_(call), bytes_(bytes) {
  if (bytes >= core::kSmallestPooledResult) {
    buffer_ = backend.allocate_result(bytes);
    data_ = buffer_.data();
  } else {
    data_ = binary_.emplace(bytes).data();
  }
}

Term Result::term() {
  if (binary_) return binary_->term(call_);
  ResultHandle* resource = make_resource(ResultHandle{std::move(buffer_)});
  const Term term = enif_make_resource_binary(call_.env(), resource, data_, bytes_);
  enif_release_resource(resource);
  return term;
}

}  // namespace exphil::nif
