#pragma once

#include <string>
#include <vector>

namespace megamoe::cli {

/// A text table: the first column left-aligned, the others right-aligned, two blanks between.
class Table {
 public:
  /// Header cells may hold several lines, separated by '\n'; they are aligned at the bottom.
  explicit Table(const std::vector<std::string>& header);

  /// Adds a row; throws std::logic_error unless it has one cell per column.
  void add(std::vector<std::string> row);

  /// All lines, each ended by '\n', without trailing blanks.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> header_lines_;
  std::vector<std::vector<std::string>> rows_;
};

/// Bytes with a binary unit, e.g. "1.50 GiB"; below 1024 "512 B".
std::string bytes_text(double bytes);

/// At most `digits` significant digits, never an exponent.
std::string short_number(double value, int digits = 4);

}  // namespace megamoe::cli
