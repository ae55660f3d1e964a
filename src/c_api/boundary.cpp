#include "c_api/boundary.hpp"

#include <exception>
#include <new>

#include "megamoe/megamoe.hpp"

namespace megamoe::c_api {
namespace {

/// The last failure of a thread. Where there is no memory even for its words, a fixed text stands
/// in.
struct LastError {
  std::string text;
  const char* shown = "";
};
thread_local LastError last_error;

void keep(const char* text) noexcept {
  try {
    last_error.text = text;
    last_error.shown = last_error.text.c_str();
  } catch (...) {
    last_error.shown = "out of memory, also for the reason";
  }
}

megamoe_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return MEGAMOE_INVALID_ARGUMENT;
    case ErrorCode::invalid_file:
      return MEGAMOE_INVALID_FILE;
    case ErrorCode::unsupported:
      return MEGAMOE_UNSUPPORTED;
    case ErrorCode::disagreement:
      return MEGAMOE_DISAGREEMENT;
    case ErrorCode::fault:
      return MEGAMOE_FAULT;
    case ErrorCode::system:
      return MEGAMOE_SYSTEM;
  }
  return MEGAMOE_INTERNAL;
}

}  // namespace

megamoe_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    keep(error.what());
    return status_of(error.code());
  } catch (const std::bad_alloc&) {
    last_error.shown = "out of memory";
    return MEGAMOE_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    keep(error.what());
    return MEGAMOE_INTERNAL;
  } catch (...) {
    last_error.shown = "an exception of unknown type";
    return MEGAMOE_INTERNAL;
  }
}

void refuse(const std::string& reason) { throw Error(ErrorCode::invalid_argument, reason); }

}  // namespace megamoe::c_api

using megamoe::c_api::last_error;

const char* megamoe_last_error(void) { return last_error.shown; }

const char* megamoe_version(void) { return megamoe::version(); }

const char* megamoe_status_name(megamoe_status status) {
  switch (status) {
    case MEGAMOE_OK:
      return "ok";
    case MEGAMOE_INVALID_ARGUMENT:
      return "invalid argument";
    case MEGAMOE_INVALID_FILE:
      return "invalid file";
    case MEGAMOE_UNSUPPORTED:
      return "unsupported";
    case MEGAMOE_DISAGREEMENT:
      return "disagreement";
    case MEGAMOE_FAULT:
      return "fault";
    case MEGAMOE_SYSTEM:
      return "system";
    case MEGAMOE_OUT_OF_MEMORY:
      return "out of memory";
    case MEGAMOE_INTERNAL:
      return "internal error";
  }
  return "unknown status";
}
