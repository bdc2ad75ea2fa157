// Takes tensors out of a checkpoint one by one, each with its required shape, and records which were taken,
// so that an unexpected tensor can be named. Used by load_weights and load_semiseparable. One object per
// load, one thread; the tensors outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.hpp"
#include "core/text.hpp"

namespace exphil::core {

class CheckpointReader {
 public:
  // For errors: the public argument that holds the tensors, their name, and a description of the content.
  struct Source {
    std::string argument, name, content;
    bool has_check_finite = true;  // the public call has that option, which the error then suggests
  };
  CheckpointReader(const std::map<std::string, TensorView>& tensors, Source source, bool check_finite)
      : tensors_(tensors), source_(std::move(source)), check_finite_(check_finite) {}

  bool has(const std::string& name) const { return tensors_.count(name) != 0; }

  // The shape of a tensor that must exist with this rank and no zero dimension; `axes` describes it.
  const Shape& shape(const std::string& name, int rank, const std::string& axes) const;

  // Throws unless the tensor exists with this shape, which `axes` describes in the error.
  void require_shape(const std::string& name, const Shape& expected, const std::string& axes) const;

  // The values of a tensor of this shape, widened to f32.
  std::vector<float> take(const std::string& name, const Shape& expected, const std::string& axes);
  // The same where they are, if they are f32 in aligned memory; else in `room`.
  const float* take(const std::string& name, const Shape& expected, const std::string& axes,
                    std::vector<float>* room);

  // The tensor of this type and shape, which is no parameter.
  const TensorView& take_as_it_is(const std::string& name, Dtype dtype, const Shape& expected,
                                  const std::string& axes);

  // Throws for the first tensor that was never taken.
  void require_all_taken() const;

  // Throws for the first value that is not finite, unless constructed with check_finite false.
  void check_finite(const std::vector<float>& values, const std::string& name,
                    const std::string& what) const {
    check_finite(values.data(), static_cast<std::int64_t>(values.size()), name, what);
  }

 private:
  void check_finite(const float* values, std::int64_t count, const std::string& name,
                    const std::string& what) const;
  const TensorView& require(const std::string& name) const;

  const std::map<std::string, TensorView>& tensors_;
  const Source source_;
  const bool check_finite_;
  std::set<std::string> taken_;
};

}  // namespace exphil::core
