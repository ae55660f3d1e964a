#include "cli/svg.hpp"

#include <fmt/format.h>

namespace megamoe::cli {

std::string xml_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return out;
}

Svg::Svg(double width, double height)
    : body_(fmt::format(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 "
          "{0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" "
          "height=\"{1}\" fill=\"#ffffff\"/>\n",
          width, height)) {}

void Svg::text(double x, double y, const char* anchor, const std::string& text) {
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                       anchor, xml_escaped(text));
}

void Svg::line(double x1, double y1, double x2, double y2) {
  body_ += fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#d0d0d0\"/>\n", x1,
      y1, x2, y2);
}

void Svg::circle(double x, double y, double radius, const char* fill) {
  body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", x, y, radius,
                       fill);
}

void Svg::rect(double x, double y, double width, double height, const char* fill) {
  body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
                       x, y, width, height, fill);
}

void Svg::curve(const std::string& path, const char* stroke) {
  body_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path,
                       stroke);
}

void Svg::area(const std::string& path, const char* fill, const std::string& title) {
  body_ += fmt::format("<path d=\"{}\" fill=\"{}\"><title>{}</title></path>\n", path, fill,
                       xml_escaped(title));
}

std::string Svg::document() const { return body_ + "</svg>\n"; }

}  // namespace megamoe::cli
