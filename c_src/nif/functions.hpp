// The NIFs: plain functions, named as in ExPhil.Native.NIF. nif.cpp puts them into the function table;
// those of the tools have a table of their own (nif/tools).
// Arguments that name a backend or a handle come first: they decide the scheduler (dispatch.hpp).
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/associative/problem.hpp"
#include "core/dt_options.hpp"
#include "nif/backends.hpp"
#include "nif/dispatch.hpp"

namespace exphil::nif {

// info.cpp
// %{backend, index, name, details}, the fields of ExPhil.Native.Device
Term encode_device(Call& call, const core::DeviceDescription& device);
// The application's config, with lower priority than the environment: "" and 0 select the default. Repeating
// the same config changes nothing, so that it does not undo set_threads. Returns nil, or why the kernel cache
// is not used. Throws invalid_argument that names the key or the variable at fault.
// %{kernels, cache, libcuda, libnvrtc, pinned_limit, threads}
struct Config {
  std::string kernels, cache, libcuda, libnvrtc;
  std::int64_t pinned_limit = 0, threads = 0;
};
template <>
struct Decoder<Config> {
  static Config decode(Call& call, Term term, const char* argument);
};
Term configure(Call& call, Config config);
Term info(Call& call);
Term default_device(Call& call, BackendChoice choice, std::int64_t device);
Term set_threads(Call& call, std::int64_t threads);

// scan.cpp
struct ScanRequest;
using MaybeTensor = std::optional<core::TensorView>;
using MaybeScanTensor = std::optional<ScanTensor>;
Term scan(Call& call, BackendChoice backend, DeviceChoice devices, ScanTensor x, ScanTensor dt, ScanTensor a,
          ScanTensor b, ScanTensor c, MaybeScanTensor d, MaybeScanTensor z, MaybeScanTensor dt_bias,
          MaybeScanTensor initial_state, ScanRequest request);

// scan_grad.cpp
Term scan_grad(Call& call, BackendChoice backend, DeviceChoice devices, ScanTensor dy, ScanTensor x,
               ScanTensor dt, ScanTensor a, ScanTensor b, ScanTensor c, MaybeScanTensor d, MaybeScanTensor z,
               MaybeScanTensor dt_bias, MaybeScanTensor initial_state, MaybeScanTensor d_final_state,
               MaybeScanTensor states, ScanRequest request, bool all);

// associative_scan.cpp
// A map of the fields of core::AssociativeOptions; every key is optional.
template <>
struct Decoder<core::AssociativeOptions> {
  static core::AssociativeOptions decode(Call& call, Term term, const char* argument);
};
// %{y, y_reverse: nil but for both directions}, and %{dx, da: nil where there is no a}
Term associative_scan(Call& call, BackendChoice backend, std::int64_t device, Atom op, MaybeScanTensor a,
                      ScanTensor x, core::AssociativeOptions options);
Term associative_grad(Call& call, BackendChoice backend, std::int64_t device, Atom op, core::TensorView dy,
                      MaybeTensor dy_reverse, MaybeTensor a, core::TensorView x,
                      core::AssociativeOptions options);

// recurrent.cpp
// A map; every key is optional. gradient: whether the tensors are those of the gradient, with dh.
struct RecurrentRequest {
  bool activated = false, gradient = false;
  std::vector<std::string> results;
};
template <>
struct Decoder<RecurrentRequest> {
  static RecurrentRequest decode(Call& call, Term term, const char* argument);
};
// tensors: [{name, tensor}], named as core::recurrent_operand_named does, the first input first. A list of
// the results, in the order of the request.
using NamedTerms = std::vector<std::tuple<Atom, Term>>;
Term recurrent(Call& call, BackendChoice backend, std::int64_t device, Atom op, NamedTerms tensors,
               RecurrentRequest request);

// ssd.cpp
// A map; every key is optional. gradient: as above.
struct SsdRequest {
  core::DtOptions options;
  bool gradient = false;
  std::vector<std::string> results;
};
template <>
struct Decoder<SsdRequest> {
  static SsdRequest decode(Call& call, Term term, const char* argument);
};
// tensors: [{name, tensor}], named as core::ssd_operand_named does: x, dt, a, b, c first. A list of the
// results, in the order of the request.
Term ssd(Call& call, BackendChoice backend, std::int64_t device, NamedTerms tensors, SsdRequest request);

// xla.cpp: the library of XLA's custom calls, if this process has opened it
Term xla_status(Call& call, std::string path);  // nil where it is not open, "registered", or why not
Term xla_registered(Call& call, std::string path, std::string target, std::string platform);

// policy.cpp
struct LoadRequest;     // policy_options.hpp
struct SessionRequest;  // these too: maps of options
struct SampleRequest;
// from: a path, or {NamedTensors, [{key, text}]}, the weights and what a file would have as metadata
Term load_policy(Call& call, BackendChoice backend, DeviceChoice devices, Term from, LoadRequest options);
// sizes: %{name => integer}. [{name, tensor}], which load_policy takes
Term initial_weights(Call& call, Atom trunk, Map sizes, Unsigned seed);
// The new fingerprint. tensors: every weight by the name of the checkpoint; the sessions of the policy end.
using NamedTensors = std::vector<std::tuple<std::string, core::TensorView>>;
Term update_policy(Call& call, PolicyHandle& policy, NamedTensors tensors);
Term policy_info(Call& call, PolicyHandle& policy);
Term window(Call& call, PolicyHandle& policy, core::TensorView windows);
// {session, the index of its device}
Term new_session(Call& call, PolicyHandle& policy, SessionRequest options);

// training.cpp
Term policy_weights(Call& call, PolicyHandle& policy);  // [{name, tensor}]
// [{name, {batch, n_layer, rows, columns}}] for each name of the network's state parts
using StateTensors = std::vector<std::tuple<Atom, core::TensorView>>;
// {outs, [{name, tensor}] of the states after the last frame where asked for, else nil}
Term policy_forward(Call& call, PolicyHandle& policy, core::TensorView frames,
                    std::optional<StateTensors> state, bool returns_state);
// {[{name, tensor}], the gradient of frames where asked for, else nil, that of the initial state, the same}
Term policy_grad(Call& call, PolicyHandle& policy, core::TensorView frames, core::TensorView d_outs,
                 std::optional<StateTensors> state, bool by_frames, bool by_state);
// trainer.cpp
using LossGroups = std::vector<std::tuple<std::string, std::int64_t, std::int64_t, bool>>;
// [{name, decays}] of all tensors, in the order in which the squares of the gradient are added up
using TrainedTensors = std::vector<std::tuple<std::string, bool>>;
// {steps, nil or {m, v}}
using TrainingStartTuple = std::tuple<std::int64_t, std::optional<std::tuple<NamedTensors, NamedTensors>>>;
// {learning_rate, beta1, beta2, epsilon, weight_decay, clip_norm or nil, step}
using AdamWOptions = std::tuple<double, double, double, double, double, std::optional<double>, std::int64_t>;
// groups: of cross-entropy; nil for the mean of squares. A handle for training that begins with the policy's
// weights.
Term new_training(Call& call, PolicyHandle& policy, std::optional<LossGroups> groups, TrainedTensors tensors,
                  TrainingStartTuple start);
// Frames [first, first + count) of a sequence: {frames, targets, mask or nil, first, count}, the binaries of
// the whole sequence: f32 {seq, d_input}; s32 {seq, columns}, or f32 {seq, d_output} of squares; s32 {seq}.
using Piece = std::tuple<Binary, Binary, std::optional<Binary>, std::int64_t, std::int64_t>;
// On a batch of these pieces, the shorter ones padded with frames that have no loss. The policy has the
// weights of the step then, and its sessions end. {loss, norm, the states after the last frames where initial
// ones are given, else nil}
Term train_step(Call& call, TrainingHandle& training, PolicyHandle& policy, std::vector<Piece> pieces,
                std::optional<StateTensors> state, AdamWOptions options);
// {steps, weights, m, v}, each [{name, tensor}]
Term training_values(Call& call, TrainingHandle& training, PolicyHandle& policy);
// loss.cpp
// groups: [{name, first, count, binary}]; mask: s32, 0 for rows that do not count, or nil.
// {[{name, loss, correct}], d_outs}
Term cross_entropy(Call& call, core::TensorView outs, LossGroups groups, core::TensorView targets,
                   std::optional<core::TensorView> mask);
// {loss, d_outs}
Term mean_squared_error(Call& call, core::TensorView outs, core::TensorView targets,
                        std::optional<core::TensorView> mask);
// draws: {temperature, seed, frame}, or nil for the likeliest. s32, in the form of cross_entropy's targets.
using DrawsTuple = std::tuple<double, Unsigned, Unsigned>;
Term choose(Call& call, core::TensorView outs, LossGroups groups, std::optional<DrawsTuple> draws);
// optimiser.cpp
// tensors: [{name, weight, gradient, m, v, decays}]. {[{name, weight, m, v}], norm of all gradients}
using AdamWInput =
    std::tuple<std::string, core::TensorView, core::TensorView, core::TensorView, core::TensorView, bool>;
Term adamw(Call& call, std::vector<AdamWInput> tensors, AdamWOptions options);

// semiseparable_layer.cpp
// from: a path, or [{name, tensor}]
Term load_layer(Call& call, BackendChoice backend, std::int64_t device, Term from, bool check_finite);
Term layer_info(Call& call, LayerHandle& layer);
Term layer_forward(Call& call, LayerHandle& layer, core::TensorView x, bool bidirectional);
Term layer_grad(Call& call, LayerHandle& layer, core::TensorView x, core::TensorView dy, double d_penalty,
                bool bidirectional);

// group.cpp: sessions that are stepped together many times. Not empty, and each of them once.
class GroupOrList;
Term new_group(Call& call, std::vector<ListedSession> sessions);

// session.cpp
struct Frames;
Term step(Call& call, SessionHandle& session, Frames obs);
Term finish_step(Call& call, LateHandle& late, SessionHandle& session, Frames obs);
// act.cpp: %ExPhil.Native.Policy.Action{}, and a list of them. unsupported where the policy has no heads for
// it
Term act(Call& call, SessionHandle& session, Frames obs);
Term finish_act(Call& call, LateHandle& late, SessionHandle& session, Frames obs);
Term act_batch(Call& call, GroupOrList sessions, Frames obs);
Term resimulate_acts(Call& call, SessionHandle& session, std::int64_t frames_back, Frames frames);
Term encode_action(Call& call, const core::Action& action);
// The action for given outputs; no session is involved.
Term sample(Call& call, PolicyHandle& policy, Frames logits, SampleRequest options);
Term step_batch(Call& call, GroupOrList sessions, Frames obs);
Term prefill(Call& call, SessionHandle& session, Frames frames);
Term rollback(Call& call, SessionHandle& session, std::int64_t frames_back);
// How many frames the session can go back now.
Term recorded_frames(Call& call, SessionHandle& session);
Term resimulate(Call& call, SessionHandle& session, std::int64_t frames_back, Frames frames);
Term snapshot(Call& call, SessionHandle& session);
Term restore(Call& call, SessionHandle& session, SnapshotHandle& snapshot);
Term export_state(Call& call, SessionHandle& session);
Term import_state(Call& call, SessionHandle& session, Binary state);

// gather.cpp: step and act of a session whose policy gathers. Nothing where the frame is answered by the
// message {ref, answer}, with what the call would have returned.
std::optional<Term> gather_step(Call& call, SessionHandle& session, Frames obs, Term ref);
std::optional<Term> gather_act(Call& call, SessionHandle& session, Frames obs, Term ref);
// To the processes that wait for them, in the thread of one of them; see core::GatheredFrame::pass_on.
Term deliver_answers(Call& call, AnswersHandle& handle);

// clock.cpp
// %{handle, ref, start, scratch}, see ExPhil.Native.Clock.
// Where `warm` is given, ticks come a lead before their time, and await_tick() waits for the rest of it.
Term start_clock(Call& call, double fps, std::optional<SessionHandle*> warm);
// {number, missed}: the last tick that is due, where the process was not told of it yet, and how many between
// it and the one before. Otherwise `later`: the message {:tick, tag, _} comes when there is one, or when the
// clock is stopped. Throws where it was stopped, and in another process than the clock's.
Term take_tick(Call& call, ClockHandle& clock, Term tag);
// One message {:tick, ref, number} at the next tick, instead of one that was asked for before. Throws
// likewise.
Term ask_tick(Call& call, ClockHandle& clock, Term ref);
// On a normal scheduler: scratch steps of the session's policy, then polling until tick `number` is due, some
// 100 us in one call. Returns what the process does next: `step`, a step of the scratch session and this call
// again; `again`, this call; `sleep`, until the message {:due, tag, number}, because no core is idle; `due`,
// nothing: it is time.
Term await_tick(Call& call, ClockHandle& clock, std::int64_t number, Term tag);
// `asked` where a message of ask_tick() may be in the mailbox, `ok` otherwise.
Term stop_clock(Call& call, ClockHandle& clock);

// checkpoint.cpp
Term read_safetensors(Call& call, std::string path);
Term read_checkpoint(Call& call, std::string path);  // of any format

}  // namespace exphil::nif
