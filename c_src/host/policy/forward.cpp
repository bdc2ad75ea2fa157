#include "host/policy/forward.hpp"

#include <algorithm>

#include "core/parallel.hpp"
#include "host/policy/layer_kernels.hpp"
#include "host/recurrence/tile.hpp"

namespace exphil::host {

namespace {

// Up to this many rows each lane normalises for itself: it takes less time than another meeting.
constexpr std::int64_t kFewRows = 4;

constexpr std::int64_t kPhasesPerLayer = 5, kPhasesOutside = 3;

}  // namespace

StateLayout::StateLayout(const core::PolicyConfig& config)
    : ssm(padded(config.d_inner) * config.d_state),
      conv(padded(config.d_inner) * (config.d_conv - 1)),
      layers(config.n_layer) {}

Workspace::Workspace(const PackedWeights& weights)
    : team(kPhasesOutside + weights.config().n_layer * kPhasesPerLayer) {
  const core::PolicyConfig& c = weights.config();
  const std::int64_t model = kPassRows * padded(c.d_model), inner = kPassRows * padded(c.d_inner);
  const std::int64_t projection = kPassRows * padded(c.dt_rank + 2 * c.d_state);
  const std::int64_t outputs = kPassRows * padded(c.d_output);
  const std::int64_t scratch = scan_scratch_floats(weights.rule());
  const StateLayout layout(c);
  arena_ = AlignedBuffer(2 * model + 4 * inner + projection + outputs + scratch + layout.floats());
  float* at = arena_.data();
  const auto take = [&at](std::int64_t floats) {
    float* taken = at;
    at += floats;
    return taken;
  };
  hidden = take(model), norm = take(model);
  x = take(inner), conv = take(inner), z = take(inner), dt = take(inner);
  projected = take(projection), head = take(outputs);
  scan = take(scratch), state = take(layout.floats());
}

namespace {

// One lane's walk through a pass.
class Forward {
 public:
  Forward(const PackedWeights& weights, const Pass& pass, Workspace& work)
      : weights_(weights),
        config_(weights.config()),
        layout_(config_),
        pass_(pass),
        work_(work),
        rows_(pass.agents * pass.frames),
        hidden_step_(padded(config_.d_model)),
        inner_step_(padded(config_.d_inner)),
        projected_step_(padded(config_.dt_rank + 2 * config_.d_state)),
        own_norm_(work.norm),
        scan_scratch_(work.scan) {
    if (pass_.lanes == 1) return;
    // All that may throw comes before the first phase.
    static thread_local AlignedBuffer scratch;
    scratch.reserve(kFewRows * hidden_step_ + scan_scratch_floats(weights_.rule()));
    own_norm_ = scratch.data();
    scan_scratch_ = scratch.data() + kFewRows * hidden_step_;
  }

  void run() {
    phase(panels(config_.d_model), 2, [this](std::int64_t begin, std::int64_t end) {
      multiply(weights_.input_proj(), pass_.obs, config_.d_input, rows_, {work_.hidden, hidden_step_},
               Epilogue::store, begin, end);
    });
    for (std::int64_t layer = 0; layer < config_.n_layer; ++layer) {
      // Only the last layer may leave out rows: those before it feed the state.
      run_layer(layer, layer + 1 == config_.n_layer ? pass_.first_output : 0);
    }
    if (pass_.first_output < pass_.frames) run_head();
  }

 private:
  template <class Body>
  void phase(std::int64_t count, std::int64_t grain, const Body& body) {
    if (pass_.lanes == 1) return body(0, count);
    work_.team.run(phase_++, count, grain, body);
  }

  // rms_norm of every row of `hidden`. Many rows are shared out here; few are normalised by each lane where
  // it first needs them.
  void normalize_many(const float* weight) {
    if (rows_ <= kFewRows) return;
    phase(rows_, 8, [this, weight](std::int64_t begin, std::int64_t end) {
      normalize(weight, begin, end, work_.norm + begin * hidden_step_);
    });
  }

  const float* normalized(const float* weight) {
    if (rows_ > kFewRows) return work_.norm;
    if (normalized_with_ != weight) normalize(weight, 0, rows_, own_norm_);
    normalized_with_ = weight;
    return own_norm_;
  }

  void normalize(const float* weight, std::int64_t begin, std::int64_t end, float* to) const {
    rms_norm(work_.hidden + begin * hidden_step_, weight, config_.d_model, config_.norm_epsilon, end - begin,
             to);
  }

  void run_layer(std::int64_t index, std::int64_t first) {
    const PackedLayer& layer = weights_.layers()[static_cast<std::size_t>(index)];
    const std::int64_t blocks = panels(config_.d_inner);
    normalize_many(layer.norm);
    phase(blocks, 4, [&](std::int64_t begin, std::int64_t end) {
      const float* norm = normalized(layer.norm);
      multiply(layer.in_x, norm, hidden_step_, rows_, {work_.x, inner_step_}, Epilogue::store, begin, end);
      convolution(index, layer, begin, end);
      product_from(first, layer.in_z, norm, hidden_step_, {work_.z, inner_step_}, Epilogue::store, begin,
                   end);
    });
    project(layer);
    phase(blocks, 4, [&](std::int64_t begin, std::int64_t end) {
      multiply(layer.dt_proj, work_.projected, projected_step_, rows_, {work_.dt, inner_step_},
               Epilogue::store, begin, end);
      for (std::int64_t agent = 0; agent < pass_.agents; ++agent) {
        scan(index, layer, agent, 0, first, false, begin, end);
        scan(index, layer, agent, first, pass_.frames, true, begin, end);
      }
    });
    phase(panels(config_.d_model), 2, [&](std::int64_t begin, std::int64_t end) {
      product_from(first, layer.out_proj, work_.conv, inner_step_, {work_.hidden, hidden_step_},
                   Epilogue::add, begin, end);
    });
  }

