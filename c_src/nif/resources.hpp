// The resources behind Elixir's references: policies, sessions, snapshots, and the memory of large results.
//
// A resource's destructor runs on a normal scheduler at an unknown time, so it only passes its object to
// core's reaper; a result's bytes return to their pool under a mutex. Many threads read a handle
// concurrently, and the objects it points to do their own locking. Calls change three things in a handle:
// update_policy() and train_step() what a policy's holds and await_tick() a clock's alarm, by atomic
// accesses; a gathered frame a session's `gathered`, by whoever has set `gathers`.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/session/gatherer.hpp"
#include "core/session/scratch_step.hpp"
#include "core/work/reaper.hpp"
#include "core/work/ticker.hpp"
#include "nif/codec.hpp"
#include "nif/loaded_policy.hpp"

namespace exphil::nif {

// A batch of training in the backend's memory for results, kept from step to step: fresh memory of megabytes
// costs more than to fill it, and a GPU reads page-locked memory directly.
struct TrainingBuffers {
  std::mutex mutex;
  core::ResultBuffer frames, targets, mask;  // four bytes each, whatever they are
};
// The training of a policy.
struct TrainingHandle {
  std::shared_ptr<core::PolicyTraining> training;
  std::shared_ptr<TrainingBuffers> buffers = std::make_shared<TrainingBuffers>();
};

// Members are destroyed in reverse order: the state before its policy.
struct SessionHandle {
  std::shared_ptr<LoadedPolicy> loaded;
  std::shared_ptr<core::Session> session;
  std::uint64_t number = next_number();  // no other session ever has it
  // Recent average of one frame; 0: none yet. Apart, because a handle is moved.
  std::unique_ptr<std::atomic<float>> step_microseconds = std::make_unique<std::atomic<float>>(0.0f);
  // Of gather.cpp, for one gathered frame after another, so that a frame allocates little; and whether it is
  // in use.
  std::unique_ptr<core::GatheredFrame> gathered = nullptr;
  std::unique_ptr<std::atomic<bool>> gathers = std::make_unique<std::atomic<bool>>(false);

  // From the time in nanoseconds on, so that another version of the library, which takes over what this one
  // has made, gives none of its numbers again.
  static std::uint64_t next_number() noexcept {
    static std::atomic<std::uint64_t> next{
        static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())};
    return next.fetch_add(1, std::memory_order_relaxed);
  }
  // After a call that replaces the frames of a window: the next step may compute all of them, and so takes
  // longer than those before. A carried state's steps take what they took.
  void replaced_frames() {
    if (session->has_window()) step_microseconds->store(0.0f, std::memory_order_relaxed);
  }
};
// A new session: on the device of that index (invalid_argument where the model is not there), or on the one
// with the fewest sessions.
SessionHandle make_session(const std::shared_ptr<LoadedPolicy>& loaded, const core::SessionOptions& options,
                           std::optional<std::int64_t> device);
struct SnapshotHandle {
  std::shared_ptr<LoadedPolicy> loaded;
  std::shared_ptr<core::Snapshot> snapshot;
};
// A frame that a dirty job finishes. Without that job, because its process was killed, whoever needs the
// session next does, or the session's end drops it.
struct LateHandle {
  std::shared_ptr<core::LateFrame> frame;
  std::chrono::steady_clock::time_point begin;
};
// Answers of gathered frames that a process delivers. Where it ends first, the end of this does.
struct AnswersHandle {
  std::unique_ptr<core::GatheredAnswers> answers;
};
struct ResultHandle {
  core::ResultBuffer buffer;
};
// An AR-SSM layer on a backend.
struct LoadedLayer {
  std::unique_ptr<core::SemiseparableLayer> layer;
  std::shared_ptr<const core::SemiseparableWeights> weights;  // for the gradient, computed on the CPU
  core::Backend* backend = nullptr;                           // valid until the library unloads
  core::DeviceDescription device;
};
struct LayerHandle {
  std::shared_ptr<LoadedLayer> loaded;
};

