// The library's entry points for the VM: load, upgrade, unload, and the function table of ExPhil.Native.NIF.
#include <dlfcn.h>

#include <array>

#include "nif/frames.hpp"
#include "nif/functions.hpp"
#include "nif/group.hpp"
#include "nif/policy_options.hpp"
#include "nif/scan_request.hpp"
#include "nif/tools/table.hpp"

namespace exphil::nif {

namespace {

// Counts changes of the function table and its terms. ExPhil.Native.NIF passes its own number at load, so
// that a library left over from another version is refused instead of called with the wrong terms.
constexpr std::int64_t kInterface = 34;

// Returned by load_nif/2 in {:error, {:load, _}}; ExPhil.Native.NIF turns them into messages.
enum LoadFailure : int { kWrongInterface = 1, kResourceTypes = 2, kFailed = 3 };

// The reaper, the thread pool and CUDA's threads run code of this library until the process ends, so it must
// stay mapped after the module is purged.
void stay_mapped() {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&stay_mapped), &self) != 0) {
    dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE);
  }
}

// load_info is the interface's number. configure() sets the settings later, because a failing load cannot
// return an error message.
int start(ErlNifEnv* env, Term load_info) {
  try {
    ErlNifSInt64 interface = 0;
    if (!enif_get_int64(env, load_info, &interface) || interface != kInterface) return kWrongInterface;
    if (!open_resource_types(env)) return kResourceTypes;
    stay_mapped();
    return 0;
  } catch (...) {
    return kFailed;
  }
}

int load(ErlNifEnv* env, void** private_data, Term load_info) {
  *private_data = nullptr;  // all state is in the backends, one set per process
  return start(env, load_info);
}

// The same library under a new instance of the module: it takes over the types of existing resources.
int upgrade(ErlNifEnv* env, void** private_data, void**, Term load_info) {
  return load(env, private_data, load_info);
}

constexpr std::array<const char*, 0> kNone{};
constexpr const char* kConfigure[] = {"config"};
constexpr const char* kDefaultDevice[] = {":backend", ":device"};
constexpr const char* kSetThreads[] = {":threads"};
constexpr const char* kScan[] = {":backend", ":device",        "x",      "dt", "a", "b", "c", ":d", ":z",
                                 ":dt_bias", ":initial_state", "options"};
constexpr const char* kScanGrad[] = {
    ":backend",       ":device",        "dy",     "x",       "dt", "a", "b", "c", ":d", ":z", ":dt_bias",
    ":initial_state", ":d_final_state", "states", "options", "all"};
constexpr const char* kAssociativeScan[] = {":backend", ":device", "op", "a", "x", "options"};
constexpr const char* kLinearRecurrence[] = {":backend", ":device", "op", "a", "b", "options"};
constexpr const char* kAssociativeGrad[] = {":backend",   ":device", "op", "dy",
                                            "dy_reverse", "a",       "x",  "options"};
constexpr const char* kLinearRecurrenceGrad[] = {":backend",   ":device", "op", "dy",
                                                 "dy_reverse", "a",       "b",  "options"};
constexpr const char* kRecurrent[] = {":backend", ":device", "op", "tensors", "options"};
constexpr const char* kSsd[] = {":backend", ":device", "tensors", "options"};
constexpr const char* kLoadPolicy[] = {":backend", ":device", "path", "options"};
constexpr const char* kInitialWeights[] = {"trunk", "options", ":seed"};
constexpr const char* kLoadLayer[] = {":backend", ":device", "path", ":check_finite"};
constexpr const char* kLayer[] = {"layer"};
constexpr const char* kLayerForward[] = {"layer", "x", "bidirectional"};
constexpr const char* kLayerGrad[] = {"layer", "x", "dy", ":d_gate_penalty", ":bidirectional"};
constexpr const char* kPolicy[] = {"policy"};
constexpr const char* kUpdate[] = {"policy", "weights"};
constexpr const char* kPolicyForward[] = {"policy", "frames", ":initial_state", ":return_state"};
constexpr const char* kPolicyGrad[] = {"policy",         "frames",    "d_outs",
                                       ":initial_state", ":d_frames", ":d_initial_state"};
