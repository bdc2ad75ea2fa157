#include "nif/dispatch.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

namespace exphil::nif {

// An atom is the same term in every environment as long as the VM runs. To look it up by its name takes a
// lock that all threads share, once or twice a frame.
Term encode_ok(Call& call, Term value) {
  static const Term ok = encode_atom(call, "ok");
  return enif_make_tuple2(call.env(), ok, value);
}

Term encode_queued(Call& call) {
  static const Term queued = encode_atom(call, "queued");
  return queued;
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

void report_time(ErlNifEnv* env, ErlNifTime microseconds) {
  // In percent of a scheduler's time slice, which is about a millisecond.
  enif_consume_timeslice(env, static_cast<int>(std::clamp<ErlNifTime>(microseconds / 10, 1, 100)));
}

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
  } catch (const core::Abandoned&) {
    return encode_error(call, "internal", "", "nobody waits for this call");  // so nobody reads this
  } catch (...) {
    return encode_error(call, "internal", "", "an exception of an unknown type");
  }
}

}  // namespace exphil::nif
