// Whether a loader names the tensor of a safetensors file that is missing or has another shape.
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
  }
}

}  // namespace exphil::test
