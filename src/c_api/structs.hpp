#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include "c_api/boundary.hpp"
#include "megamoe/megamoe.hpp"

// Structs of the C interface, whose size the caller states, and what they become in C++.

namespace megamoe::c_api {

/// Throws Error unless `size` is one that some version of the struct has.
void require_size(const char* name, std::size_t size, std::size_t first_version);
/// Throws Error if one of the bytes from `known` to `size` is set.
void require_zero_tail(const char* name, const void* from, std::size_t known, std::size_t size);

/// A copy of what the caller's struct has, of whichever version. Its first version has
/// `first_version` bytes; fields that it lacks are zero.
template <class T>
T read_struct(const T* from, const char* name, std::size_t first_version = sizeof(T)) {
  const std::size_t size = required(from, name).size;
  require_size(name, size, first_version);
  if (size > sizeof(T)) require_zero_tail(name, from, sizeof(T), size);
  T copy{};
  std::memcpy(&copy, from, size < sizeof(T) ? size : sizeof(T));
  return copy;
}

/// Fills the caller's struct of `size` bytes, of whichever version; what this one does not know
/// becomes zero.
template <class T>
void write_struct(T* to, T value, std::size_t size, const char* name,
                  std::size_t first_version = sizeof(T)) {
  required(to, name);
  require_size(name, size, first_version);
  value.size = size;
  const std::size_t known = size < sizeof(T) ? size : sizeof(T);
  std::memcpy(static_cast<void*>(to), &value, known);
  std::memset(reinterpret_cast<std::byte*>(to) + known, 0, size - known);
}

/// Copies a text as the C interface promises it.
void write_text(const std::string& from, char* text, std::size_t capacity, std::size_t* length);

Problem to_problem(const megamoe_problem* from);
ExpertTensors to_experts(const megamoe_experts* from, const char* name);
/// null: the defaults.
ForwardOptions to_options(const megamoe_forward_options* from);
Precision to_precision(const char* field, int value);

}  // namespace megamoe::c_api
