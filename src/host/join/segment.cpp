#include "host/join/segment.hpp"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "host/join/system_error.hpp"

namespace megamoe::join {
namespace {

/// Gives the segment its size and its pages. Pages that are taken at their first touch would end
/// the process with a signal where /dev/shm is full. An error's number, or 0.
int set_aside(int file, std::size_t bytes) {
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) return errno;
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  return error;
}

}  // namespace

AlignedBuffer map_segment(const std::string& name, std::size_t bytes, bool create) {
  const int file = shm_open(name.c_str(), create ? O_RDWR | O_CREAT : O_RDWR, 0600);
  if (file < 0) system_error(fmt::format("cannot open shared memory {}", name));
  if (const int error = create ? set_aside(file, bytes) : 0; error != 0) {
    close(file);
    errno = error;
    system_error(fmt::format("cannot size shared memory {} to {} bytes", name, bytes));
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED)
    system_error(fmt::format("cannot map {} bytes of shared memory {}", bytes, name));
  return AlignedBuffer(static_cast<std::byte*>(memory), bytes);
}

SegmentName::~SegmentName() { shm_unlink(name_.c_str()); }

}  // namespace megamoe::join