// A frame clock; stops when the last reference to it is released.
struct TickReceiver;  // clock.cpp
struct ClockHandle {
  std::shared_ptr<core::Ticker> ticker;
  std::shared_ptr<TickReceiver> receiver;
  std::shared_ptr<core::Ticker> alarm;  // wakes a process that sleeps until its tick; accessed atomically
  std::chrono::nanoseconds lead{0};     // how long before a frame its tick is; 0: at the frame
  // Of a clock with a lead: what warms the caller, and whose frames they are.
  std::shared_ptr<LoadedPolicy> loaded;
  std::shared_ptr<core::Session> session;
  std::shared_ptr<core::ScratchStep> scratch;
  // The last tick whose wait made a scratch step, and whether that step came. Apart, because a handle is
  // moved.
  std::unique_ptr<std::atomic<std::int64_t>> warmed = std::make_unique<std::atomic<std::int64_t>>(-1);
  std::unique_ptr<std::atomic<bool>> warm = std::make_unique<std::atomic<bool>>(false);
};

inline void release(ClockHandle& handle) noexcept {
  core::reap(std::move(handle.scratch));
  core::reap(std::move(handle.session));
  core::reap(std::move(handle.loaded));
}
inline void release(PolicyHandle& handle) noexcept {
  core::reap(handle.take());
}
inline void release(TrainingHandle& handle) noexcept {
  core::reap(std::move(handle.training));
  core::reap(std::move(handle.buffers));
}
inline void release(SessionHandle& handle) noexcept {
  core::reap(std::move(handle.session));
  core::reap(std::move(handle.loaded));
}
inline void release(SnapshotHandle& handle) noexcept {
  core::reap(std::move(handle.snapshot));
  core::reap(std::move(handle.loaded));
}
inline void release(LateHandle&) noexcept {}
inline void release(AnswersHandle&) noexcept {}
inline void release(ResultHandle&) noexcept {}
inline void release(LayerHandle& handle) noexcept {
  core::reap(std::move(handle.loaded));
}

// The resource type of each handle, set when the library loads.
template <class Handle>
struct ResourceType {
  static inline std::atomic<ErlNifResourceType*> type{nullptr};
};

// Opens every type; false where the VM refuses. Called at load and at upgrade.
bool open_resource_types(ErlNifEnv* env);

// Makes the types that are open now stay valid until the process ends, because a queued call may still create
// a resource after its module was purged. Leaks one empty object of each type, once.
void keep_resource_types();

// The backend that a model, session, layer or list of sessions belongs to; nullptr for anything else.
const core::Backend* find_backend(ErlNifEnv* env, Term term);

// The index of its device, of a list of sessions on several devices that of each in turn; -1 for anything
// else.
int find_device(ErlNifEnv* env, Term term);

template <class Handle>
Handle* find_handle(ErlNifEnv* env, Term term) {
  void* object = nullptr;
  if (!enif_get_resource(env, term, ResourceType<Handle>::type, &object)) return nullptr;
  return static_cast<Handle*>(object);
}

// In a list of sessions each is an Elixir struct: this is its reference, and of any other term the term
// itself. So Elixir need not build another list for each call.
Term session_reference(ErlNifEnv* env, Term term);
Term first_reference(ErlNifEnv* env, Term term);  // of a list that of its first term
struct ListedSession {
  SessionHandle* handle;
};

// Moves the handle into a resource that the VM owns. The caller releases its own reference. `weight` bytes
// are allocated with it and never used.
template <class Handle>
Handle* make_resource(Handle handle, std::size_t weight = 0) {
  void* memory = enif_alloc_resource(ResourceType<Handle>::type, sizeof(Handle) + weight);
  if (memory == nullptr) throw std::bad_alloc();
  return new (memory) Handle(std::move(handle));
}

// The `weight` of a snapshot. The VM counts a resource's own bytes towards the process's next garbage
// collection, but not the memory behind it. Measured with one snapshot a frame in a process with a large
// heap: without a weight 3,500 snapshots existed before a collection, with this one about 400; with the full
// size the VM would collect every few frames. Sessions are long-lived and have none.
std::size_t snapshot_weight(const core::PolicyConfig& config);