constexpr const char* kNewTraining[] = {"policy", "groups", "weights", "optimiser"};
constexpr const char* kTrainStep[] = {"trainer", "policy", "sequences", ":initial_state", "options"};
constexpr const char* kTrainingValues[] = {"trainer", "policy"};
constexpr const char* kCrossEntropy[] = {"outs", "groups", "targets", ":mask"};
constexpr const char* kMeanSquaredError[] = {"outs", "targets", ":mask"};
constexpr const char* kChoose[] = {"outs", "groups", "options"};
constexpr const char* kAdamW[] = {"weights", "options"};
constexpr const char* kWindow[] = {"policy", "windows"};
constexpr const char* kNewSession[] = {"policy", "options"};
constexpr const char* kSample[] = {"policy", "outs", "options"};
constexpr const char* kSession[] = {"session"};
constexpr const char* kStep[] = {"session", "obs"};
constexpr const char* kGatherStep[] = {"session", "obs", "ref"};
constexpr const char* kAnswers[] = {"answers"};
constexpr const char* kLateStep[] = {"frame", "session", "obs"};
constexpr const char* kSessions[] = {"sessions"};
constexpr const char* kStepBatch[] = {"sessions", "obs"};
constexpr const char* kPrefill[] = {"session", "frames"};
constexpr const char* kRollback[] = {"session", "frames_back"};
constexpr const char* kResimulate[] = {"session", "frames_back", "frames"};
constexpr const char* kRestore[] = {"session", "snapshot"};
constexpr const char* kImport[] = {"session", "state"};
constexpr const char* kClock[] = {"clock"};
constexpr const char* kStartClock[] = {"fps", ":warm"};
constexpr const char* kTakeTick[] = {"clock", "tag"};
constexpr const char* kAwaitTick[] = {"clock", "number", "tag"};
constexpr const char* kPath[] = {"path"};
constexpr const char* kXlaRegistered[] = {"path", "target", "platform"};

