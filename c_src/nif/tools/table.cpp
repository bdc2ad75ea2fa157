#include "nif/tools/table.hpp"

#include <array>

#include "nif/dispatch.hpp"
#include "nif/tools/functions.hpp"

namespace exphil::nif {

namespace {

constexpr const char* kRandom[] = {"type", "count", "seed", "range"};
constexpr const char* kReferenceScan[] = {"x", "dt", "a", "b", "c", ":initial_state", "options"};
constexpr const char* kReferenceAssociative[] = {"op", "a", "x", ":axis"};
constexpr const char* kReferencePolicy[] = {"path", "frames"};
constexpr const char* kReferencePolicyGrad[] = {"policy", "weights", "frames", "d_outs"};
constexpr const char* kHeldCalls[] = {"limit"};
constexpr const char* kRunnableThreads[] = {"count"};
constexpr std::array<const char*, 0> kAllocatedBytes{};
constexpr const char* kCopyRates[] = {":backend", ":device"};

constexpr ErlNifFunc kTools[] = {
    {"random_binary", 4, Nif<random_binary, kRandom>::run, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"reference_scan", 7, Nif<reference_scan, kReferenceScan>::run, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"reference_associative", 4, Nif<reference_associative, kReferenceAssociative>::run,
     ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"reference_policy", 2, Nif<reference_policy, kReferencePolicy>::run, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"reference_policy_grad", 4, Nif<reference_policy_grad, kReferencePolicyGrad>::run,
     ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"held_calls", 1, Nif<held_calls, kHeldCalls>::run, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"runnable_threads", 1, Nif<runnable_threads, kRunnableThreads>::run, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"allocated_bytes", 0, Nif<allocated_bytes, kAllocatedBytes>::run, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"copy_rates", 2, Nif<copy_rates, kCopyRates>::run, ERL_NIF_DIRTY_JOB_IO_BOUND},
};

}  // namespace

Term tool(ErlNifEnv* env, int, const Term argv[]) noexcept {
  Call call(env);
  try {
    const Atom name = Decoder<Atom>::decode(call, argv[0], "tool");
    int arity = 0;
    const Term* arguments = nullptr;
    if (!enif_get_tuple(env, argv[1], &arity, &arguments)) fail_decode(call, argv[1], "arguments", "a tuple");
    for (const ErlNifFunc& entry : kTools) {
      if (name.name == entry.name && static_cast<unsigned>(arity) == entry.arity) {
        return enif_schedule_nif(env, entry.name, static_cast<int>(entry.flags), entry.fptr, arity,
                                 arguments);
      }
    }
    core::fail(core::ErrorKind::invalid_argument, "tool", "there is no tool ", name.name, "/", arity);
  } catch (...) {
    return encode_current_exception(call);
  }
}

}  // namespace exphil::nif
