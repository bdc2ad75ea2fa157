#include "host/policy/forward.hpp"

#include <algorithm>
#include <thread>

#include "core/background.hpp"
#include "host/policy/layer_kernels.hpp"
#include "host/recurrence/tile.hpp"

namespace exphil::host {

namespace {

constexpr std::int64_t kPhasesPerLayer = 6, kPhasesOutside = 7;

}  // namespace

StateLayout::StateLayout(const core::PolicyConfig& config)
    : ssm(padded(config.d_inner) * config.d_state),
      conv(padded(config.d_inner) * (config.d_conv - 1)),
      layers(config.n_layer) {}

Workspace::Workspace(const PackedWeights& weights, int lanes)
    : team(kPhasesOutside + weights.config().n_layer * kPhasesPerLayer) {
  const core::PolicyConfig& c = weights.config();
  const std::int64_t model = kPassRows * padded(c.d_model), inner = kPassRows * padded(c.d_inner);
  const std::int64_t projection = kPassRows * padded(c.dt_rank + 2 * c.d_state);
  const std::int64_t outputs = kPassRows * padded(c.d_output);
  const std::int64_t hidden_outs = kPassRows * padded(weights.heads_hidden().outs);
  const std::int64_t lane_norm = kFewRows * padded(c.d_model);
  const std::int64_t scratch = padded(scan_scratch_floats(weights.rule()));
  const StateLayout layout(c);
  arena_ = AlignedBuffer(2 * model + 4 * inner + projection + hidden_outs + outputs + layout.floats() +
                         lanes * (lane_norm + scratch));
  float* at = arena_.data();
  const auto take = [&at](std::int64_t floats) {
    float* taken = at;
    at += floats;
    return taken;
  };
  hidden = take(model), norm = take(model);
  x = take(inner), conv = take(inner), z = take(inner), dt = take(inner);
  projected = take(projection), head_hidden = take(hidden_outs), head = take(outputs);
  state = take(layout.floats());
  for (int i = 0; i < lanes; ++i) {
    float* const lane = take(lane_norm);
    lanes_.push_back({lane, take(scratch)});
  }
}

void Workspace::begin() {
  taken_.store(0, std::memory_order_relaxed);
  team.begin();
}

// A lane that runs again because no helper was available does so after the others have ended.
Workspace::Lane Workspace::next_lane() {
  return lanes_[taken_.fetch_add(1, std::memory_order_relaxed) % lanes_.size()];
}

namespace {

// One lane's part of a pass.
class Forward {
 public:
  Forward(const PackedWeights& weights, const Pass& pass, Workspace& work, int side)
      : weights_(weights),
        config_(weights.config()),
        layout_(config_),
        pass_(pass),
        work_(work),
        rows_(pass.agents * pass.frames),
        hidden_step_(padded(config_.d_model)),
        inner_step_(padded(config_.d_inner)),
        projected_step_(padded(config_.dt_rank + 2 * config_.d_state)),
        lane_(work.next_lane()),
        side_(side) {}

  void run() {
    if (pass_.fresh.count > 0) run_front(pass_.fresh);
    if (rows_ == 0) return;
    if (pass_.front.hidden != nullptr) {
      phase(rows_, 16, [this](std::int64_t begin, std::int64_t end) {
        std::copy(pass_.front.hidden + begin * hidden_step_, pass_.front.hidden + end * hidden_step_,
                  work_.hidden + begin * hidden_step_);
      });
    } else {
      phase(panels(config_.d_model), 2, [this](std::int64_t begin, std::int64_t end) {
        project_input(pass_.obs, rows_, work_.hidden, begin, end);
      });
    }
    for (std::int64_t layer = 0; layer < config_.n_layer; ++layer) {
      // Only the last layer may skip rows: the rows of earlier layers feed the state.
      run_layer(layer, layer + 1 == config_.n_layer ? pass_.first_output : 0);
    }
    if (pass_.first_output < pass_.frames) run_head();
  }

 private:
  template <class Body>
  void phase(std::int64_t count, std::int64_t grain, const Body& body) {
    if (pass_.lanes == 1) return core::in_stretches(count, grain, body);
    work_.team.run(phase_++, side_, count, grain, body);
  }

  // Panels [begin, end) of the first layer's input. Without input projection that is the frame; padding stays
  // zero.
  void project_input(const float* obs, std::int64_t rows, float* hidden, std::int64_t begin,
                     std::int64_t end) const {
    if (config_.spec.input_projection) {
      return multiply(weights_.input_proj(), obs, config_.d_input, rows, {hidden, hidden_step_},
                      Epilogue::store, begin, end);
    }
    const std::int64_t from = begin * kPanel, to = std::min(end * kPanel, config_.d_model);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* frame = obs + row * config_.d_input;
      std::copy(frame + from, frame + to, hidden + row * hidden_step_ + from);
    }
  }

