// The forward and backward pass of one group of sequences through a policy: a chain of kernels on one stream,
// without synchronisation. Used by cuda/policy/gradient.cpp and its benchmark. Any thread, with the context
// current.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/policy/gradient_kernels.hpp"
#include "cuda/policy/gradient_memory.hpp"
#include "cuda/policy/gradient_values.hpp"

namespace exphil::cuda {

class GradientPass {
 public:
  // weights, gradient: device memory of the values' layout. adds: the gradient is added to.
  GradientPass(Context& context, CUstream stream, const GradientKernels& kernels,
               const GradientValues& values, CUdeviceptr weights, CUdeviceptr gradient, bool adds,
               GradientMemory& memory);

  // memory.frames and the states are given; leaves memory.outs where `outs`, and the final states.
  void forward(bool outs);
  // After forward(), with memory.d_outs; leaves memory.d_frames where `frames`.
  void backward(bool frames);

 private:
  using Vector = std::vector<float>;
  Matrix weight(const Vector& vector, std::int64_t rows) const;
  float* vector(const Vector& vector) const { return values_.in(weights_, vector); }
  float* gradient(const Vector& vector) const { return values_.in(gradient_, vector); }
  void run(const Products& products) const { kernels_.run(stream_, products); }

  void copy(Matrix from, Matrix to) const;
  void begin();
  policy::NormArguments norm_arguments(const Vector& weight, const Vector& bias, Matrix x) const;
  void norm(const Vector& weight, const Vector& bias, Matrix x, Matrix out) const;
  void forward_layer(std::size_t index);
  void project(const core::PolicyLayerWeights& w, const GradientLayer& l) const;
  void scan(const core::PolicyLayerWeights& w, const GradientLayer& l) const;
  void answer(bool outs);
  Matrix joined_hidden() const;

  void heads_back();
  void two_layer_heads_back(Matrix d_final);
  void norm_back(const Vector& weight, const Vector& bias, Matrix x, Matrix dy, bool adds);
  void layer_back(std::size_t index);
  void scan_back(const core::PolicyLayerWeights& w, const GradientLayer& l);
  void project_back(const core::PolicyLayerWeights& w) const;
  void convolve_back(const core::PolicyLayerWeights& w, const GradientLayer& l);
  void weights_back(const core::PolicyLayerWeights& w, const GradientLayer& l);
  void frames_back(bool frames);
  void linear_weight(Products& products, const Vector& weight, const Vector& bias, std::int64_t first,
                     Matrix dy, Matrix x);
  void add_parts();

  // cuda/policy/gradient_scan.cpp
  policy::ActivateArguments activation(const core::PolicyLayerWeights& w, const GradientLayer& l) const;
  policy::GradientScanArguments own_scan(const core::PolicyLayerWeights& w, const GradientLayer& l) const;
  void own_scan_back(const core::PolicyLayerWeights& w, const GradientLayer& l);

  policy::ConvolveArguments convolution(const core::PolicyLayerWeights& w, const GradientLayer& l) const;
  core::ScanOperands<CUdeviceptr> scan_operands(const core::PolicyLayerWeights& w,
                                                const GradientLayer& l) const;

  Context& context_;
  const CUstream stream_;
  const GradientKernels& kernels_;
  const GradientValues& values_;
  const core::PolicyWeights& w_;
  const core::PolicyConfig& c_;
  const CUdeviceptr weights_, gradient_;
  GradientMemory& m_;
};

}  // namespace exphil::cuda
