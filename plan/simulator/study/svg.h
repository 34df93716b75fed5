// A small writer of SVG 1.1: shapes in pixels from the upper left corner. No outside fonts, scripts or
// styles.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace clairfs {

enum class Anchor { start, middle, end };

struct TextStyle {
  double size = 12;
  Anchor anchor = Anchor::start;
  bool bold = false;
  std::string_view colour = "#222222";
};

struct Stroke {
  std::string_view colour = "#222222";
  double width = 1;
  bool dashed = false;
};

struct Point {
  double x = 0;
  double y = 0;
};

/// Collects shapes; later ones lie above earlier ones. A value.
class Svg {
 public:
  Svg(double width, double height);

  void rectangle(Point corner, double width, double height, std::string_view fill);
  void line(Point from, Point to, const Stroke& stroke);
  void polyline(const std::vector<Point>& points, const Stroke& stroke);
  void circle(Point centre, double radius, std::string_view fill);
  /// `at` is on the baseline. Any characters; those that XML reserves are escaped, control characters left
  /// out.
  void text(Point at, std::string_view words, const TextStyle& style);

  /// The whole document.
  std::string document() const;

 private:
  double width_;
  double height_;
  std::string body_;
};

/// Round numbers from 0 up to at least `most`, about `count` of them, for an axis.
std::vector<double> axis_ticks(double most, int count);

}  // namespace clairfs
