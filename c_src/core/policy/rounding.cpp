#include "core/policy/rounding.hpp"

#include <string>

#include "core/hash.hpp"

namespace exphil::core {

namespace {

using Values = std::vector<float>;

class Rounding {
 public:
  Rounding(PolicyWeights* weights, Precision precision)
      : w_(*weights), c_(weights->config), precision_(precision) {}

  void run() {
    round(&w_.input_proj, c_.d_input, "input_proj");
    for (std::size_t i = 0; i < w_.layers.size(); ++i) layer(&w_.layers[i], std::to_string(i));
    last();
  }

 private:
  void round(Values* matrix, std::int64_t columns, const std::string& name) {
    round_rows(precision_, columns, name, matrix);
  }

  void layer(PolicyLayerWeights* layer, const std::string& index) {
    const auto name = [&](const char* matrix) { return "layer " + index + "'s " + matrix; };
    fold(layer->norm, layer->norm_bias, &layer->in_proj, &layer->in_proj_bias);
    reset(&layer->norm, &layer->norm_bias);
    round(&layer->in_proj, c_.d_model, name("in_proj"));
    round(&layer->x_proj, c_.d_inner, name("x_proj"));
    round(&layer->dt_proj, c_.dt_rank, name("dt_proj"));
    round(&layer->out_proj, c_.d_inner, name("out_proj"));
  }

  // What reads the final hidden state, and the rest of the heads.
  void last() {
    if (c_.spec.final_norm) {
      if (w_.heads.empty() && w_.head.empty()) identity_head();
      if (w_.heads.empty()) fold(w_.norm_f, w_.norm_f_bias, &w_.head, &w_.head_bias);
      for (PolicyHead& head : w_.heads) fold(w_.norm_f, w_.norm_f_bias, &head.hidden, &head.hidden_bias);
      reset(&w_.norm_f, &w_.norm_f_bias);
    }
    round(&w_.head, c_.d_model, "head");
    for (std::size_t i = 0; i < w_.heads.size(); ++i) {
      const std::string name = "head " + std::to_string(i);
      round(&w_.heads[i].hidden, c_.d_model, name + "'s hidden layer");
      round(&w_.heads[i].out, w_.heads[i].width(), name);
    }
  }

  // A final norm without a head has no matrix that could take its weight.
  void identity_head() {
    const auto n = static_cast<std::size_t>(c_.d_model);
    w_.head.assign(n * n, 0.0f);
    for (std::size_t i = 0; i < n; ++i) w_.head[i * n + i] = 1.0f;
  }

  // bias += matrix norm_bias; matrix *= norm, column by column.
  static void fold(const Values& norm, const Values& norm_bias, Values* matrix, Values* bias) {
    const std::size_t columns = norm.size(), rows = matrix->size() / columns;
    if (!norm_bias.empty()) bias->resize(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      float* const values = matrix->data() + row * columns;
      double sum = 0;
      for (std::size_t k = 0; k < columns; ++k) {
        if (!norm_bias.empty()) sum += static_cast<double>(values[k]) * static_cast<double>(norm_bias[k]);
        values[k] *= norm[k];
      }
      if (!norm_bias.empty()) (*bias)[row] = static_cast<float>(static_cast<double>((*bias)[row]) + sum);
    }
  }

  static void reset(Values* norm, Values* norm_bias) {
    norm->assign(norm->size(), 1.0f);
    norm_bias->assign(norm_bias->size(), 0.0f);
  }

  PolicyWeights& w_;
  const PolicyConfig& c_;
  const Precision precision_;
};

}  // namespace

PolicyWeights rounded_weights(const PolicyWeights& weights, Precision precision) {
  PolicyWeights rounded = weights;
  if (precision == Precision::f32) return rounded;
  rounded.config.precision = precision;
  HashedParts parts;
  parts.add(hex(weights.fingerprint));
  parts.add(precision_name(precision));
  rounded.fingerprint = parts.hash64();
  rounded.parameters.clear();
  Rounding(&rounded, precision).run();
  return rounded;
}

}  // namespace exphil::core
