#include "nif/dispatch.hpp"

#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

#include "nif/backends.hpp"

namespace exphil::nif {

Term encode_ok(Call& call, Term value) {
  return enif_make_tuple2(call.env(), encode_atom(call, "ok"), value);
}

namespace {

Term encode_error(Call& call, const char* kind, const char* argument, const char* message) noexcept {
  const auto text = [&](const char* chars) {
    Term term = 0;
    const std::size_t size = std::char_traits<char>::length(chars);
    unsigned char* bytes = enif_make_new_binary(call.env(), size, &term);
    std::char_traits<char>::copy(reinterpret_cast<char*>(bytes), chars, size);
    return term;
  };
  const Term reason = enif_make_tuple3(call.env(), encode_atom(call, kind), text(argument), text(message));
  return enif_make_tuple2(call.env(), encode_atom(call, "error"), reason);
}

}  // namespace

Term encode_current_exception(Call& call) noexcept {
  try {
    throw;
  } catch (const core::Error& error) {
    return encode_error(call, core::error_kind_name(error.kind()), error.argument().c_str(), error.what());
  } catch (const std::bad_alloc&) {
    return encode_error(call, "out_of_memory", "", "the host has no memory left for this call");
  } catch (const std::length_error&) {
    return encode_error(call, "out_of_memory", "", "this call needs more memory than a process can have");
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {
      return encode_error(call, "internal", "", error.what());
    }
    return encode_error(call, "out_of_memory", "", "the system has no room for another thread");
  } catch (const std::exception& error) {
    return encode_error(call, "internal", "", error.what());
  } catch (...) {
    return encode_error(call, "internal", "", "an exception of an unknown type");
  }
}

int scheduler_for(ErlNifEnv* env, Term first) {
  Term head = 0, tail = 0;
  if (enif_get_list_cell(env, first, &head, &tail)) first = head;
  const LoadedPolicy* loaded = nullptr;
  if (const SessionHandle* session = find_handle<SessionHandle>(env, first)) {
    loaded = session->loaded.get();
  } else if (const PolicyHandle* policy = find_handle<PolicyHandle>(env, first)) {
    loaded = policy->loaded.get();
  }
  if (const LayerHandle* layer = find_handle<LayerHandle>(env, first)) {
    return layer->loaded->device.backend == "cuda" ? ERL_NIF_DIRTY_JOB_IO_BOUND : ERL_NIF_DIRTY_JOB_CPU_BOUND;
  }
  const bool waits = loaded != nullptr ? loaded->device.backend == "cuda" : may_use_cuda(env, first);
  return waits ? ERL_NIF_DIRTY_JOB_IO_BOUND : ERL_NIF_DIRTY_JOB_CPU_BOUND;
}

}  // namespace exphil::nif
