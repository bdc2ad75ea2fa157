#include "core/trunk/deltanet/deltanet.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/trunk/deltanet/initial.hpp"
#include "core/trunk/edifice_loader.hpp"

namespace exphil::core::deltanet {

namespace {

constexpr double kKeyEpsilon = 1e-6;  // added to the sum of a key's squares

class Loader : private EdificeLoader {
 public:
  Loader(const Checkpoint& file, const PolicyLoadOptions& options)
      : EdificeLoader(file, options, "gated_delta_net_", 1e-5f, kName) {
    const std::optional<std::int64_t> in_file = stated_.count("num_heads");
    heads_are_stated_ = in_file.has_value();
    head_count_ = agree(in_file, option(options), ":num_heads").value_or(kDefaultHeads);
  }

  PolicyWeights load() {
    infer();
    vectors();
    input();
    for (std::int64_t i = 0; i < layers_; ++i) b_.state("s", i, units_, units_ / head_count_);
    for (std::int64_t i = 0; i < layers_; ++i) b_.state("conv", i, units_, taps_ - 1);
    for (std::int64_t i = 0; i < layers_; ++i) layer(i);
    output("final_norm");
    PolicyConfig made = config(kName);
    made.state_signature = {layers_, units_, head_count_, taps_};
    made.facts.emplace_back("num_heads", head_count_);
    made.facts.emplace_back("d_conv", taps_);
    made.identity.push_back(std::to_string(head_count_));
    return read(std::move(made), fixed_);
  }

 private:
  static std::optional<std::int64_t> option(const PolicyLoadOptions& options) {
    std::optional<std::int64_t> heads;
    for (const auto& [name, value] : options.trunk) {
      const auto* const count = std::get_if<std::int64_t>(&value);
      if (name != "num_heads" || count == nullptr) {
        fail(ErrorKind::invalid_argument, ":" + name, ":", name, " is not an option of a policy of ", kName);
      }
      heads = *count;
    }
    return heads;
  }

  void infer() {
    const std::string first = layer_name(0), projection = first + "_qkvbag_proj.kernel",
                      conv = first + "_short_conv.kernel";
    require_short_conv(first);
    units_ = reader_.shape(projection, 2, "{units, 6 units}")[0];
    require_limit(units_, kMaxDim, "the number of units", projection);
    taps_ = reader_.shape(conv, 3, "{taps, 1, units}")[0];
    require_limit(taps_, kMaxTaps, "the number of taps", conv);
    infer_ends();
    if (head_count_ > 0 && units_ % head_count_ == 0) return;
    const std::string wrong = std::to_string(head_count_) + " heads do not divide the " +
                              std::to_string(units_) + " units of a layer";
    if (heads_are_stated_) bad_checkpoint(wrong);
    fail(ErrorKind::invalid_argument, ":num_heads", wrong, "; pass num_heads: as it was trained");
  }

  // Edifice builds a layer without it where use_short_conv: false says so.
  void require_short_conv(const std::string& layer) const {
    const bool is_there = has_prefix(tensors_, layer + "_short_conv.");
    if (is_there && stated_.option("use_short_conv") != "false") return;
    if (!is_there && !has_prefix(tensors_, layer + "_")) return;  // no layer at all: its own error
    bad_checkpoint(file_.name(), " has a ", kName, " with use_short_conv: false, which is not read: ",
                   is_there ? "its build options say so"
                            : "its layers have no tensor " + quote(layer + "_short_conv.kernel"));
  }

  void vectors() {
    n_.frame = b_.vector("frame", d_input_), n_.hidden = b_.vector("hidden", units_);
    normed_ = b_.vector("normed", units_), u_ = b_.vector("u", units_);
    q_ = b_.vector("q", units_), k_ = b_.vector("k", units_), v_ = b_.vector("v", units_);
    beta_ = b_.vector("beta", units_), alpha_ = b_.vector("alpha", units_), gate_ = b_.vector("gate", units_);
    key_ = b_.vector("key", units_), rate_ = b_.vector("rate", units_);
    decays_ = b_.vector("decays", units_), decay_ = b_.vector("decay", head_count_);
    y_ = b_.vector("y", units_), gated_ = b_.vector("gated", units_);
  }
  Span all(VectorId id) const { return b_.all(id); }

  void layer(std::int64_t index) {
    const std::string of = layer_name(index);
    Block block = {norm(of + "_norm", all(n_.hidden), all(normed_)), convolution(index)};
    const Product products =
        b_.split_product(all(u_), {all(q_), all(k_), all(v_), all(beta_), all(alpha_), all(gate_)},
                         of + "_qkvbag_proj", true, &block);
    parameters_.add(of + "_qkvbag_proj.kernel", {units_, 6 * units_}, "{units, 6 units}", products.weight);
    parameters_.add(of + "_qkvbag_proj.bias", {6 * units_}, "{6 units}", products.bias);
    block.emplace_back(key_norm(of));
    block.emplace_back(Sigmoid{all(beta_), all(rate_)});
    block.emplace_back(Sigmoid{all(alpha_), all(decays_)});
    block.emplace_back(Mean{all(decays_), all(decay_)});
    HeadRecurrence heads;
    heads.rule = formulas::HeadRule::delta, heads.groups = head_count_;
    heads.value = all(v_), heads.key = all(key_), heads.query = all(q_), heads.rate = all(rate_);
    heads.decay = all(decay_), heads.out = all(y_), heads.state = static_cast<StateId>(index);
    block.emplace_back(heads);
    block.emplace_back(Gate{all(y_), all(gate_), all(gated_)});
    Product out = dense(of + "_out_proj", all(gated_), all(n_.hidden));
    out.adds = true;
    block.emplace_back(out);
    n_.layers.push_back(std::move(block));
  }

  Convolution convolution(std::int64_t index) {
    const std::string of = layer_name(index) + "_short_conv";
    Convolution conv{all(normed_), all(u_)};
    conv.weight = b_.weight(of, units_, taps_), conv.bias = b_.weight(of + "'s bias", 1, units_);
    conv.taps = taps_, conv.state = static_cast<StateId>(layers_ + index);
    parameters_.add(of + ".kernel", {taps_, 1, units_}, "{taps, 1, units}", conv.weight);
    parameters_.add(of + ".bias", {units_}, "{units}", conv.bias);
    return conv;
  }

  // k / sqrt(sum k^2 + epsilon) of each head, by the mean instead of the sum.
  Norm key_norm(const std::string& of) {
    const auto size = static_cast<double>(units_ / head_count_);
    Norm made = b_.norm(all(k_), all(key_), of + "'s length of k", NormKind::rms,
                        static_cast<float>(kKeyEpsilon / size), false);
    made.parts = head_count_;
    fixed_.emplace_back(made.weight, static_cast<float>(1.0 / std::sqrt(size)));
    return made;
  }

  bool heads_are_stated_ = false;
  std::int64_t head_count_ = 0, taps_ = 0;
  std::vector<std::pair<WeightId, float>> fixed_;
  VectorId normed_ = kNone, u_ = kNone, q_ = kNone, k_ = kNone, v_ = kNone, beta_ = kNone, alpha_ = kNone;
  VectorId gate_ = kNone, key_ = kNone, rate_ = kNone, decays_ = kNone, decay_ = kNone, y_ = kNone,
           gated_ = kNone;
};

PolicyWeights load(const Checkpoint& file, const PolicyLoadOptions& options) {
  return Loader(file, options).load();
}

}  // namespace

Trunk trunk() {
  return {kName, {kName}, {kName}, [](const TensorMap&) { return false; }, load, initial_weights};
}

}  // namespace exphil::core::deltanet
