#include "cli/run_files.hpp"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "host/checkpoint/safetensors.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
void check_output_path(const char* flag, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored, unreachable;
  const fs::path folder = fs::absolute(path, ignored).parent_path();
  std::string why;
  if (!fs::is_directory(folder, unreachable)) {
    why = fmt::format("{} is not a folder", folder.string());
    if (unreachable) why += fmt::format(": {}", unreachable.message());
  } else if (access(folder.c_str(), W_OK) != 0) {
    why = fmt::format("folder {} cannot be written to", folder.string());
  } else if (fs::is_directory(path, ignored)) {
    why = "it is a folder";
  } else if (fs::is_symlink(path, ignored)) {
    why = "it is a symbolic link, which would be replaced; name what it leads to";
  } else if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
    why = "it is not a regular file, and would be replaced";
  }
  if (why.empty()) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{} = {}: {}", flag, path, why));
}

void write_output(const std::string& path, const Shape& shape,
                  const std::vector<std::vector<std::uint16_t>>& y_per_rank) {
  const auto padded = static_cast<std::size_t>(shape.problem.hidden);
  const auto stated = static_cast<std::size_t>(shape.stated_hidden);
  std::vector<std::uint16_t> y;
  std::string counts;
  for (const std::vector<std::uint16_t>& rows : y_per_rank) {
    for (std::size_t row = 0; row < rows.size(); row += padded) {
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row);
      y.insert(y.end(), begin, begin + static_cast<std::ptrdiff_t>(stated));
    }
    counts += fmt::format("{}{}", counts.empty() ? "" : ",", rows.size() / padded);
  }
  const TensorToWrite tensor{
      .name = "y",
      .dtype = DType::bf16,
      .shape = {static_cast<std::int64_t>(y.size() / stated), static_cast<std::int64_t>(stated)},
      .bytes = std::as_bytes(std::span<const std::uint16_t>(y))};
  write_safetensors(path, {&tensor, 1},
                    {{"precision", name(shape.problem.precision)}, {"tokens_per_rank", counts}});
}

}  // namespace megamoe::cli
