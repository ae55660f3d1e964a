#include "layout/map.hpp"

#include <fmt/format.h>

#include "layout/local_layout.hpp"
#include "layout/symmetric_layout.hpp"

namespace megamoe {

std::string layout_map(const Problem& problem) {
  std::string text;
  const auto line = [&text](const BufferInfo& b) {
    text += fmt::format("{:>12} {:>12}  {:<13} {}\n", b.offset, b.bytes, b.name, b.shape);
  };
  text += fmt::format("layout version {}\nsymmetric\n", kLayoutVersion);
  const std::size_t symmetric = walk_symmetric(problem, line).bytes;
  text += fmt::format("{:>12} bytes\nlocal\n", symmetric);
  const std::size_t local = walk_local(problem, line).bytes;
  text += fmt::format("{:>12} bytes\n", local);
  return text;
}

}  // namespace megamoe
