#include "nif/policy_options.hpp"

#include <algorithm>
#include <iterator>

#include "nif/option_reader.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

constexpr std::int64_t kMaxSessions = std::int64_t{1} << 24;
constexpr std::int64_t kMaxWindow = 4096;

core::Precision precision_of(const std::string& name) {
  core::Precision precision = core::Precision::f32;
  if (!core::parse_precision(name, &precision)) {
    fail(ErrorKind::invalid_argument, ":precision",
         ":precision must be :f32, :bf16, :f16, :int8 or :tf32x3, got :", name);
  }
  return precision;
}

core::Precision states_of(const std::string& name) {
  core::Precision states = core::Precision::f32;
  if (!core::parse_precision(name, &states)) {
    fail(ErrorKind::invalid_argument, ":states", ":states must be :f32, :f16 or :bf16, got :", name);
  }
  return states;
}

core::Pad pad_of(const std::string& name) {
  if (name == "repeat") return core::Pad::repeat;
  if (name == "zeros") return core::Pad::zeros;
  if (name == "none") return core::Pad::none;
  fail(ErrorKind::invalid_argument, ":pad", ":pad must be :repeat, :zeros or :none, got :", name);
}

bool armed_of(const std::string& latency) {
  if (latency != "plain" && latency != "armed") {
    fail(ErrorKind::invalid_argument, ":latency", ":latency must be :plain or :armed, got :", latency);
  }
  return latency == "armed";
}

// Sets *given to the name of a rule that the map has.
core::PlayRules rules_of(OptionReader& reader, std::string* given) {
  core::PlayRules rules;
  const auto note = [given](const char* name) {
    if (given->empty()) *given = name;
  };
  if (const auto temperature = reader.take<double>("temperature")) {
    rules.temperature = *temperature;
    note(":temperature");
  }
  if (const auto deterministic = reader.take<bool>("deterministic")) {
    rules.deterministic = *deterministic;
    note(":deterministic");
  }
  if (const auto buttons = reader.take<bool>("deterministic_buttons")) {
    rules.deterministic_buttons = *buttons;
    note(":deterministic_buttons");
  }
  if (const auto hysteresis = reader.take<std::tuple<double, double>>("hysteresis")) {
    rules.hysteresis = {std::get<0>(*hysteresis), std::get<1>(*hysteresis)};
    note(":hysteresis");
  }
  if (const auto seed = reader.take<Unsigned>("seed")) {
    rules.seed = seed->value;
    note(":seed");
  }
  return rules;
}

}  // namespace

LoadRequest Decoder<LoadRequest>::decode(Call& call, Term term, const char* argument) {
  OptionReader reader(call, term, argument);
  LoadRequest request;
  core::PolicyLoadOptions& options = request.options;
  request.max_sessions = reader.take<std::int64_t>("max_sessions");
  if (request.max_sessions && (*request.max_sessions < 1 || *request.max_sessions > kMaxSessions)) {
    fail(ErrorKind::invalid_argument, ":max_sessions", ":max_sessions must be from 1 to ", kMaxSessions,
         ", got ", *request.max_sessions);
  }
  options.norm_epsilon = reader.take<double>("norm_epsilon");
  options.check_finite = reader.take<bool>("check_finite").value_or(options.check_finite);
  options.window = reader.take<std::int64_t>("window");
  request.gather = reader.take<bool>("gather").value_or(false);
  if (const auto precision = reader.take<Atom>("precision")) {
    options.precision = precision_of(precision->name);
  }
  if (const auto states = reader.take<Atom>("states")) options.states = states_of(states->name);
  for (const auto& [name, value] : reader.take<Map>("trunk").value_or(Map{})) {
    const std::string shown = ":" + name.name;
    double number = 0;
    if (enif_is_atom(call.env(), value)) {
      options.trunk.emplace_back(name.name, Decoder<Atom>::decode(call, value, shown.c_str()).name);
    } else if (enif_get_double(call.env(), value, &number) != 0) {
      options.trunk.emplace_back(name.name, number);
    } else {
      options.trunk.emplace_back(name.name, Decoder<std::int64_t>::decode(call, value, shown.c_str()));
    }
  }
  reader.finish();
  return request;
}

SessionRequest Decoder<SessionRequest>::decode(Call& call, Term term, const char* argument) {
  OptionReader reader(call, term, argument);
  SessionRequest request;
  core::SessionOptions& options = request.options;
  options.window = reader.take<std::int64_t>("window").value_or(0);
  if (options.window < 0 || options.window > kMaxWindow) {
    fail(ErrorKind::limit_exceeded, ":window", ":window must be from 1 to ", kMaxWindow, " frames, got ",
         options.window);
  }
  if (const auto pad = reader.take<Atom>("pad")) options.pad = pad_of(pad->name);
  options.history = reader.take<std::int64_t>("history").value_or(0);
  if (const auto fps = reader.take<double>("fps")) options.pace = core::pace_rate(*fps);
  if (const auto latency = reader.take<Atom>("latency")) options.armed = armed_of(latency->name);
  options.rules = rules_of(reader, &request.rule);
  request.device = reader.take<std::int64_t>("device");
  reader.finish();
  return request;
}

SampleRequest Decoder<SampleRequest>::decode(Call& call, Term term, const char* argument) {
  OptionReader reader(call, term, argument);
  SampleRequest request;
  std::string rule;
  request.rules = rules_of(reader, &rule);
  request.state.frame = reader.take<Unsigned>("frame").value_or(Unsigned{}).value;
  for (const Atom& button : reader.take<std::vector<Atom>>("held").value_or(std::vector<Atom>{})) {
    const auto* const found = std::find(std::begin(kButtonNames), std::end(kButtonNames), button.name);
    if (found == std::end(kButtonNames)) {
      fail(ErrorKind::invalid_argument, ":held", ":held has the unknown button :", button.name);
    }
    request.state.held[static_cast<std::size_t>(found - std::begin(kButtonNames))] = true;
  }
  request.uniforms = reader.take<Frames>("uniforms");
  reader.finish();
  return request;
}

}  // namespace exphil::nif
