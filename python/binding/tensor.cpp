#include "python/binding/tensor.hpp"

#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/string.h>

#include "megamoe/error.hpp"

namespace megamoe::python {
namespace {

constexpr int kDlpackCpu = 1, kDlpackCuda = 2, kDlpackCudaHost = 3, kDlpackCudaManaged = 13;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

/// A GPU's array is taken without any synchronisation: calls are ordered by the stream that they
/// get, and a wait would break the capture of a graph.
nb::object source_of(nb::handle array) {
  if (nb::hasattr(array, "__dlpack_device__")) {
    const nb::tuple device = nb::cast<nb::tuple>(array.attr("__dlpack_device__")());
    if (nb::cast<int>(device[0]) != kDlpackCpu) {
      nb::dict stream;
      stream["stream"] = -1;
      return array.attr("__dlpack__")(**stream);
    }
  }
  return nb::borrow(array);
}

nb::ndarray<nb::ro> import_array(nb::handle array, const char* name, bool writable) {
  if (array.is_none()) refuse(fmt::format("{} is None; an array is needed", name));
  nb::ndarray<nb::ro> taken;
  const nb::object source = source_of(array);
  if (writable) {
    nb::ndarray<> mutable_array;
    if (nb::try_cast(source, mutable_array)) return nb::ndarray<nb::ro>(mutable_array);
    refuse(fmt::format("{} is {}; a writable array (DLPack or buffer) is needed", name,
                       nb::cast<std::string>(nb::str(array.type().attr("__name__")))));
  }
  if (!nb::try_cast(source, taken)) {
    refuse(fmt::format("{} is {}; an array (DLPack or buffer) is needed", name,
                       nb::cast<std::string>(nb::str(array.type().attr("__name__")))));
  }
  return taken;
}

std::string dtype_name(nb::dlpack::dtype type) {
  static constexpr const char* kCodes[] = {"int",    "uint",    "float", "opaque",
                                           "bfloat", "complex", "bool"};
  const auto code = static_cast<std::size_t>(type.code);
  return fmt::format("{}{}", code < std::size(kCodes) ? kCodes[code] : "float8 code ",
                     static_cast<int>(type.bits));
}

bool fits(nb::dlpack::dtype type, Element element) {
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  const bool integer = code == nb::dlpack::dtype_code::Int || code == nb::dlpack::dtype_code::UInt;
  if (type.lanes != 1) return false;
  switch (element) {
    case Element::code8:
      return type.bits == 8 && code != nb::dlpack::dtype_code::Bool;
    case Element::bf16:
      return type.bits == 16 && (integer || code == nb::dlpack::dtype_code::Bfloat);
    case Element::f32:
      return type.bits == 32 && code == nb::dlpack::dtype_code::Float;
    case Element::i32:
      return type.bits == 32 && code == nb::dlpack::dtype_code::Int;
    case Element::i64:
      return type.bits == 64 && code == nb::dlpack::dtype_code::Int;
  }
  return false;
}

const char* name_of(Element element) {
  switch (element) {
    case Element::code8:
      return "uint8 (or another type of 8 bits)";
    case Element::bf16:
      return "bfloat16, or its bits as uint16";
    case Element::f32:
      return "float32";
    case Element::i32:
      return "int32";
    case Element::i64:
      return "int64";
  }
  return "";
}

std::vector<std::int64_t> array_shape(const nb::ndarray<nb::ro>& array) {
  std::vector<std::int64_t> shape;
  for (std::size_t i = 0; i < array.ndim(); ++i)
    shape.push_back(static_cast<std::int64_t>(array.shape(i)));
  return shape;
}

bool contiguous(const nb::ndarray<nb::ro>& array) {
  if (array.size() == 0) return true;
  std::int64_t step = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != step) return false;
    step *= static_cast<std::int64_t>(array.shape(i));
  }
  return true;
}