  // What does not depend on where a window starts.
  void run_front(const FreshFrames& fresh) {
    phase(panels(config_.d_model), 2, [&](std::int64_t begin, std::int64_t end) {
      project_input(fresh.obs, fresh.count, fresh.to.hidden, begin, end);
      copy_to_twin(fresh, fresh.to.hidden, hidden_step_, begin, end);
    });
    const PackedLayer& layer = weights_.layers().front();
    normalize_many(layer.norm, fresh.to.hidden, fresh.count);
    phase(panels(config_.d_inner), 4, [&](std::int64_t begin, std::int64_t end) {
      const float* norm = normalized(layer.norm, fresh.to.hidden, fresh.count);
      const auto half = [&](const PackedMatrix& matrix, float* to) {
        multiply(matrix, norm, hidden_step_, fresh.count, {to, inner_step_}, Epilogue::store, begin, end);
        copy_to_twin(fresh, to, inner_step_, begin, end);
      };
      half(layer.in_x, fresh.to.x);
      half(layer.in_z, fresh.to.z);
    });
  }

  static void copy_to_twin(const FreshFrames& fresh, float* rows, std::int64_t step, std::int64_t begin,
                           std::int64_t end) {
    for (std::int64_t row = 0; row < fresh.count; ++row) {
      const float* from = rows + row * step;
      std::copy(from + begin * kPanel, from + end * kPanel,
                rows + (row + fresh.twin) * step + begin * kPanel);
    }
  }

  // The norm of every row of `hidden`. Many rows are split over the lanes here; few are normalised by each
  // lane where it needs them.
  void normalize_many(const Norm& norm, const float* hidden, std::int64_t rows) {
    if (rows <= kFewRows) return;
    phase(rows, 8, [=, &norm](std::int64_t begin, std::int64_t end) {
      normalize_rows(norm, hidden + begin * hidden_step_, end - begin, work_.norm + begin * hidden_step_);
    });
  }

  const float* normalized(const Norm& norm, const float* hidden, std::int64_t rows) {
    if (rows > kFewRows) return work_.norm;
    if (normalized_with_ != norm.weight) normalize_rows(norm, hidden, rows, lane_.norm);
    normalized_with_ = norm.weight;
    return lane_.norm;
  }

  void normalize_rows(const Norm& norm, const float* hidden, std::int64_t rows, float* to) const {
    normalize(norm, hidden, config_.d_model, config_.norm_epsilon, rows, to);
  }

  // The rows of the first layer come from the ring, if there is one.
  bool from_ring(std::int64_t layer) const { return layer == 0 && pass_.front.hidden != nullptr; }

  void run_layer(std::int64_t index, std::int64_t first) {
    const PackedLayer& layer = weights_.layers()[static_cast<std::size_t>(index)];
    const std::int64_t blocks = panels(config_.d_inner);
    if (!from_ring(index)) normalize_many(layer.norm, work_.hidden, rows_);
    phase(blocks, 4, [&](std::int64_t begin, std::int64_t end) {
      if (from_ring(index)) return convolution(index, layer, begin, end);
      const float* norm = normalized(layer.norm, work_.hidden, rows_);
      multiply(layer.in_x, norm, hidden_step_, rows_, {work_.x, inner_step_}, Epilogue::store, begin, end);
      convolution(index, layer, begin, end);
      product_from(first, layer.in_z, norm, hidden_step_, {work_.z, inner_step_}, Epilogue::store, begin,
                   end);
    });
    project(layer);
    const bool by_mean = config_.spec.input_dt == core::InputDt::mean;
    if (by_mean) {
      phase(blocks, 4, [&](std::int64_t begin, std::int64_t end) {
        project_dt(layer, begin, end);
        activate_dt(work_.dt, layer.dt_bias, {config_.spec.dt_min, config_.spec.dt_max}, rows_, inner_step_,
                    begin, end);
      });
      // Every lane needs the mean of every row; recomputing it costs less than a barrier.
      for (std::int64_t row = 0; row < rows_; ++row) {
        mean_dt_[row] = mean_of(work_.dt + row * inner_step_, config_.d_inner);
      }
    }
    phase(blocks, 4, [&](std::int64_t begin, std::int64_t end) {
      if (!by_mean) project_dt(layer, begin, end);
      for (std::int64_t agent = 0; agent < pass_.agents; ++agent) {
        if (float* const from = other_source(agent)) {
          const std::int64_t block = kPanel * config_.d_state;
          std::copy(layout_.ssm_of(from, index) + begin * block, layout_.ssm_of(from, index) + end * block,
                    layout_.ssm_of(pass_.states[agent], index) + begin * block);
        }
        scan(index, layer, agent, 0, first, false, begin, end);
        scan(index, layer, agent, first, pass_.frames, true, begin, end);
      }
    });
    phase(panels(config_.d_model), 2, [&](std::int64_t begin, std::int64_t end) {
      product_from(first, layer.out_proj, work_.conv, inner_step_, {work_.hidden, hidden_step_},
                   Epilogue::add, begin, end);
    });
  }

  void project_dt(const PackedLayer& layer, std::int64_t begin, std::int64_t end) const {
    multiply(layer.dt_proj, work_.projected, projected_step_, rows_, {work_.dt, inner_step_}, Epilogue::store,
             begin, end);
  }

