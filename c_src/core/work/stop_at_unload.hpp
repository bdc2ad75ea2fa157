// Ends the thread of an object that lives as long as the process.
#pragma once

namespace exphil::core {

// The object is never destroyed, because others may use it after static destructors have run. Only its thread
// is joined, before its code is unmapped:
//
//     static auto* const instance = new Owner;
//     static StopAtUnload<Owner> guard{instance};
template <class Owner>
struct StopAtUnload {
  Owner* owner;
  ~StopAtUnload() { owner->stop(); }
};

}  // namespace exphil::core
