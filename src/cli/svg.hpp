#pragma once

#include <string>

namespace megamoe::cli {

/// A drawing in SVG: white ground, sans-serif text of 12 px; coordinates in px, y downwards.
/// Colours and path data are written as given, text is escaped.
class Svg {
 public:
  Svg(double width, double height);

  /// `anchor`: start, middle or end.
  void text(double x, double y, const char* anchor, const std::string& text);
  /// A grey line of the grid.
  void line(double x1, double y1, double x2, double y2);
  void circle(double x, double y, double radius, const char* fill);
  void rect(double x, double y, double width, double height, const char* fill);
  /// An open line of 2 px.
  void curve(const std::string& path, const char* stroke);
  /// A filled area; `title` is shown to those who point at it.
  void area(const std::string& path, const char* fill, const std::string& title);

  /// The whole document.
  [[nodiscard]] std::string document() const;

 private:
  std::string body_;
};

/// Text with the characters that XML reserves written as entities, and those that it forbids as
/// '?'.
std::string xml_escaped(const std::string& text);

}  // namespace megamoe::cli
