#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "host/cuda/driver.hpp"
#include "host/join/wire.hpp"

namespace megamoe::cuda {

/// How memory of a GPU travels to another process.
enum class Carrier : unsigned char {
  file,    ///< a file descriptor; within one machine
  fabric,  ///< a handle of the NVLink domain; also between machines
};

/// Device memory without an address. What is mapped, and what other processes have imported, lives
/// on without this object, and without this process.
class PhysicalMemory {
 public:
  /// Bytes that an allocation is a multiple of.
  static std::size_t granularity(int device, Carrier carrier);
  PhysicalMemory(int device, std::size_t bytes, Carrier carrier);
  /// Of another process.
  static PhysicalMemory import_file(const join::File& file);
  static PhysicalMemory import_fabric(const std::string& handle);
  PhysicalMemory(PhysicalMemory&& other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
  PhysicalMemory& operator=(PhysicalMemory&&) = delete;
  ~PhysicalMemory();

  [[nodiscard]] join::File export_file() const;
  [[nodiscard]] std::string export_fabric() const;
  [[nodiscard]] CUmemGenericAllocationHandle handle() const { return handle_; }

 private:
  explicit PhysicalMemory(CUmemGenericAllocationHandle handle) : handle_(handle) {}
  CUmemGenericAllocationHandle handle_ = 0;
};

/// Addresses at which one device reads and writes a physical memory.
class Mapping {
 public:
  Mapping(const PhysicalMemory& memory, std::size_t bytes, int device);
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, 0)),
        bytes_(other.bytes_),
        mapped_(std::exchange(other.mapped_, false)) {}
  Mapping& operator=(Mapping&&) = delete;
  /// No kernel may be using it.
  ~Mapping();
  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  void free();
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
};

}  // namespace megamoe::cuda