  // dt, B and C of every row: a narrow product, split by rows where there are many and by outputs otherwise.
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

  // A product that skips the first rows of each agent, whose results are unused. Rows are skipped for one
  // agent only, where they are half of a window's last layer.
  void product_from(std::int64_t first, const PackedMatrix& matrix, const float* x, std::int64_t x_step,
                    MatrixRows y, Epilogue epilogue, std::int64_t begin, std::int64_t end) const {
    const std::int64_t skip = pass_.agents == 1 ? first : 0;
    multiply(matrix, x + skip * x_step, x_step, rows_ - skip, {y.data + skip * y.step, y.step}, epilogue,
             begin, end);
  }

  // The state that the agent's state is copied from, part by part where each part is about to be used; null
  // where it is advanced in place.
  float* other_source(std::int64_t agent) const {
    if (pass_.from == nullptr || pass_.from[agent] == pass_.states[agent]) return nullptr;
    return pass_.from[agent];
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
      if (float* const from = other_source(agent)) {
        for (std::int64_t kept = 0; kept + 1 < config_.d_conv; ++kept) {
          const float* const values = layout_.conv_of(from, index) + kept * inner_step_;
          std::copy(values + begin * kPanel, values + end * kPanel,
                    convolution.history + kept * inner_step_ + begin * kPanel);
        }
      }
      convolution.x = (from_ring(index) ? pass_.front.x : work_.x) + row * inner_step_;
      convolution.out = work_.conv + row * inner_step_;
      convolve(convolution, begin, end);
    }
  }

  // Steps [from, to) of one agent. y overwrites x, row by row: x is not read again.
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
      sequence.z = {(from_ring(index) ? pass_.front.z : work_.z) + row * inner_step_, inner_step_};
      sequence.y = x;
      sequence.y_step = inner_step_;
    }
    sequence.b = {b, projected_step_, 1, false};
    sequence.c = {b + config_.d_state, projected_step_, 1, false};
    sequence.a_bounds = layer.a_bounds;
    sequence.a_panels = layer.a;
    sequence.d = layer.d;
    sequence.decays_input = pass_.decays_input;
    if (config_.spec.input_dt == core::InputDt::mean) {
      sequence.input_dt = mean_dt_ + row;
    } else {
      sequence.dt_bias = layer.dt_bias;
    }
    sequence.h_panels = layout_.ssm_of(pass_.states[agent], index);
    scan_channels(weights_.rule(), sequence, begin, end, lane_.scan);
  }

  void run_head() {
    const std::int64_t first = pass_.first_output;
    const PackedMatrix& two_layers = weights_.heads_hidden();
    const std::int64_t heads_step = padded(two_layers.outs);
    if (config_.spec.final_norm) normalize_many(weights_.norm_f(), work_.hidden, rows_);
    const auto final_state = [&] {
      return config_.spec.final_norm ? normalized(weights_.norm_f(), work_.hidden, rows_) : work_.hidden;
    };
    if (two_layers.outs > 0) {
      phase(panels(two_layers.outs), 1, [&](std::int64_t begin, std::int64_t end) {
        product_from(first, two_layers, final_state(), hidden_step_, {work_.head_hidden, heads_step},
                     Epilogue::store, begin, end);
        const std::int64_t skip = pass_.agents == 1 ? first : 0;
        relu(work_.head_hidden + skip * heads_step, rows_ - skip, heads_step, begin, end);
      });
    }
    const bool bare = weights_.head().outs == 0;
    const std::int64_t head_step = padded(config_.d_output);
    phase(panels(config_.d_output), 1, [&](std::int64_t begin, std::int64_t end) {
      const float* from_rows = bare ? final_state() : work_.head;
      if (!bare) {
        const bool deep = two_layers.outs > 0;
        product_from(first, weights_.head(), deep ? work_.head_hidden : final_state(),
                     deep ? heads_step : hidden_step_, {work_.head, head_step}, Epilogue::store, begin, end);
      }
      const std::int64_t from = begin * kPanel, to = std::min(end * kPanel, config_.d_output);
      float* out = pass_.out;
      for (std::int64_t agent = 0; agent < pass_.agents; ++agent) {
        for (std::int64_t t = first; t < pass_.frames; ++t, out += config_.d_output) {
          const float* row = from_rows + (agent * pass_.frames + t) * head_step;
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
  const Workspace::Lane lane_;
  const int side_;
  const float* normalized_with_ = nullptr;
  float mean_dt_[kPassRows];  // of the current layer
  std::int64_t phase_ = 0;
};

}  // namespace

void forward(const PackedWeights& weights, const Pass& pass, Workspace& work) noexcept {
  work.begin();
  if (pass.lanes == 1) return Forward(weights, pass, work, pass.side).run();
  const std::thread::id caller = std::this_thread::get_id();
  const auto lane = [&] {
    const bool own = std::this_thread::get_id() == caller;
    Forward(weights, pass, work, own ? pass.side : 1 - pass.side).run();
  };
  if (pass.shared == nullptr || !pass.shared->run(lane)) with_helpers(pass.lanes, lane);
}

}  // namespace exphil::host
