// The layout of the operands of a call on host tensors in one block of device memory. The inputs come first,
// as the image that Upload copies: the tensors shared by all sequences, then slices of the batch with their
// own tensors. The results follow, slice after slice; of a result that all sequences share each slice has its
// own. Used by every operator that describes its operands
// (core/operands.hpp). Plain data without device memory; one thread at a time.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/operands.hpp"
#include "cuda/device/places.hpp"
#include "cuda/device/upload.hpp"

namespace exphil::cuda {

template <class Id>
class OperandImage {
 public:
  // Sequences begin .. begin + count of the batch, and the bytes of their operands; 0 where shared or absent.
  struct Slice {
    std::int64_t begin = 0, count = 0;
    core::PerOperand<Id, std::size_t> bytes;
  };

  // `table` describes the entire batch; `host` are the inputs' addresses.
  OperandImage(const core::PerOperand<Id, core::Operand>& table, const core::PerOperand<Id, void*>& host,
               std::int64_t batch, std::int64_t sequences_per_slice)
      : table_(table), strides_(core::sequence_strides(table)) {
    core::PerOperand<Id, std::size_t> shared;
    for (const Id id : core::all_operands<Id>()) {
      const core::Operand& operand = table[id];
      if (is_input(id) && !operand.per_sequence) shared[id] = add_input(host[id], operand.bytes());
    }
    for (std::int64_t begin = 0; begin < batch; begin += sequences_per_slice) {
      Slice slice{begin, std::min(sequences_per_slice, batch - begin), {}};
      const core::PerOperand<Id, void*> from = core::slice_batch(strides_, host, begin);
      core::PerOperand<Id, std::size_t> places = shared;
      for (const Id id : core::all_operands<Id>()) {
        slice.bytes[id] = static_cast<std::size_t>(slice.count) * strides_[id];
        if (is_input(id) && table[id].per_sequence) places[id] = add_input(from[id], slice.bytes[id]);
      }
      ends_.push_back(inputs_.bytes());
      slices_.push_back(slice);
      places_.push_back(places);
    }
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      for (const Id id : core::all_operands<Id>()) {
        if (!is_output(id)) continue;
        const std::size_t bytes = table[id].per_sequence ? slices_[i].bytes[id] : table[id].bytes();
        places_[i][id] = inputs_.bytes() + outputs_.take(bytes);
      }
    }
  }

  std::size_t bytes() const { return inputs_.bytes() + outputs_.bytes(); }
  const std::vector<Slice>& slices() const { return slices_; }
  // For Upload: the inputs, and the end of each slice's inputs.
  const std::vector<ImageSegment>& segments() const { return segments_; }
  const std::vector<std::size_t>& ends() const { return ends_; }

  // The addresses of the operands of slice `i` for an image that begins at `base`; 0 where absent.
  core::PerOperand<Id, CUdeviceptr> addresses(std::size_t i, CUdeviceptr base) const {
    core::PerOperand<Id, CUdeviceptr> addresses;
    for (const Id id : core::all_operands<Id>()) {
      if (table_[id].present) addresses[id] = base + places_[i][id];
    }
    return addresses;
  }

 private:
  bool is_input(Id id) const { return table_[id].present && table_[id].flow == core::Flow::in; }
  bool is_output(Id id) const { return table_[id].present && table_[id].flow == core::Flow::out; }

  std::size_t add_input(const void* data, std::size_t bytes) {
    const std::size_t place = inputs_.take(bytes);
    if (bytes > 0) segments_.push_back({data, place, bytes});
    return place;
  }

  const core::PerOperand<Id, core::Operand> table_;
  const core::PerOperand<Id, std::size_t> strides_;
  Places inputs_, outputs_;
  std::vector<ImageSegment> segments_;
  std::vector<std::size_t> ends_;
  std::vector<Slice> slices_;
  std::vector<core::PerOperand<Id, std::size_t>> places_;  // by slice
};

}  // namespace exphil::cuda
