#include "nif/work.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/recurrent/operators.hpp"
#include "nif/backends.hpp"
#include "nif/group.hpp"
#include "nif/resources.hpp"

namespace exphil::nif {

namespace {

using core::JobKind;

// Calls that are guessed to take longer are queued. The limit of scans is short beside a frame of 16.7 ms,
// and long beside the 20 to 50 us that the queue adds. A call of a policy may be somebody's frame: one window
// of 60 frames should not wait behind scans.
constexpr double kLargeScan = 300, kLargePolicyCall = 2500;  // microseconds

// Per microsecond: what a core computes, and what a device computes or copies. Rounded from
// bench/results/host.md and gpu_scan.md; other processors differ by small factors, which work.hpp allows for.
struct Speed {
  double updates;  // of a scan's state
  double bytes;    // of an associative scan, or to a device and back
  double weights;  // multiplied by one row
  double gates;    // bytes of the gates of a fused recurrent operator
};
constexpr Speed kCore{3000, 4000, 40000, 1500}, kDevice{400000, 15000, 4000000, 15000};

const Speed& speed(JobKind kind) {
  return kind == JobKind::device ? kDevice : kCore;
}

double binary_bytes(ErlNifEnv* env, Term term) {
  ErlNifBinary binary;
  return enif_inspect_binary(env, term, &binary) ? static_cast<double>(binary.size) : 0;
}

// Of a binary, or of {:device, address, bytes, owner}.
double element_bytes(ErlNifEnv* env, Term term) {
  int arity = 0;
  const Term* parts = nullptr;
  ErlNifUInt64 bytes = 0;
  if (!enif_get_tuple(env, term, &arity, &parts) || arity != 4) return binary_bytes(env, term);
  return enif_get_uint64(env, parts[2], &bytes) ? static_cast<double>(bytes) : 0;
}

// {type, shape, binary}, or a bare binary.
struct Tensor {
  double bytes = 0;
  double last_dim = 1;
};

Tensor tensor_of(ErlNifEnv* env, Term term) {
  Tensor tensor;
  int arity = 0, rank = 0;
  const Term *parts = nullptr, *dims = nullptr;
  if (!enif_get_tuple(env, term, &arity, &parts) || arity != 3) {
    tensor.bytes = binary_bytes(env, term);
    return tensor;
  }
  tensor.bytes = element_bytes(env, parts[2]);
  ErlNifSInt64 last = 1;
  if (enif_get_tuple(env, parts[1], &rank, &dims) && rank > 0 && enif_get_int64(env, dims[rank - 1], &last)) {
    tensor.last_dim = static_cast<double>(last);
  }
  return tensor;
}

// Of a call that takes so many frames through a policy.
Work policy_work(JobKind kind, const std::shared_ptr<LoadedPolicy>& loaded, double rows) {
  return {kind,
          rows * static_cast<double>(loaded->config().products) / speed(kind).weights > kLargePolicyCall};
}
Work policy_work(ErlNifEnv* env, JobKind kind, const std::shared_ptr<LoadedPolicy>& loaded, Term frames) {
  const double row = static_cast<double>(loaded->config().d_input * 4);
  return policy_work(kind, loaded, tensor_of(env, frames).bytes / row);
}

// Of a scan over x with this A, `times` over.
Work scan_of(ErlNifEnv* env, Term backend, Term x_term, Term a_term, double times) {
  const JobKind kind = job_kind(env, backend);
  const Tensor x = tensor_of(env, x_term), a = tensor_of(env, a_term);
  const double updates = x.bytes / 4 * a.last_dim;
  return {kind, times * (updates / speed(kind).updates + 3 * x.bytes / kDevice.bytes) > kLargeScan};
}

// Of {layer, x, ...}.
Work layer_of(ErlNifEnv* env, JobKind kind, const Term argv[], double times) {
  const LayerHandle* handle = find_handle<LayerHandle>(env, argv[0]);
  if (handle == nullptr) return {kind, false};
  const Tensor x = tensor_of(env, argv[1]);
  const double rows = x.bytes / 4 / std::max(x.last_dim, 1.0);
  const auto weights = static_cast<double>(handle->loaded->layer->resident_bytes() / 4);
  return {kind, times * rows * weights / speed(kind).weights > kLargeScan};
}

Work associative_of(ErlNifEnv* env, Term backend, Term x, double times) {
  const JobKind kind = job_kind(env, backend);
  return {kind, times * tensor_of(env, x).bytes / speed(kind).bytes > kLargeScan};
}

// The first `count` of [{name, tensor}]; empty where there are fewer.
std::vector<Tensor> named_tensors(ErlNifEnv* env, Term list, std::size_t count) {
  std::vector<Tensor> tensors;
  Term head = 0;
  while (tensors.size() < count) {
    int arity = 0;
    const Term* pair = nullptr;
    if (!enif_get_list_cell(env, list, &head, &list) || !enif_get_tuple(env, head, &arity, &pair) ||
        arity != 2)
      return {};
    tensors.push_back(tensor_of(env, pair[1]));
  }
  return tensors;
}

// Whether an atom names a fused recurrent operator whose state goes through a product.
bool is_dense(ErlNifEnv* env, Term op) {
  char name[32];
  if (enif_get_atom(env, op, name, sizeof name, ERL_NIF_LATIN1) == 0) return false;
  for (std::size_t i = 0; i < core::kRecurrentOps; ++i) {
    const core::RecurrentRow& row = core::recurrent_row(static_cast<core::RecurrentOp>(i));
    if (row.dense() && std::strcmp(row.name, name) == 0) return true;
  }
  return false;
}

}  // namespace

JobKind job_kind(ErlNifEnv* env, Term first) {
  const core::Backend* backend = find_backend(env, first);
  const bool device = backend != nullptr ? backend->waits_for_device() : may_use_cuda(env, first);
  return device ? JobKind::device : JobKind::compute;
}

int job_device(ErlNifEnv* env, const Term argv[]) {
  for (const Term term : {argv[0], argv[1]}) {
    if (const int device = find_device(env, term); device >= 0) return device;
  }
  Term index = argv[1], tail = 0;
  int device = 0;
  enif_get_list_cell(env, argv[1], &index, &tail);
  return enif_get_int(env, index, &device) ? device : 0;
}

int dirty_flag(JobKind kind) {
  return kind == JobKind::compute ? ERL_NIF_DIRTY_JOB_CPU_BOUND : ERL_NIF_DIRTY_JOB_IO_BOUND;
}

bool is_short_step(ErlNifEnv* env, const Term argv[]) {
  const SessionHandle* handle = find_handle<SessionHandle>(env, argv[0]);
  return handle != nullptr && has_short_steps(*handle);
}

bool has_short_steps(const SessionHandle& session) {
  constexpr float kShort = 500;  // half of what a call may take on a normal scheduler
  const bool waits = session.loaded->backend->waits_for_device();
  if ((waits || session.session->begins_windows()) && !session.session->splits_frames()) return false;
  const float taken = session.step_microseconds->load(std::memory_order_relaxed);
  return taken > 0 && taken < (waits ? static_cast<float>(core::kPatience.count()) : kShort);
}

bool is_gathered(ErlNifEnv* env, const Term argv[]) {
  const SessionHandle* handle = find_handle<SessionHandle>(env, argv[0]);
  return handle != nullptr && handle->session->gatherer() != nullptr;
}

// The frames after the first find the weights in the processor's caches, and take less than half of its time.
bool is_short_resimulate(ErlNifEnv* env, const Term argv[]) {
  constexpr double kShort = 700;  // of the 1000 us that a call may take on a normal scheduler
  const SessionHandle* handle = find_handle<SessionHandle>(env, argv[0]);
  if (handle == nullptr || handle->loaded->backend->waits_for_device()) return false;
  const auto width = static_cast<double>(handle->loaded->policy->config().d_input * 4);
  const double frames = tensor_of(env, argv[2]).bytes / width;
  const double taken = handle->step_microseconds->load(std::memory_order_relaxed);
  return taken > 0 && taken * (1 + (frames - 1) / 2) < kShort;
}

bool is_rollback(ErlNifEnv* env, const Term argv[]) {
  return find_handle<SessionHandle>(env, argv[0]) != nullptr;
}

bool is_short_copy(ErlNifEnv* env, const Term argv[]) {
  constexpr std::int64_t kShort = 100'000;  // floats: some 100 us, with fresh pages for a snapshot
  const SessionHandle* handle = find_handle<SessionHandle>(env, argv[0]);
  if (handle == nullptr || handle->loaded->backend->waits_for_device()) return false;
  return handle->session->copied_floats() <= kShort;
}

Work scan_work(ErlNifEnv* env, const Term argv[]) {
  return scan_of(env, argv[0], argv[2], argv[4], 1);
}

// A gradient reads and writes twice as much, and takes about three times as long.
Work scan_grad_work(ErlNifEnv* env, const Term argv[]) {
  return scan_of(env, argv[0], argv[3], argv[5], 3);
}

Work associative_scan_work(ErlNifEnv* env, const Term argv[]) {
  return associative_of(env, argv[0], argv[4], 1);
}

Work associative_grad_work(ErlNifEnv* env, const Term argv[]) {
  return associative_of(env, argv[0], argv[6], 3);
}

// {backend, device, op, [{name, tensor}], request}: the first tensor has the gates of one input, of a dense
// cell all sums; the second is then r, {hidden, sums}.
Work recurrent_work(ErlNifEnv* env, const Term argv[]) {
  const JobKind kind = job_kind(env, argv[0]);
  const std::vector<Tensor> tensors = named_tensors(env, argv[3], 2);
  if (tensors.empty()) return {kind, false};
  const Tensor &x = tensors[0], &r = tensors[1];
  const double steps = x.bytes / 4 / std::max(x.last_dim, 1.0);
  const double products = is_dense(env, argv[2]) ? steps * r.bytes / 4 / speed(kind).weights : 0;
  return {kind, 3 * (products + x.bytes / speed(kind).gates) > kLargeScan};
}

// {backend, device, [{name, tensor}], request}: x, and b with the states as its last axis. A gradient takes
// some four times as long.
Work ssd_work(ErlNifEnv* env, const Term argv[]) {
  const JobKind kind = job_kind(env, argv[0]);
  const std::vector<Tensor> tensors = named_tensors(env, argv[2], 4);
  if (tensors.empty()) return {kind, false};
  const double updates = tensors[0].bytes / 4 * tensors[3].last_dim;
  return {kind, 2 * (updates / speed(kind).updates + 3 * tensors[0].bytes / kDevice.bytes) > kLargeScan};
}

Work layer_forward_work(ErlNifEnv* env, const Term argv[]) {
  return layer_of(env, job_kind(env, argv[0]), argv, 1);
}

Work layer_grad_work(ErlNifEnv* env, const Term argv[]) {
  return layer_of(env, JobKind::compute, argv, 3);
}

Work window_work(ErlNifEnv* env, const Term argv[]) {
  const PolicyHandle* handle = find_handle<PolicyHandle>(env, argv[0]);
  return handle != nullptr ? policy_work(env, job_kind(env, argv[0]), handle->found(), argv[1]) : Work{};
}

Work training_work(ErlNifEnv* env, const Term argv[]) {
  const PolicyHandle* handle = find_handle<PolicyHandle>(env, argv[0]);
  return handle != nullptr ? policy_work(env, JobKind::compute, handle->found(), argv[1]) : Work{};
}

// {training, policy, pieces}: as a gradient of all of their frames.
Work train_step_work(ErlNifEnv* env, const Term argv[]) {
  const PolicyHandle* handle = find_handle<PolicyHandle>(env, argv[1]);
  if (handle == nullptr) return {};
  double rows = 0;
  Term head = 0, tail = argv[2];
  while (enif_get_list_cell(env, tail, &head, &tail)) {
    int arity = 0;
    const Term* parts = nullptr;
    ErlNifSInt64 count = 0;
    if (!enif_get_tuple(env, head, &arity, &parts) || arity != 5 || !enif_get_int64(env, parts[4], &count))
      return {};
    rows += static_cast<double>(count);
  }
  return policy_work(job_kind(env, argv[1]), handle->found(), 3 * rows);
}

Work prefill_work(ErlNifEnv* env, const Term argv[]) {
  const SessionHandle* handle = find_handle<SessionHandle>(env, argv[0]);
  return handle != nullptr ? policy_work(env, job_kind(env, argv[0]), handle->loaded, argv[1]) : Work{};
}

Work resimulate_work(ErlNifEnv* env, const Term argv[]) {
  const SessionHandle* handle = find_handle<SessionHandle>(env, argv[0]);
  return handle != nullptr ? policy_work(env, job_kind(env, argv[0]), handle->loaded, argv[2]) : Work{};
}

Work step_batch_work(ErlNifEnv* env, const Term argv[]) {
  const auto* loaded = find_batch(env, argv[0]);
  if (loaded == nullptr) return {};
  Work work = policy_work(env, job_kind(env, argv[0]), *loaded, argv[1]);
  if (work.kind == JobKind::device && (*loaded)->policy != nullptr) {
    const double frames =
        tensor_of(env, argv[1]).bytes / (4.0 * static_cast<double>((*loaded)->config().d_input));
    work.helpers = (*loaded)->policy->copying_helpers(static_cast<std::int64_t>(frames));
  }
  return work;
}

Work file_work(ErlNifEnv*, const Term[]) {
  return {JobKind::file, true};
}

}  // namespace exphil::nif
