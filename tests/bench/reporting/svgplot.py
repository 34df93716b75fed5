"""Charts as SVG text, from plain dicts as benchlib.bars() and benchlib.lines() make them. No state, no dependencies.

A value of None is a gap: nothing was measured there. All text is escaped. What is drawn is black on white, so that it
reads the same in a dark viewer.
"""

import math
from xml.sax.saxutils import escape

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#B8A800", "#7F3C8D")
GRID = "#dddddd"
LETTER = 6.6  # pixels of one letter at 12 px, on the generous side: text is never measured
WIDTH = 860
TICKS = 6


class Scale:
    """Values to a range of pixels, linear from 0 or logarithmic."""

    def __init__(self, values, begin, end, log=False):
        values = [value for value in values if value is not None and (value > 0 or not log)]
        self.log, self.begin, self.end = log, begin, end
        least, most = min(values, default=1), max(values, default=1)
        if log:
            self.first, self.last = math.floor(math.log10(least)), max(math.ceil(math.log10(most)), math.floor(math.log10(least)) + 1)
            self.ticks = [10.0**power for power in range(self.first, self.last + 1)]
        else:
            step = nice_step((most or 1) / TICKS)
            self.ticks = [step * i for i in range(math.ceil((most or 1) / step - 1e-9) + 1)]
            self.first, self.last = 0, self.ticks[-1]

    def __call__(self, value):
        if self.log:
            value = math.log10(value) if value > 0 else self.first
        return self.begin + (value - self.first) / (self.last - self.first) * (self.end - self.begin)


def nice_step(least):
    """The next of 1, 2, 5, 10, 20, ..."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def text_of(value):
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if 0 < value < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _text(x, y, text, anchor="start", size=12, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{more}>{escape(str(text))}</text>'


def _line(x1, y1, x2, y2, colour=GRID, more=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def _page(height, title, body):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}" '
    head += 'font-family="DejaVu Sans, Helvetica, sans-serif">'
    paper = f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>'
    return "\n".join([head, paper, _text(16, 24, title, size=14, more=' font-weight="bold"'), *body, "</svg>", ""])


def _legend(names, x, y):
    """A row of names, wrapped; the lines and the height they take."""
    left, top, drawn = x, y, []
    for i, name in enumerate(names):
        width = 24 + len(name) * LETTER + 12
        if left > x and left + width > WIDTH - 16:
            left, y = x, y + 18
        drawn.append(f'<rect x="{left:.1f}" y="{y - 10:.1f}" width="14" height="11" fill="{COLOURS[i % len(COLOURS)]}"/>')
        drawn.append(_text(left + 19, y, name))
        left += width
    return drawn, y - top + 18


def bars(chart):
    """One group of horizontal bars for each category, one bar in it for each series."""
    categories, series = chart["categories"], chart["series"]
    drawn, top = _legend(series, 16, 46) if len(series) > 1 else ([], 0)
    top += 52 if chart.get("mark") else 40
    left = 24 + max((len(name) for name in categories), default=0) * LETTER
    thickness = 16 if len(series) == 1 else 12
    group = len(series) * thickness + 10
    bottom = top + group * len(categories)
    mark = chart.get("mark")
    values = [value for line in series.values() for value in line] + ([mark["value"]] if mark else [])
    x_of = Scale(values, left, WIDTH - 80, chart.get("log", False))
    for tick in x_of.ticks:
        drawn.append(_line(x_of(tick), top, x_of(tick), bottom))
        drawn.append(_text(x_of(tick), bottom + 16, text_of(tick), "middle", 11))
    for i, name in enumerate(categories):
        y = top + group * i + 5
        drawn.append(_text(left - 8, y + (group - 10) / 2 + 4, name, "end"))
        for k, line in enumerate(series.values()):
            if line[i] is None:
                continue
            width = max(x_of(line[i]) - left, 0.5)
            colour = COLOURS[k % len(COLOURS)]
            drawn.append(f'<rect x="{left:.1f}" y="{y + k * thickness:.1f}" width="{width:.1f}" height="{thickness - 2}" fill="{colour}"/>')
            drawn.append(_text(left + width + 5, y + k * thickness + thickness - 5, text_of(line[i]), size=11))
    if mark:
        drawn.append(_line(x_of(mark["value"]), top - 4, x_of(mark["value"]), bottom, "black", ' stroke-dasharray="5 3"'))
        drawn.append(_text(x_of(mark["value"]), top - 7, mark["label"], "middle", 11))
    drawn.append(_line(left, top, left, bottom, "black"))
    drawn.append(_text((left + WIDTH - 80) / 2, bottom + 36, chart["label"], "middle"))
    return _page(bottom + 50, chart["title"], drawn)


def lines(chart):
    """One line for each series over the numbers `x`, which are evenly spaced as given."""
    x, series = chart["x"], chart["series"]
    drawn, top = _legend(series, 16, 46)
    top += 66
    left, right, bottom = 80, WIDTH - 40, top + 300
    y_of = Scale([value for line in series.values() for value in line], bottom, top, chart.get("log", False))
    x_of = lambda i: left + (i + 0.5) * (right - left) / len(x)  # noqa: E731
    for tick in y_of.ticks:
        drawn.append(_line(left, y_of(tick), right, y_of(tick)))
        drawn.append(_text(left - 6, y_of(tick) + 4, text_of(tick), "end", 11))
    for i, value in enumerate(x):
        drawn.append(_text(x_of(i), bottom + 18, value if isinstance(value, str) else text_of(value), "middle", 11))
    for k, line in enumerate(series.values()):
        points = [(x_of(i), y_of(value)) for i, value in enumerate(line) if value is not None]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        colour = COLOURS[k % len(COLOURS)]
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
    drawn.append(_line(left, bottom, right, bottom, "black"))
    drawn.append(_text(left, top - 14, chart["y_label"], "middle"))
    drawn.append(_text((left + right) / 2, bottom + 40, chart["x_label"], "middle"))
    return _page(bottom + 54, chart["title"], drawn)


def draw(chart):
    """The SVG of a chart by its `kind`."""
    return {"bars": bars, "lines": lines}[chart["kind"]](chart)
