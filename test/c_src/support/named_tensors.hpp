// Whether a loader names the tensor of a safetensors file that is missing or has another shape, and says what
// is wrong with one that is shorter.
#pragma once

#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/safetensors_writer.hpp"

namespace exphil::test {

// error_of(writer): what loading the writer's file fails with. Where a tensor is missing from which the names
// of others follow, its prefix is enough.
template <class ErrorOf>
void check_tensors_are_named(const SafetensorsWriter& sound, const ErrorOf& error_of) {
  for (const auto& [name, tensor] : sound.tensors) {
    INFO(name);
    SafetensorsWriter missing = sound;
    missing.tensors.erase(name);
    const CaughtError without = error_of(missing);
    INFO(without.message);
    CHECK(without.kind == core::ErrorKind::invalid_checkpoint);
    CHECK((without.says(name) || without.says(name.substr(0, name.find('.')))));

    SafetensorsWriter misshapen = sound;
    misshapen.tensors[name].shape.push_back(1);
    const CaughtError other = error_of(misshapen);
    INFO(other.message);
    CHECK(other.kind == core::ErrorKind::invalid_checkpoint);
    CHECK(other.says(name));

    // Where a size follows from it, another tensor is wrong, or none.
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      SafetensorsWriter shorter = sound;
      SafetensorsWriter::Tensor& cut = shorter.tensors[name];
      const std::int64_t size = cut.shape[i]--;
      cut.data.resize(cut.data.size() / static_cast<std::size_t>(size) * static_cast<std::size_t>(size - 1));
      const CaughtError of_size = error_of(shorter);
      INFO("dimension " << i << ": " << of_size.message);
      CHECK((!of_size.thrown || of_size.kind != core::ErrorKind::internal));
    }
  }
}

}  // namespace exphil::test
