#include "host/model_forward.hpp"

#include <algorithm>
#include <functional>

#include "core/parallel.hpp"
#include "host/layer_kernels.hpp"
#include "host/scan_tile.hpp"

namespace exphil::host {

StateLayout::StateLayout(const core::MambaConfig& config)
    : ssm(padded(config.d_inner) * config.d_state),
      conv(padded(config.d_inner) * (config.d_conv - 1)),
      layers(config.n_layer) {}

Workspace::Workspace(const PackedWeights& weights) {
  const core::MambaConfig& c = weights.config();
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

class Forward {
 public:
  Forward(const PackedWeights& weights, const Pass& pass, Workspace& work)
      : weights_(weights),
        config_(weights.config()),
        layout_(config_),
        pass_(pass),
        work_(work),
        rows_(pass.agents * pass.frames),
        model_step_(padded(config_.d_model)),
        inner_step_(padded(config_.d_inner)),
        projected_step_(padded(config_.dt_rank + 2 * config_.d_state)) {}

  void run() {
    product(weights_.input_proj(), pass_.obs, config_.d_input, {work_.hidden, model_step_}, Epilogue::store);
    for (std::int64_t layer = 0; layer < config_.n_layer; ++layer) {
      // Only the last layer may leave out rows: those before it feed the state.
      run_layer(layer, layer + 1 == config_.n_layer ? pass_.first_output : 0);
    }
    if (pass_.first_output < pass_.frames) write_outputs();
  }

 private:
  // Runs body over [0, count): cut among threads where the pass asks for it, else in one piece.
  template <class Body>
  void spread(std::int64_t count, std::int64_t grain, const Body& body) {
    if (!pass_.parallel) return body(0, count);
    core::parallel_for(count, grain, body);
  }

  void product(const PackedMatrix& matrix, const float* x, std::int64_t x_step, MatrixRows y,
               Epilogue epilogue) {
    spread(panels(matrix.outs), 4, [&](std::int64_t begin, std::int64_t end) {
      multiply(matrix, x, x_step, rows_, y, epilogue, begin, end);
    });
  }

  void run_layer(std::int64_t index, std::int64_t first) {
    const PackedLayer& layer = weights_.layers()[static_cast<std::size_t>(index)];
    spread(rows_, 8, [&](std::int64_t begin, std::int64_t end) {
      rms_norm(work_.hidden + begin * model_step_, layer.norm, config_.d_model, config_.norm_epsilon,
               end - begin, work_.norm + begin * model_step_);
    });
    spread(panels(config_.d_inner), 4, [&](std::int64_t begin, std::int64_t end) {
      multiply(layer.in_x, work_.norm, model_step_, rows_, {work_.x, inner_step_}, Epilogue::store, begin,
               end);
      convolution(index, layer, begin, end);
      skipping_product(layer.in_z, work_.norm, model_step_, {work_.z, inner_step_}, first, Epilogue::store,
                       begin, end);
    });
    spread(rows_, 8, [&](std::int64_t begin, std::int64_t end) {
      multiply(layer.x_proj, work_.conv + begin * inner_step_, inner_step_, end - begin,
               {work_.projected + begin * projected_step_, projected_step_}, Epilogue::store, 0,
               panels(layer.x_proj.outs));
    });
    spread(panels(config_.d_inner), 4, [&](std::int64_t begin, std::int64_t end) {
      multiply(layer.dt_proj, work_.projected, projected_step_, rows_, {work_.dt, inner_step_},
               Epilogue::store, begin, end);
      for (std::int64_t agent = 0; agent < pass_.agents; ++agent) {
        scan(index, layer, agent, 0, first, false, begin, end);
        scan(index, layer, agent, first, pass_.frames, true, begin, end);
      }
    });
    spread(panels(config_.d_model), 2, [&](std::int64_t begin, std::int64_t end) {
      skipping_product(layer.out_proj, work_.conv, inner_step_, {work_.hidden, model_step_}, first,
                       Epilogue::add, begin, end);
    });
  }

  // A product whose first rows nobody reads. They are left out for one agent, where it is half of a window's
  // last layer.
  void skipping_product(const PackedMatrix& matrix, const float* x, std::int64_t x_step, MatrixRows y,
                        std::int64_t first, Epilogue epilogue, std::int64_t begin, std::int64_t end) {
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
    scan_channels(weights_.rule(), sequence, begin, end, scan_scratch());
  }

  // The workspace's for the calling thread; a worker thread of a parallel pass has its own.
  float* scan_scratch() {
    if (!pass_.parallel) return work_.scan;
    static thread_local AlignedBuffer scratch;
    scratch.reserve(scan_scratch_floats(weights_.rule()));
    return scratch.data();
  }

  void write_outputs() {
    const std::int64_t head_step = padded(config_.d_output), kept = pass_.frames - pass_.first_output;
    float* out = pass_.out;
    for (std::int64_t agent = 0; agent < pass_.agents; ++agent) {
      const std::int64_t row = agent * pass_.frames + pass_.first_output;
      rms_norm(work_.hidden + row * model_step_, weights_.norm_f(), config_.d_model, config_.norm_epsilon,
               kept, work_.norm + row * model_step_);
    }
    const std::int64_t first = pass_.agents == 1 ? pass_.first_output : 0;
    multiply(weights_.head(), work_.norm + first * model_step_, model_step_, rows_ - first,
             {work_.head + first * head_step, head_step}, Epilogue::store, 0, panels(config_.d_output));
    for (std::int64_t agent = 0; agent < pass_.agents; ++agent) {
      for (std::int64_t t = pass_.first_output; t < pass_.frames; ++t, out += config_.d_output) {
        const float* from = work_.head + (agent * pass_.frames + t) * head_step;
        std::copy(from, from + config_.d_output, out);
      }
    }
  }

  const PackedWeights& weights_;
  const core::MambaConfig& config_;
  const StateLayout layout_;
  const Pass& pass_;
  Workspace& work_;
  const std::int64_t rows_, model_step_, inner_step_, projected_step_;
};

}  // namespace

void forward(const PackedWeights& weights, const Pass& pass, Workspace& work) {
  Forward(weights, pass, work).run();
}

}  // namespace exphil::host
