// A lowered network as the text of its initializer, without blanks: it is an argument of a compiler.
#include <sstream>

#include "cuda/policy/lower.hpp"

namespace exphil::cuda {
namespace {

class Text {
 public:
  std::string take() const { return text_.str(); }

  template <class... Values>
  void list(const Values&... values) {
    text_ << '{';
    bool first = true;
    ((text_ << (first ? "" : ","), first = false, put(values)), ...);
    text_ << '}';
  }

 private:
  // The first elements of an array; the others are as they are without an initializer.
  template <class T>
  struct First {
    const T* values;
    int count;
  };
  template <class T, int kCount>
  static First<T> used(const T (&values)[kCount], int count) {
    return {values, count};
  }
  // So many of them are in the blocks.
  template <class T, int kCount>
  static First<T> used(const T (&values)[kCount], const policy::Network& n, policy::Kind kind) {
    int count = 0;
    for (const policy::Block* block : {&n.input, &n.layer, &n.output}) {
      for (int i = 0; i < block->count; ++i) count += block->phases[i].kind == kind ? 1 : 0;
    }
    return {values, count};
  }

  template <class T>
  void put(const First<T>& array) {
    text_ << '{';
    for (int i = 0; i < array.count; ++i) {
      text_ << (i == 0 ? "" : ",");
      put(array.values[i]);
    }
    text_ << '}';
  }
  void put(int value) { text_ << value; }
  void put(unsigned value) { text_ << value << 'u'; }
  void put(bool value) { text_ << (value ? "true" : "false"); }
  void put(policy::Stored value) { name("Stored", value, {"f32", "bf16", "f16", "int8", "tf32x3"}); }
  void put(policy::States value) { name("States", value, {"f32", "f16", "bf16"}); }
  void put(policy::Kind value) {
    name("Kind", value,
         {"product", "convolution", "mean", "scan", "cell", "heads", "gate", "angle", "rotation", "delay"});
  }
  void put(policy::Norm value) { name("Norm", value, {"none", "rms", "layer"}); }
  void put(policy::Activation value) {
    name("Activation", value, {"none", "relu", "silu", "softplus", "sigmoid"});
  }
  void put(formulas::HeadRule value) { name("formulas::HeadRule", value, {"linear", "delta", "trapezoid"}); }
  void put(formulas::Cell value) { name("formulas::Cell", value, {"gru", "lstm", "min_gru", "min_lstm"}); }
  template <class Enum>
  void name(const char* type, Enum value, std::initializer_list<const char*> names) {
    text_ << type << "::" << names.begin()[static_cast<int>(value)];
  }

  void put(const policy::Vector& v) { list(v.values, v.size); }
  void put(const policy::Output& o) { list(o.vector, o.activation, o.clips, o.lowest, o.highest); }
  void put(const policy::Phase& p) { list(p.kind, p.index); }
  void put(const policy::Block& b) { list(b.count, used(b.phases, b.count)); }
  void put(const policy::Product& p) {
    const First<policy::Output> out = used(p.out, p.outputs);
    if (p.diagonal) {
      list(p.in, p.norm, p.epsilon, p.biased, p.adds, p.is_short, p.outputs, out, p.counted, p.counted_first,
           p.diagonal);
    } else if (p.counted == 0 && p.counted_first == 0) {
      list(p.in, p.norm, p.epsilon, p.biased, p.adds, p.is_short, p.outputs, out);
    } else {
      list(p.in, p.norm, p.epsilon, p.biased, p.adds, p.is_short, p.outputs, out, p.counted, p.counted_first);
    }
  }
  void put(const policy::Convolution& p) { list(p.in, p.out, p.taps, p.state_at); }
  void put(const policy::Mean& p) { list(p.in, p.out); }
  void put(const policy::Scan& p) {
    list(p.x, p.dt, p.b, p.c, p.z, p.out, p.input_dt, p.decays_input, p.carried_decays_input, p.state_at);
  }
  void put(const policy::GatedCell& p) {
    constexpr int kGates = formulas::kMaxGates;
    list(p.cell, used(p.x, kGates), used(p.h, kGates), p.before, p.out, p.adds, p.state_at);
  }
  void put(const policy::Heads& p) {
    const auto all = [&](const auto&... more) {
      list(p.value, p.key, p.query, p.rate, p.z, p.out, p.heads, p.groups, p.state_at, more...);
    };
    if (p.rule == formulas::HeadRule::linear) return all();
    const auto with_rule = [&](const auto&... more) {
      all(p.rule, p.value_before, p.key_before, p.a, p.mix, p.floor, p.ranks, p.ranked, more...);
    };
    p.delta() ? with_rule(p.decays) : with_rule();
  }
  void put(const policy::Gate& p) {
    if (p.ranks == 0) return list(p.in, p.gate, p.out, p.at, p.parts, p.epsilon);
    list(p.in, p.gate, p.out, p.at, p.parts, p.epsilon, p.ranks);
  }
  void put(const policy::Angle& p) { list(p.rate, p.dt, p.out, p.heads, p.state_at); }
  void put(const policy::Rotation& p) {
    list(p.in, p.turn, p.out, p.heads, p.groups, p.ranks, p.halves, p.epsilon);
  }
  void put(const policy::Delay& p) { list(p.in, p.out, p.state_at); }

 public:
  void put(const policy::Network& n) {
    int vectors = policy::kMostVectors;
    while (vectors > 0 && n.vectors[vectors - 1].values == 0) --vectors;
    const auto all = [&](const auto&... more) {
      list(n.stored, n.states, n.layers, n.layer_floats, n.frame, n.hidden, n.outs, used(n.vectors, vectors),
           n.input, n.layer, n.output, used(n.products, n, policy::Kind::product),
           used(n.convolutions, n, policy::Kind::convolution), used(n.means, n, policy::Kind::mean),
           used(n.scans, n, policy::Kind::scan), more...);
    };
    // Kinds that a network has not are no part of its text.
    const auto cells = used(n.cells, n, policy::Kind::cell);
    const auto heads = used(n.heads, n, policy::Kind::heads);
    const auto gates = used(n.gates, n, policy::Kind::gate);
    if (n.has(policy::Kind::angle)) {
      return all(cells, heads, gates, used(n.angles, n, policy::Kind::angle),
                 used(n.rotations, n, policy::Kind::rotation), used(n.delays, n, policy::Kind::delay));
    }
    if (n.has(policy::Kind::heads) || n.has(policy::Kind::gate)) return all(cells, heads, gates);
    if (n.has(policy::Kind::cell)) return all(cells);
    all();
  }

 private:
  std::ostringstream text_;
};

}  // namespace

std::string text_of(const policy::Network& network) {
  Text text;
  text.put(network);
  return text.take();
}

}  // namespace exphil::cuda
