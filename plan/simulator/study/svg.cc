#include "plan/simulator/study/svg.h"

#include <cmath>

#include <fmt/format.h>

namespace clairfs {
namespace {

std::string escape(std::string_view words) {
  std::string text;
  for (const char c : words) {
    switch (c) {
      case '&':
        text += "&amp;";
        break;
      case '<':
        text += "&lt;";
        break;
      case '>':
        text += "&gt;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) text += c;
    }
  }
  return text;
}

std::string stroke_attributes(const Stroke& stroke) {
  return fmt::format(R"(stroke="{}" stroke-width="{:.2f}"{})", stroke.colour, stroke.width,
                     stroke.dashed ? R"( stroke-dasharray="5 4")" : "");
}

const char* anchor_name(Anchor anchor) {
  switch (anchor) {
    case Anchor::middle:
      return "middle";
    case Anchor::end:
      return "end";
    case Anchor::start:
      break;
  }
  return "start";
}

}  // namespace

Svg::Svg(double width, double height) : width_(width), height_(height) {}

void Svg::rectangle(Point corner, double width, double height, std::string_view fill) {
  body_ += fmt::format(R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="{}"/>)"
                       "\n",
                       corner.x, corner.y, std::max(width, 0.0), std::max(height, 0.0), fill);
}

void Svg::line(Point from, Point to, const Stroke& stroke) {
  body_ += fmt::format(R"(<line x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}" {}/>)"
                       "\n",
                       from.x, from.y, to.x, to.y, stroke_attributes(stroke));
}

void Svg::polyline(const std::vector<Point>& points, const Stroke& stroke) {
  std::string places;
  for (const Point& point : points) places += fmt::format("{:.2f},{:.2f} ", point.x, point.y);
  body_ += fmt::format(R"(<polyline points="{}" fill="none" {}/>)"
                       "\n",
                       places, stroke_attributes(stroke));
}

void Svg::circle(Point centre, double radius, std::string_view fill) {
  body_ += fmt::format(R"(<circle cx="{:.2f}" cy="{:.2f}" r="{:.2f}" fill="{}"/>)"
                       "\n",
                       centre.x, centre.y, radius, fill);
}

void Svg::text(Point at, std::string_view words, const TextStyle& style) {
  body_ += fmt::format(R"(<text x="{:.2f}" y="{:.2f}" font-size="{}" text-anchor="{}" fill="{}"{}>{}</text>)"
                       "\n",
                       at.x, at.y, style.size, anchor_name(style.anchor), style.colour,
                       style.bold ? R"( font-weight="bold")" : "", escape(words));
}

std::string Svg::document() const {
  return fmt::format(
      R"(<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif">
<rect width="100%" height="100%" fill="white"/>
{2}</svg>
)",
      width_, height_, body_);
}

std::vector<double> axis_ticks(double most, int count) {
  // Below the least normal number steps would be 0.
  if (!(most > 1e-300) || !std::isfinite(most)) return {0, 1};
  const double rough = most / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double scaled = rough / power;
  const double step = power * (scaled <= 1 ? 1 : scaled <= 2 ? 2 : scaled <= 5 ? 5 : 10);
  std::vector<double> ticks;
  for (int at = 0; ticks.empty() || ticks.back() < most; ++at) ticks.push_back(at * step);
  return ticks;
}

}  // namespace clairfs
