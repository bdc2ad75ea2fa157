#include "nif/queue.hpp"

#include <memory>
#include <vector>

#include "nif/own_env.hpp"
#include "nif/resources.hpp"

namespace exphil::nif {

namespace {

// A call whose caller has ended is not run. That is asked when its turn comes, and by what reads files
// (core::stop_if_abandoned) while it runs: a monitor would need a resource for each call.
class QueuedCall final : public core::Job {
 public:
  QueuedCall(NifFunction function, ErlNifEnv* caller, int argc, const Term argv[]) : function_(function) {
    enif_self(caller, &caller_);
    arguments_.reserve(static_cast<std::size_t>(argc));
    for (int i = 0; i < argc; ++i) arguments_.push_back(enif_make_copy(env_.get(), argv[i]));
  }

  // The process's identifier, an immediate term: the owner of its jobs.
  std::uint64_t owner() const { return caller_.pid; }

  bool is_abandoned() const noexcept override {
    ErlNifPid caller = caller_;
    return !enif_is_process_alive(env_.get(), &caller);
  }

  void run() noexcept override {
    if (is_abandoned()) return;
    ErlNifEnv* const env = env_.get();
    const Term answer = function_(env, static_cast<int>(arguments_.size()), arguments_.data());
    const Term message = enif_make_tuple2(env, arguments_.back(), answer);
    // The message takes the environment's terms with it. A dead caller leaves them, and they are freed here.
    enif_send(nullptr, &caller_, env, message);
    enif_clear_env(env);
  }

 private:
  const NifFunction function_;
  const OwnEnv env_;
  ErlNifPid caller_{};
  std::vector<Term> arguments_;
};

}  // namespace

Term submit_call(ErlNifEnv* env, core::JobKind kind, int device, NifFunction function, int argc,
                 const Term argv[]) {
  keep_resource_types();
  const auto call = std::make_shared<QueuedCall>(function, env, argc, argv);
  core::submit_job(kind, call->owner(), call, device);
  return enif_make_atom(env, "queued");
}

}  // namespace exphil::nif
