// An environment of the VM's that an object owns: for terms that outlive the call that made them, and for
// messages. As any environment, for one thread at a time.
#pragma once

#include <erl_nif.h>

#include <new>

namespace exphil::nif {

class OwnEnv {
 public:
  OwnEnv() : env_(enif_alloc_env()) {  // throws std::bad_alloc
    if (env_ == nullptr) throw std::bad_alloc();
  }
  ~OwnEnv() { enif_free_env(env_); }
  OwnEnv(const OwnEnv&) = delete;
  OwnEnv& operator=(const OwnEnv&) = delete;
  ErlNifEnv* get() const noexcept { return env_; }

 private:
  ErlNifEnv* const env_;
};

}  // namespace exphil::nif
