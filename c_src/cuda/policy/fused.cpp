#include "cuda/policy/fused.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "core/error.hpp"
#include "cuda/policy/scan_frame.hpp"
#include "kernels/policy/cell_batch_layout.cuh"

namespace exphil::cuda {
namespace {

constexpr std::int64_t kFirstTickets = 4;
// Rounds of all teams in clusters; for larger batches the row kernels are faster, from the second round on
// where a batch's frame of a layer, or of the policy, is one launch (bench/results). Of scans, where that has
// clusters of so many blocks as may be: of smaller networks the second round takes no longer.
std::int64_t rounds_of_teams(const DeviceProperties& device, const PolicyDims& dims,
                             const PolicyTuning& tuning) {
  const policy::Network& n = dims.network();
  const auto in_one_launch = [&](const policy::GatedCell& cell) {
    return policy::cell_products(n, cell).x != policy::kNoPhase;
  };
  const bool cells = std::any_of(std::begin(n.cells), std::end(n.cells), in_one_launch);
  const std::optional<policy::ScanFrameShape> scans = scan_frame_shape(device, dims, tuning);
  return (tuning.cell_batch > 0 && cells) || (scans && scans->team == policy::kScanFrameTeam) ? 1 : 2;
}

}  // namespace

// Holds tickets, at most kMostInFlight, for the duration of a call.
class FusedSteps::Lease {
 public:
  Lease(FusedSteps& owner, std::size_t count) : owner_(owner) {
    {
      std::lock_guard<std::mutex> lock(owner.tickets_mutex_);
      for (; count_ < count && !owner.tickets_.empty(); ++count_) {
        held_[count_] = std::move(owner.tickets_.back());
        owner.tickets_.pop_back();
      }
    }
    try {
      for (; count_ < count; ++count_) held_[count_] = owner.make_ticket();
    } catch (...) {
      give_back();
      throw;
    }
  }
  ~Lease() { give_back(); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Ticket& operator[](std::size_t index) { return *held_[index]; }

 private:
  void give_back() {
    std::lock_guard<std::mutex> lock(owner_.tickets_mutex_);
    // make_ticket() has reserved the space.
    for (std::size_t i = 0; i < count_; ++i) owner_.tickets_.push_back(std::move(held_[i]));
  }

  FusedSteps& owner_;
  std::size_t count_ = 0;
  std::array<std::unique_ptr<Ticket>, kMostInFlight> held_;
};

FusedSteps::FusedSteps(std::shared_ptr<Context> context, const PolicyDims& dims, const PolicyTuning& tuning,
                       const core::PolicyWeights& weights, OrderedStream& stream)
    : context_(std::move(context)),
      dims_(dims),
      tuning_(tuning),
      stream_(stream),
      inline_obs_(tuning.inline_obs != 0 && dims.config.d_input <= policy::kMostInlineObs) {
  TeamWeights packed(*context_, weights, dims);
  one_ = fitting_runner(packed, 1);
  // The agents of a team share each weight that is read. If so many do not fit, try fewer.
  for (int agents = tuning.batch_agents; agents > 1 && few_ == nullptr && one_ != nullptr; agents /= 2) {
    few_ = fitting_runner(packed, agents);
  }
  if (one_ == nullptr) return;  // too large for one launch: the row kernels do every step
  limit_ = 1;
  if (few_ != nullptr) {
    limit_ = tuning.fused_limit >= 0
                 ? std::max<std::int64_t>(1, tuning.fused_limit)
                 : std::int64_t{few_->most_teams()} * few_->shape().agents *
                       (few_->shape().cluster ? rounds_of_teams(context_->properties(), dims, tuning) : 1);
    const auto count = static_cast<std::size_t>(limit_);
    const std::size_t in_bytes =
        count * (static_cast<std::size_t>(dims.frame_size()) * 4 + sizeof(policy::StatePlace));
    few_in_ = context_->pinned_pool().allocate(in_bytes);
    few_device_in_ = context_->device_pool().allocate(in_bytes);
    few_out_ = context_->pinned_pool().allocate(count * static_cast<std::size_t>(dims.config.d_output) * 4);
  }
  reserve_chain(kFirstTickets);
}

void FusedSteps::reserve_chain(std::int64_t count) {
  if (limit_ == 0) return;
  const Lease lease(*this, static_cast<std::size_t>(std::min(count, kMostInFlight)));
}

std::unique_ptr<TeamRunner> FusedSteps::fitting_runner(TeamWeights& packed, int agents) const {
  try {
    return std::make_unique<TeamRunner>(*context_, dims_, tuning_, packed, agents);
  } catch (const core::Error& error) {
    if (error.kind() != core::ErrorKind::unsupported) throw;
    return nullptr;
  }
}

std::size_t FusedSteps::resident_bytes() const {
  if (one_ == nullptr) return 0;
  return one_->resident_bytes() +
         (few_ != nullptr && few_->shape().team != one_->shape().team ? few_->resident_bytes() : 0);
}

std::unique_ptr<FusedSteps::Ticket> FusedSteps::make_ticket() {
  auto ticket = std::make_unique<Ticket>();
  {
    std::lock_guard<std::mutex> lock(tickets_mutex_);
    tickets_.reserve(++made_);
  }
  ticket->outputs = TaggedOutputs(*context_, static_cast<std::size_t>(dims_.config.d_output));
  if (!inline_obs_) {
    ticket->obs = context_->pinned_pool().allocate(static_cast<std::size_t>(dims_.frame_size()) * 4);
    std::memset(ticket->obs.data(), 0, static_cast<std::size_t>(dims_.frame_size()) * 4);
  }
  return ticket;
}

void FusedSteps::step_chain(const policy::StatePlace* places, std::int64_t count, const float* obs,
                            float* out) {
  for (std::int64_t first = 0; first < count; first += kMostInFlight) {
    step_some(places + first, static_cast<std::size_t>(std::min(count - first, kMostInFlight)),
              obs + first * dims_.config.d_input, out + first * dims_.config.d_output);
  }
}

void FusedSteps::step_some(const policy::StatePlace* places, std::size_t count, const float* obs,
                           float* out) {
  Lease lease(*this, count);
  try {
    {
      const auto lock = stream_.enter();
      for (std::size_t i = 0; i < count; ++i) {
        launch_one(lease[i], places[i], obs + i * static_cast<std::size_t>(dims_.config.d_input));
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      collect(lease[i], out + i * static_cast<std::size_t>(dims_.config.d_output));
    }
  } catch (...) {
    stream_.drain();
    throw;
  }
}

std::unique_ptr<FusedSteps::Ticket> FusedSteps::begin(const policy::StatePlace& place, const float* obs) {
  const auto lock = stream_.enter_soon();
  std::unique_ptr<Ticket> ticket = take_ticket();
  try {
    launch_one(*ticket, place, obs);
  } catch (...) {
    end(std::move(ticket));
    throw;
  }
  return ticket;
}

std::unique_ptr<FusedSteps::Ticket> FusedSteps::take_ticket() {
  const std::lock_guard<std::mutex> lock(tickets_mutex_);
  if (tickets_.empty()) throw core::WouldWait{};
  std::unique_ptr<Ticket> ticket = std::move(tickets_.back());
  tickets_.pop_back();
  return ticket;
}

void FusedSteps::begin_again(Ticket& ticket, const policy::StatePlace& place, const float* obs,
                             bool may_wait) {
  const auto lock = may_wait ? stream_.enter() : stream_.enter_soon();
  launch_one(ticket, place, obs);
}

void FusedSteps::end(std::unique_ptr<Ticket> ticket) noexcept {
  const std::lock_guard<std::mutex> lock(tickets_mutex_);
  tickets_.push_back(std::move(ticket));  // make_ticket() has reserved the space
}

// Under the stream's lock.
void FusedSteps::launch_one(Ticket& ticket, const policy::StatePlace& place, const float* obs) {
  policy::StepArguments arguments{};
  arguments.state = place;
  arguments.count = 1;
  arguments.tagged = ticket.outputs.device_words();
  if (!inline_obs_) {
    std::memcpy(ticket.obs.data(), obs, static_cast<std::size_t>(dims_.config.d_input) * 4);
    arguments.obs = as_pointer<float>(ticket.obs.device_address());
  }
  arguments.sequence = ticket.sequence = next_number();
  one_->launch(stream_.handle(), arguments, obs);
}

bool FusedSteps::poll(const Ticket& ticket, float* out, std::int64_t microseconds) const {
  return ticket.outputs.poll(ticket.sequence, dims_.config.d_output, microseconds, out);
}

void FusedSteps::collect(const Ticket& ticket, float* out) {
  ticket.outputs.collect(*context_, stream_.handle(), ticket.sequence, dims_.config.d_output,
                         tuning_.spin_microseconds, out);
}

void FusedSteps::prepare_armed() {
  if (limit_ == 0) {
    const std::string why =
        dims_.network().on_tensor_cores() ? "has the precision :tf32x3, whose calls are several"
        : dims_.network().in_rows_alone() ? "has states of 16 bits, whose calls are several"
                                          : "is too large for " + std::string(context_->properties().name);
    core::fail(core::ErrorKind::unsupported, ":latency",
               "latency: :armed needs a policy that fits one launch; this one ", why);
  }
  const std::lock_guard<std::mutex> lock(armed_mutex_);
  if (armed_) return;
  auto armed = std::make_unique<ArmedLaunches>(*context_, *one_, stream_.doorbell(), dims_,
                                               tuning_.armed_microseconds);
  stream_.run([&](CUstream stream) { armed->warm_up(stream, next_number()); });
  armed_ = std::move(armed);
}

std::unique_ptr<FusedSteps::Ticket> FusedSteps::begin_ahead(const policy::StatePlace& place) {
  const auto lock = stream_.enter_soon();
  std::unique_ptr<Ticket> ticket = take_ticket();
  bool waits = false;
  try {
    policy::StepArguments arguments{};
    arguments.state = place;
    arguments.count = 1;
    arguments.tagged = ticket->outputs.device_words();
    arguments.sequence = ticket->sequence = next_number();
    waits = armed_->launch(stream_.handle(), arguments);
  } catch (...) {
    end(std::move(ticket));
    throw;
  }
  if (!waits) end(std::move(ticket));
  return ticket;
}

bool FusedSteps::poll_rung(const Ticket& ticket, float* out, std::int64_t microseconds) const {
  const auto over = [&] { return ended(ticket); };
  return ticket.outputs.poll(ticket.sequence, dims_.config.d_output, microseconds, out, over) ||
         (over() && poll(ticket, out, 0));
}

bool FusedSteps::collect_rung(const Ticket& ticket, float* out) {
  if (poll_rung(ticket, out, tuning_.spin_microseconds)) return true;
  if (ended(ticket)) return false;
  context_->armed().cancel();
  context_->check(driver().cuStreamSynchronize(stream_.handle()), "cuStreamSynchronize");
  return poll(ticket, out, 0);
}

void FusedSteps::step_few(const policy::StatePlace* states, std::size_t count, const float* obs, float* out) {
  std::lock_guard<std::mutex> busy(few_mutex_);
  dims_.pad_frames(obs, static_cast<std::int64_t>(count), few_in_.as<float>());
  const std::size_t obs_bytes = count * static_cast<std::size_t>(dims_.frame_size()) * 4;
  std::memcpy(few_in_.as<char>() + obs_bytes, states, count * sizeof(*states));
  // A few agents run faster with one per team; more agents per team share the weights.
  const bool spread = static_cast<int>(count) <= one_->most_teams();
  const TeamRunner& runner = spread ? *one_ : *few_;
  policy::StepArguments arguments{};
  arguments.count = static_cast<int>(count);
  arguments.obs = few_device_in_.as<float>();
  arguments.states = as_pointer<policy::StatePlace>(few_device_in_.address() + obs_bytes);
  arguments.out = as_pointer<float>(few_out_.device_address());
  stream_.run([&](CUstream stream) {
    context_->check(driver().cuMemcpyHtoDAsync(few_device_in_.address(), few_in_.data(),
                                               obs_bytes + count * sizeof(*states), stream),
                    "cuMemcpyHtoDAsync");
    runner.launch(stream, arguments, nullptr);
  });
  std::memcpy(out, few_out_.data(), count * static_cast<std::size_t>(dims_.config.d_output) * 4);
}

}  // namespace exphil::cuda