  // dt, B and C of every row: a narrow product, cut by rows where there are many and by outputs else.
  void project(const PackedLayer& layer) {
    const std::int64_t outs = panels(layer.x_proj.outs);
    const auto rows = [&](std::int64_t first, std::int64_t count, std::int64_t begin, std::int64_t end) {
      multiply(layer.x_proj, work_.conv + first * inner_step_, inner_step_, count,
               {work_.projected + first * projected_step_, projected_step_}, Epilogue::store, begin, end);
    };
    if (rows_ <= kFewRows) {
      phase(outs, 1, [&](std::int64_t begin, std::int64_t end) { rows(0, rows_, begin, end); });
    } else {
      phase(rows_, 8, [&](std::int64_t begin, std::int64_t end) { rows(begin, end - begin, 0, outs); });
    }
  }

  // A product whose first rows of each agent nobody reads. They are left out for one agent, where they are
  // half of a window's last layer.
  void product_from(std::int64_t first, const PackedMatrix& matrix, const float* x, std::int64_t x_step,
                    MatrixRows y, Epilogue epilogue, std::int64_t begin, std::int64_t end) const {
    const std::int64_t skip = pass_.agents == 1 ? first : 0;
    multiply(matrix, x + skip * x_step, x_step, rows_ - skip, {y.data + skip * y.step, y.step}, epilogue,
             begin, end);
  }

  void convolution(std::int64_t index, const PackedLayer& layer, std::int64_t begin, std::int64_t end) {
    Convolution convolution;
    convolution.taps = config_.d_conv;
    convolution.step = inner_step_;
    convolution.weights = layer.conv;
    convolution.bias = layer.conv_bias;
    convolution.seq = pass_.frames;
    for (std::int64_t agent = 0; agent < pass_.agents; ++agent) {
      const std::int64_t row = agent * pass_.frames;
      convolution.history = layout_.conv_of(pass_.states[agent], index);
      convolution.x = work_.x + row * inner_step_;
      convolution.out = work_.conv + row * inner_step_;
      convolve(convolution, begin, end);
    }
  }

  // Steps [from, to) of one agent. y replaces x, row by row: nothing reads x again.
  void scan(std::int64_t index, const PackedLayer& layer, std::int64_t agent, std::int64_t from,
            std::int64_t to, bool with_output, std::int64_t begin, std::int64_t end) {
    if (from == to) return;
    const std::int64_t row = agent * pass_.frames + from;
    float* x = work_.conv + row * inner_step_;
    const float* b = work_.projected + row * projected_step_ + config_.dt_rank;
    ScanSequence sequence;
    sequence.seq = to - from;
    sequence.x = {x, inner_step_};
    sequence.dt = {work_.dt + row * inner_step_, inner_step_};
    if (with_output) {
      sequence.z = {work_.z + row * inner_step_, inner_step_};
      sequence.y = x;
      sequence.y_step = inner_step_;
    }
    sequence.b = {b, projected_step_, 1, false};
    sequence.c = {b + config_.d_state, projected_step_, 1, false};
    sequence.a_bounds = layer.a_bounds;
    sequence.a_panels = layer.a;
    sequence.d = layer.d;
    sequence.dt_bias = layer.dt_bias;
    sequence.h_panels = layout_.ssm_of(pass_.states[agent], index);
    scan_channels(weights_.rule(), sequence, begin, end, scan_scratch_);
  }

  void run_head() {
    const std::int64_t head_step = padded(config_.d_output), first = pass_.first_output;
    normalize_many(weights_.norm_f());
    phase(panels(config_.d_output), 1, [&](std::int64_t begin, std::int64_t end) {
      product_from(first, weights_.head(), normalized(weights_.norm_f()), hidden_step_,
                   {work_.head, head_step}, Epilogue::store, begin, end);
      const std::int64_t from = begin * kPanel, to = std::min(end * kPanel, config_.d_output);
      float* out = pass_.out;
      for (std::int64_t agent = 0; agent < pass_.agents; ++agent) {
        for (std::int64_t t = first; t < pass_.frames; ++t, out += config_.d_output) {
          const float* row = work_.head + (agent * pass_.frames + t) * head_step;
          std::copy(row + from, row + to, out + from);
        }
      }
    });
  }

  const PackedWeights& weights_;
  const core::PolicyConfig& config_;
  const StateLayout layout_;
  const Pass& pass_;
  Workspace& work_;
  const std::int64_t rows_, hidden_step_, inner_step_, projected_step_;
  float *own_norm_, *scan_scratch_;  // this lane's
  const float* normalized_with_ = nullptr;
  std::int64_t phase_ = 0;
};

}  // namespace

void forward(const PackedWeights& weights, const Pass& pass, Workspace& work) {
  if (pass.lanes == 1) return Forward(weights, pass, work).run();
  work.team.begin();
  const auto lane = [&weights, &pass, &work] { Forward(weights, pass, work).run(); };
  // One reference fits into a std::function without an allocation.
  core::parallel_for(pass.lanes, 1, [&lane](std::int64_t begin, std::int64_t end) {
    for (; begin < end; ++begin) lane();
  });
}

}  // namespace exphil::host
