#include "support/goldens.hpp"

#include <dirent.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/checkpoint/safetensors.hpp"
#include "support/shared_data.hpp"

namespace exphil::test {

namespace {

using core::Dtype;
using core::Safetensors;
using core::TensorView;

const char* const kFolder = "goldens/selective_scan";

template <class T>
std::vector<T> copy(const TensorView& view) {
  std::vector<T> values(view.bytes / sizeof(T));
  std::memcpy(values.data(), view.data, view.bytes);
  return values;
}

// Tensor `name`, or the pair name_re, name_im interleaved; empty where absent.
template <class T>
std::vector<T> values(const Safetensors& file, const std::string& name) {
  if (const TensorView* view = file.find(name)) return copy<T>(*view);
  const TensorView* re = file.find(name + "_re");
  const TensorView* im = file.find(name + "_im");
  if (re == nullptr || im == nullptr) return {};
  const std::vector<T> real = copy<T>(*re), imaginary = copy<T>(*im);
  std::vector<T> pairs;
  for (std::size_t i = 0; i < real.size(); ++i) {
    pairs.push_back(real[i]);
    pairs.push_back(imaginary[i]);
  }
  return pairs;
}

std::optional<TensorView> input(const Safetensors& file, const std::string& name, Golden* golden) {
  std::vector<float> data = values<float>(file, name);
  if (data.empty()) return std::nullopt;
  const TensorView* plain = file.find(name);
  const core::Shape shape = plain != nullptr ? plain->shape : file.find(name + "_re")->shape;
  std::vector<float>& kept = golden->storage[name] = std::move(data);
  return TensorView{plain != nullptr ? Dtype::f32 : Dtype::c64, shape, kept.data(),
                    kept.size() * sizeof(float)};
}

formulas::Discretization discretization(const std::string& name) {
  const std::vector<std::string> names = {"zoh", "foh", "bilinear", "highorder", "poly", "rk4"};
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::runtime_error("unknown discretization in a golden: " + name);
  return static_cast<formulas::Discretization>(found - names.begin());
}

}  // namespace

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  if (!have_shared(kFolder)) return names;
  DIR* folder = ::opendir(shared_path(kFolder).c_str());
  if (folder == nullptr) return names;
  const std::string ending = ".safetensors";
  while (const dirent* entry = ::readdir(folder)) {
    const std::string file = entry->d_name;
    if (file.size() <= ending.size()) continue;
    const std::size_t stem = file.size() - ending.size();
    if (file.compare(stem, ending.size(), ending) == 0) names.push_back(file.substr(0, stem));
  }
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

Golden load_golden(const std::string& name) {
  const Safetensors file = Safetensors::open(shared_path(std::string(kFolder) + "/" + name + ".safetensors"));
  Golden golden;
  golden.name = name;
  golden.complex = file.metadata().at("complex") == "true";
  golden.options.discretization = discretization(file.metadata().at("discretization"));
  golden.options.dt_softplus = file.metadata().at("dt_softplus") == "true";
  if (file.metadata().at("reverse") == "true") golden.options.direction = core::Direction::reverse;
  golden.inputs.x = input(file, "x", &golden).value();
  golden.inputs.dt = input(file, "dt", &golden).value();
  golden.inputs.a = input(file, "a", &golden).value();
  golden.inputs.b = input(file, "b", &golden).value();
  golden.inputs.c = input(file, "c", &golden).value();
  golden.inputs.d = input(file, "d", &golden);
  golden.inputs.z = input(file, "z", &golden);
  golden.inputs.dt_bias = input(file, "dt_bias", &golden);
  golden.inputs.initial_state = input(file, "initial_state", &golden);
  golden.y = values<double>(file, "y");
  golden.final_state = values<double>(file, "final_state");
  golden.states = values<double>(file, "states");
  golden.dy = values<float>(file, "dy");
  for (const char* of : {"x", "dt", "a", "b", "c", "d", "z", "dt_bias", "initial_state"}) {
    std::vector<double> gradient = values<double>(file, std::string("grad_") + of);
    if (!gradient.empty()) golden.gradients[of] = std::move(gradient);
  }
  return golden;
}

}  // namespace exphil::test
