#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/problem_flags.hpp"

namespace megamoe::cli {

/// Throws Error(invalid_argument) if no file can be written at `path`, as far as it can be seen
/// before the work; `flag` is named.
void check_output_path(const char* flag, const std::string& path);

/// Writes "y" BF16 [all tokens, stated hidden] and the request's figures as metadata.
void write_output(const std::string& path, const Shape& shape,
                  const std::vector<std::vector<std::uint16_t>>& y_per_rank);

}  // namespace megamoe::cli
