#include "cli/table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

namespace megamoe::cli {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Table::Table(const std::vector<std::string>& header) {
  std::vector<std::vector<std::string>> columns;
  std::size_t height = 0;
  for (const std::string& cell : header) {
    columns.push_back(lines_of(cell));
    height = std::max(height, columns.back().size());
  }
  header_lines_.resize(height);
  for (std::size_t line = 0; line < height; ++line) {
    for (const std::vector<std::string>& column : columns) {
      const std::size_t above = height - column.size();
      header_lines_[line].push_back(line < above ? "" : column[line - above]);
    }
  }
}

void Table::add(std::vector<std::string> row) {
  if (header_lines_.empty() || row.size() != header_lines_[0].size()) {
    throw std::logic_error(fmt::format("table row of {} cells", row.size()));
  }
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<std::vector<std::string>> all = header_lines_;
  all.insert(all.end(), rows_.begin(), rows_.end());
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : all) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : all) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c == 0) {
        line += fmt::format("{:<{}}", row[c], widths[c]);
      } else {
        line += fmt::format("  {:>{}}", row[c], widths[c]);
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024.0 && unit + 1 < kUnits.size()) {
    bytes /= 1024.0;
    ++unit;
  }
  return fmt::format("{} {}", short_number(bytes, 3), kUnits[unit]);
}

std::string short_number(double value, int digits) {
  const double magnitude = std::abs(value);
  int decimals = magnitude < 1.0 ? digits : digits - 1 - static_cast<int>(std::log10(magnitude));
  decimals = std::clamp(decimals, 0, digits);
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

}  // namespace megamoe::cli
