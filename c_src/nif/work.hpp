// How much work a call is, guessed from its arguments before they are checked: this decides where it runs.
// Used by the function table (nif.cpp) and by dispatch.hpp. A guess that is wrong by a factor of three costs
// some microseconds; arguments that make no sense are little work, and the call itself refuses them.
#pragma once

#include "core/work/background.hpp"
#include "nif/codec.hpp"

namespace exphil::nif {

struct Work {
  core::JobKind kind = core::JobKind::compute;
  bool large = false;  // does not hold a dirty scheduler: it is queued
  int helpers = 0;     // threads that a dirty job wants soon: core::wake_helpers
};

// The kind of a call whose first argument is `first`: a model, a session, a layer, a group or a list of
// sessions, or a backend's name.
core::JobKind job_kind(ErlNifEnv* env, Term first);
// The index of the device of such a call, which has two arguments at least: that of its model, session or
// layer, or its second argument. Of several devices the first.
int job_device(ErlNifEnv* env, const Term argv[]);
// Dirty jobs wait for a device or a disk in IO's threads, and compute in the CPU's.
int dirty_flag(core::JobKind kind);

// Whether a session's frames have lately taken far less than a millisecond on this machine, or on a device
// less than a call waits there.
bool is_short_step(ErlNifEnv* env, const Term argv[]);
struct SessionHandle;
bool has_short_steps(const SessionHandle& session);

// Whether the call is of a session whose policy gathers: its frame is short, or another thread computes it.
bool is_gathered(ErlNifEnv* env, const Term argv[]);

// Whether so few frames are played again that they are short together; never on a device.
bool is_short_resimulate(ErlNifEnv* env, const Term argv[]);

// Whether the call is of a session, and so takes a microsecond unless another call has the session.
bool is_rollback(ErlNifEnv* env, const Term argv[]);

// Whether a copy of the session's state, or of its window's frames, is one of a few hundred kilobytes in this
// machine's memory.
bool is_short_copy(ErlNifEnv* env, const Term argv[]);

// By the functions of the same names in functions.hpp.
Work scan_work(ErlNifEnv* env, const Term argv[]);
Work scan_grad_work(ErlNifEnv* env, const Term argv[]);
Work associative_scan_work(ErlNifEnv* env, const Term argv[]);
Work associative_grad_work(ErlNifEnv* env, const Term argv[]);
Work recurrent_work(ErlNifEnv* env, const Term argv[]);
Work ssd_work(ErlNifEnv* env, const Term argv[]);
Work layer_forward_work(ErlNifEnv* env, const Term argv[]);
Work layer_grad_work(ErlNifEnv* env, const Term argv[]);  // on this machine, wherever the layer is
Work training_work(ErlNifEnv* env, const Term argv[]);
Work train_step_work(ErlNifEnv* env, const Term argv[]);
Work window_work(ErlNifEnv* env, const Term argv[]);
Work prefill_work(ErlNifEnv* env, const Term argv[]);
Work resimulate_work(ErlNifEnv* env, const Term argv[]);
Work step_batch_work(ErlNifEnv* env, const Term argv[]);
Work file_work(ErlNifEnv* env, const Term argv[]);  // whatever reads or copies weights: always large

}  // namespace exphil::nif
