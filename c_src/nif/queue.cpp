#include "nif/queue.hpp"

#include <memory>
#include <vector>

#include "nif/resources.hpp"

namespace exphil::nif {

namespace {

// A resource, because only a resource can monitor a process. The queue owns it until it has run.
class QueuedCall final : public core::Job {
 public:
  QueuedCall(core::JobKind kind, NifFunction function) : kind_(kind), function_(function) {}
  ~QueuedCall() override {
    if (env_ != nullptr) enif_free_env(env_);
  }
  QueuedCall(const QueuedCall&) = delete;
  QueuedCall& operator=(const QueuedCall&) = delete;

  void take_arguments(ErlNifEnv* caller, int argc, const Term argv[]) {
    enif_self(caller, &caller_);
    env_ = enif_alloc_env();
    if (env_ == nullptr) throw std::bad_alloc();
    for (int i = 0; i < argc; ++i) arguments_.push_back(enif_make_copy(env_, argv[i]));
  }

  // Called by the process itself, which is alive until its NIF returns.
  void monitor_caller(ErlNifEnv* caller) { enif_monitor_process(caller, this, &caller_, nullptr); }

  // The process's identifier, an immediate term: the owner of its jobs.
  std::uint64_t owner() const { return caller_.pid; }
  core::JobKind kind() const { return kind_; }

  void run() noexcept override {
    const Term answer = function_(env_, static_cast<int>(arguments_.size()), arguments_.data());
    const Term message = enif_make_tuple2(env_, arguments_.back(), answer);
    // The message takes the environment's terms with it. A dead caller leaves them, and they are freed here.
    enif_send(nullptr, &caller_, env_, message);
    enif_clear_env(env_);
  }

 private:
  const core::JobKind kind_;
  const NifFunction function_;
  ErlNifEnv* env_ = nullptr;
  ErlNifPid caller_{};
  std::vector<Term> arguments_;
};

ErlNifResourceType* call_type = nullptr;

void destroy_call(ErlNifEnv*, void* object) {
  static_cast<QueuedCall*>(object)->~QueuedCall();
}

void caller_died(ErlNifEnv*, void* object, ErlNifPid*, ErlNifMonitor*) {
  const auto* call = static_cast<QueuedCall*>(object);
  core::drop_job(call->kind(), call->owner(), call);
}

}  // namespace

bool open_call_type(ErlNifEnv* env) {
  ErlNifResourceTypeInit callbacks{};
  callbacks.dtor = destroy_call;
  callbacks.down = caller_died;
  const auto flags = static_cast<ErlNifResourceFlags>(ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER);
  ErlNifResourceType* type = enif_open_resource_type_x(env, "call.1", &callbacks, flags, nullptr);
  if (type != nullptr) call_type = type;
  return type != nullptr;
}

Term submit_call(ErlNifEnv* env, core::JobKind kind, NifFunction function, int argc, const Term argv[]) {
  keep_resource_types();
  void* memory = enif_alloc_resource(call_type, sizeof(QueuedCall));
  if (memory == nullptr) throw std::bad_alloc();
  auto* call = new (memory) QueuedCall(kind, function);
  const std::shared_ptr<core::Job> job(call, [memory](core::Job*) { enif_release_resource(memory); });
  call->take_arguments(env, argc, argv);
  core::submit_job(kind, call->owner(), job);
  call->monitor_caller(env);
  return enif_make_atom(env, "queued");
}

}  // namespace exphil::nif
