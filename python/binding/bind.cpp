#include "python/binding/bind.hpp"

#include <exception>

#include "megamoe/error.hpp"

namespace megamoe::python {
namespace {

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::invalid_file:
      return "invalid_file";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::disagreement:
      return "disagreement";
    case ErrorCode::fault:
      return "fault";
    case ErrorCode::system:
      return "system";
  }
  return "";
}

/// Errors become megamoe.Error with the same text.
void translate(const std::exception_ptr& pointer, void* /*unused*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::object type = nb::module_::import_("megamoe._error").attr("Error");
    PyErr_SetObject(type.ptr(), type(name(error.code()), error.what()).ptr());
  }
}

}  // namespace
}  // namespace megamoe::python

NB_MODULE(_core, module) {
  using namespace megamoe::python;
  module.doc() = "The library's C++ interface; use the package megamoe.";
  nb::register_exception_translator(translate);
  module.def("version", &megamoe::version);
  module.def("set_leak_warnings", &nb::set_leak_warnings, nb::arg("value"));
  bind_problem(module);
  bind_weights(module);
  bind_group(module);
  bind_reference(module);
  bind_checkpoint(module);
}