ErlNifFunc functions[] = {
    {"info", 0, Nif<info, kNone>::run, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"configure", 1, Nif<configure, kConfigure>::run, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"default_device", 2, Nif<default_device, kDefaultDevice>::run, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"set_threads", 1, Nif<set_threads, kSetThreads>::run, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"read_safetensors", 2, Nif<read_safetensors, kPath>::queued<file_work>, 0},
    {"read_checkpoint", 2, Nif<read_checkpoint, kPath>::queued<file_work>, 0},
    {"scan", 13, Nif<scan, kScan>::queued<scan_work>, 0},
    {"scan_grad", 17, Nif<scan_grad, kScanGrad>::queued<scan_grad_work>, 0},
    {"associative_scan", 7, Nif<associative_scan, kAssociativeScan>::queued<associative_scan_work>, 0},
    {"linear_recurrence", 7, Nif<associative_scan, kLinearRecurrence>::queued<associative_scan_work>, 0},
    {"associative_grad", 9, Nif<associative_grad, kAssociativeGrad>::queued<associative_grad_work>, 0},
    {"linear_recurrence_grad", 9, Nif<associative_grad, kLinearRecurrenceGrad>::queued<associative_grad_work>,
     0},
    {"recurrent", 6, Nif<recurrent, kRecurrent>::queued<recurrent_work>, 0},
    {"ssd", 5, Nif<ssd, kSsd>::queued<ssd_work>, 0},
    {"load_layer", 5, Nif<load_layer, kLoadLayer>::queued<file_work>, 0},
    {"layer_info", 1, Nif<layer_info, kLayer>::scheduled, 0},
    {"layer_forward", 4, Nif<layer_forward, kLayerForward>::queued<layer_forward_work>, 0},
    {"layer_grad", 6, Nif<layer_grad, kLayerGrad>::queued<layer_grad_work>, 0},
    {"load_policy", 5, Nif<load_policy, kLoadPolicy>::queued<file_work>, 0},
    {"initial_weights", 4, Nif<initial_weights, kInitialWeights>::queued<file_work>, 0},
    {"policy_info", 1, Nif<policy_info, kPolicy>::scheduled, 0},
    {"window", 3, Nif<window, kWindow>::queued<window_work>, 0},
    {"new_session", 2, Nif<new_session, kNewSession>::scheduled, 0},
    {"new_group", 1, Nif<new_group, kSessions>::scheduled, 0},
    {"act", 2, Nif<act, kStep>::here<is_short_step, Nif<finish_act, kLateStep>>, 0},
    {"act_batch", 3, Nif<act_batch, kStepBatch>::queued<step_batch_work, references_of>, 0},
    {"gather_step", 3, Nif<gather_step, kGatherStep>::here<is_gathered>, 0},
    {"gather_act", 3, Nif<gather_act, kGatherStep>::here<is_gathered>, 0},
    {"deliver_answers", 1, Nif<deliver_answers, kAnswers>::run, 0},
    {"sample", 3, Nif<sample, kSample>::scheduled, 0},
    {"step", 2, Nif<step, kStep>::here<is_short_step, Nif<finish_step, kLateStep>>, 0},
    {"step_batch", 3, Nif<step_batch, kStepBatch>::queued<step_batch_work, references_of>, 0},
    {"prefill", 3, Nif<prefill, kPrefill>::queued<prefill_work>, 0},
    {"rollback", 2, Nif<rollback, kRollback>::here<is_rollback>, 0},
    {"resimulate", 4, Nif<resimulate, kResimulate>::here_or_queued<is_short_resimulate, resimulate_work>, 0},
    {"resimulate_acts", 4,
     Nif<resimulate_acts, kResimulate>::here_or_queued<is_short_resimulate, resimulate_work>, 0},
    {"recorded_frames", 1, Nif<recorded_frames, kSession>::scheduled, 0},
    {"snapshot", 1, Nif<snapshot, kSession>::here<is_short_copy>, 0},
    {"restore", 2, Nif<restore, kRestore>::here<is_short_copy>, 0},
    {"export_state", 1, Nif<export_state, kSession>::scheduled, 0},
    {"import_state", 2, Nif<import_state, kImport>::scheduled, 0},
    {"policy_weights", 1, Nif<policy_weights, kPolicy>::run, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"update_policy", 3, Nif<update_policy, kUpdate>::queued<file_work>, 0},
    {"policy_forward", 5, Nif<policy_forward, kPolicyForward>::queued<training_work>, 0},
    {"policy_grad", 7, Nif<policy_grad, kPolicyGrad>::queued<training_work>, 0},
    {"new_training", 5, Nif<new_training, kNewTraining>::queued<file_work>, 0},
    {"train_step", 6, Nif<train_step, kTrainStep>::queued<train_step_work>, 0},
    {"training_values", 3, Nif<training_values, kTrainingValues>::queued<file_work>, 0},
    {"cross_entropy", 4, Nif<cross_entropy, kCrossEntropy>::run, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"mean_squared_error", 3, Nif<mean_squared_error, kMeanSquaredError>::run, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"choose", 3, Nif<choose, kChoose>::run, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"adamw", 2, Nif<adamw, kAdamW>::run, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"tool", 2, tool, 0},
    {"xla_status", 1, Nif<xla_status, kPath>::run, 0},
    {"xla_registered", 3, Nif<xla_registered, kXlaRegistered>::run, 0},
    {"start_clock", 2, Nif<start_clock, kStartClock>::run, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"take_tick", 2, Nif<take_tick, kTakeTick>::run, 0},
    {"ask_tick", 2, Nif<ask_tick, kTakeTick>::run, 0},
    {"await_tick", 3, Nif<await_tick, kAwaitTick>::run, 0},
    {"stop_clock", 1, Nif<stop_clock, kClock>::run, 0},
};

}  // namespace

}  // namespace exphil::nif

ERL_NIF_INIT(Elixir.ExPhil.Native.NIF, exphil::nif::functions, exphil::nif::load, nullptr,
             exphil::nif::upgrade, nullptr)