template <class Handle>
Term encode_handle(Call& call, Handle handle, std::size_t weight = 0) {
  Handle* resource = make_resource(std::move(handle), weight);
  const Term term = enif_make_resource(call.env(), resource);
  enif_release_resource(resource);
  return term;
}

template <class Handle>
Handle& decode_handle(Call& call, Term term, const char* argument, const char* expected) {
  Handle* handle = find_handle<Handle>(call.env(), term);
  if (handle != nullptr) return *handle;
  if (enif_is_ref(call.env(), term)) {
    core::fail(core::ErrorKind::invalid_argument, argument, argument, " must be ", expected,
               " in this VM, got ", describe(call, term),
               ", which is of another kind or of another node: call where it was made");
  }
  fail_decode(call, term, argument, expected);
}

// Throws mismatch where update_policy() or train_step() has put other weights into the model.
void require_current(const LoadedPolicy& loaded, const char* argument);

template <>
struct Decoder<PolicyHandle&> {
  static PolicyHandle& decode(Call& call, Term term, const char* argument) {
    return decode_handle<PolicyHandle>(call, term, argument, "a policy that Policy.load returned");
  }
};
template <>
struct Decoder<TrainingHandle&> {
  static TrainingHandle& decode(Call& call, Term term, const char* argument) {
    return decode_handle<TrainingHandle>(call, term, argument, "a trainer of Trainer.new");
  }
};
template <>
struct Decoder<SessionHandle&> {
  static SessionHandle& decode(Call& call, Term term, const char* argument) {
    auto& handle =
        decode_handle<SessionHandle>(call, term, argument, "a session that Policy.new_session returned");
    require_current(*handle.loaded, argument);
    return handle;
  }
};
template <>
struct Decoder<SessionHandle*> {
  static SessionHandle* decode(Call& call, Term term, const char* argument) {
    return &Decoder<SessionHandle&>::decode(call, term, argument);
  }
};
template <>
struct Decoder<ListedSession> {
  static ListedSession decode(Call& call, Term term, const char* argument) {
    return {&Decoder<SessionHandle&>::decode(call, session_reference(call.env(), term), argument)};
  }
};
template <>
struct Decoder<SnapshotHandle&> {
  static SnapshotHandle& decode(Call& call, Term term, const char* argument) {
    return decode_handle<SnapshotHandle>(call, term, argument, "a snapshot that Policy.snapshot returned");
  }
};

template <>
struct Decoder<LateHandle&> {
  static LateHandle& decode(Call& call, Term term, const char* argument) {
    return decode_handle<LateHandle>(call, term, argument, "a frame that has begun");
  }
};

template <>
struct Decoder<AnswersHandle&> {
  static AnswersHandle& decode(Call& call, Term term, const char* argument) {
    return decode_handle<AnswersHandle>(call, term, argument, "answers that a message brought");
  }
};

template <>
struct Decoder<ClockHandle&> {
  static ClockHandle& decode(Call& call, Term term, const char* argument) {
    return decode_handle<ClockHandle>(call, term, argument, "a clock that Clock.start returned");
  }
};

template <>
struct Decoder<LayerHandle&> {
  static LayerHandle& decode(Call& call, Term term, const char* argument) {
    return decode_handle<LayerHandle>(call, term, argument, "a layer that SemiseparableLayer.load returned");
  }
};

// Uninitialised memory for one result, and the binary it becomes. From core::kSmallestPooledResult on the
// binary is a resource over the backend's pooled memory: a new BEAM binary of 4 MB cost 1.6 ms in page faults
// on the machine of bench/results. A smaller result is an ordinary binary, which is cheaper.
class Result {
 public:
  Result(Call& call, core::Backend& backend, std::size_t bytes);
  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  Term term();  // once

 private:
  Call& call_;
  std::size_t bytes_;
  std::optional<NewBinary> binary_;  // below core::kSmallestPooledResult
  core::ResultBuffer buffer_;        // otherwise
  void* data_ = nullptr;
};

}  // namespace exphil::nif