Place array_place(const nb::ndarray<nb::ro>& array, const char* name) {
  const int type = array.device_type();
  if (type == kDlpackCpu || type == kDlpackCudaHost) return {};
  if (type == kDlpackCuda || type == kDlpackCudaManaged) return {array.device_id()};
  refuse(fmt::format("{} is on a device of DLPack type {}; host memory and CUDA are known", name,
                     type));
}

/// The start of DLPackExchangeAPI (DLPack 1.3), by which C code looks at a framework's arrays
/// without any Python.
struct ExchangeApi {
  std::uint32_t major, minor;
  const ExchangeApi* previous;  ///< of an older version
  void* others[3];              ///< make and take arrays
  /// Not 0: a Python error is set. May be null.
  int (*look_at)(PyObject* array, nb::dlpack::dltensor* out);
};

/// That of arrays of this type; null where they have none.
const ExchangeApi* exchange_api(PyTypeObject* type) {
  static PyObject* const kAttribute = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  const nb::object capsule =
      nb::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), kAttribute));
  const ExchangeApi* api = nullptr;
  if (capsule.is_valid()) {
    api =
        static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  }
  if (api == nullptr) PyErr_Clear();
  while (api != nullptr && api->major != 1) api = api->previous;
  return api;
}

template <class T>
void append(std::string& key, const T* values, std::size_t count) {
  key.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

std::string text(Place place) {
  return place.device < 0 ? "in host memory" : fmt::format("on GPU {}", place.device);
}

}  // namespace

Tensor::Tensor(nb::handle array, const char* name, Element element, std::vector<std::int64_t> shape,
               Place place, bool writable)
    : array_(import_array(array, name, writable)) {
  if (!fits(array_.dtype(), element)) {
    refuse(fmt::format("{} has elements of {}; needed: {}", name, dtype_name(array_.dtype()),
                       name_of(element)));
  }
  const std::vector<std::int64_t> found = array_shape(array_);
  if (found != shape) {
    refuse(fmt::format("{} has shape [{}]; needed: [{}]", name, fmt::join(found, ", "),
                       fmt::join(shape, ", ")));
  }
  if (!contiguous(array_)) {
    refuse(fmt::format("{} is not contiguous; needed: rows one after another, without gaps", name));
  }
  const Place is = array_place(array_, name);
  if (is != place) refuse(fmt::format("{} is {}; needed: {}", name, text(is), text(place)));
  data_ = static_cast<const std::byte*>(array_.data());
}

std::vector<std::int64_t> shape_of(nb::handle array, const char* name) {
  return array_shape(import_array(array, name, false));
}

Place place_of(nb::handle array, const char* name) {
  return array_place(import_array(array, name, false), name);
}

nb::object array_key(const nb::args& arrays) {
  std::string key;
  key.reserve(512);
  PyTypeObject* type = nullptr;
  const ExchangeApi* api = nullptr;
  for (const nb::handle array : arrays) {
    if (Py_TYPE(array.ptr()) != type) {
      type = Py_TYPE(array.ptr());
      api = exchange_api(type);
    }
    nb::dlpack::dltensor found;
    if (api == nullptr || api->look_at == nullptr) return nb::none();
    if (api->look_at(array.ptr(), &found) != 0) {
      PyErr_Clear();
      return nb::none();
    }
    const auto dimensions = static_cast<std::size_t>(found.ndim);
    append(key, &found.data, 1);
    append(key, &found.byte_offset, 1);
    append(key, &found.device, 1);
    append(key, &found.dtype, 1);
    append(key, &found.ndim, 1);
    append(key, found.shape, dimensions);
    if (found.strides != nullptr) append(key, found.strides, dimensions);
  }
  return nb::bytes(key.data(), key.size());
}

bool is_int32(nb::handle array, const char* name) {
  return fits(import_array(array, name, false).dtype(), Element::i32);
}

}  // namespace megamoe::python
