#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

// Arrays of any framework that speaks DLPack, checked against what an argument must be.

namespace megamoe::python {

namespace nb = nanobind;

/// What the elements of an argument must be.
enum class Element {
  code8,  ///< e4m3, e2m1 pairs or UE8M0: any type of 8 bits
  bf16,   ///< bfloat16, or its bits as a 16-bit integer
  f32,
  i32,
  i64,
};

/// Where an array must be.
struct Place {
  int device = -1;  ///< a GPU; -1: host memory
  bool operator==(const Place&) const = default;
};

/// An array that a caller gave, held for as long as this value lives.
class Tensor {
 public:
  /// Takes `array`, C-contiguous, with these elements and this shape, at this place. Throws
  /// Error(invalid_argument) naming the argument, what came and what is needed.
  Tensor(nb::handle array, const char* name, Element element, std::vector<std::int64_t> shape,
         Place place, bool writable = false);
  Tensor() = default;

  [[nodiscard]] const std::byte* bytes() const { return data_; }
  template <class T>
  [[nodiscard]] const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }
  template <class T>
  [[nodiscard]] T* writable_as() const {
    return reinterpret_cast<T*>(const_cast<std::byte*>(data_));
  }

 private:
  nb::ndarray<nb::ro> array_;
  const std::byte* data_ = nullptr;
};

/// Shape of an array, before it is known what it must be. Throws Error for what is no array.
std::vector<std::int64_t> shape_of(nb::handle array, const char* name);
/// Where an array is.
Place place_of(nb::handle array, const char* name);
/// True for 32-bit integers.
bool is_int32(nb::handle array, const char* name);

/// Bytes that tell arrays apart by place, type, shape and strides; None where their types do not
/// offer DLPack's exchange in C (torch from 2.10 on does).
nb::object array_key(const nb::args& arrays);

/// A new NumPy array [shape] that owns its memory.
template <class T>
nb::object new_array(std::vector<T>&& values, std::vector<std::size_t> shape) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(owned->data(), shape.size(), shape.data(), owner));
}

}  // namespace megamoe::python
