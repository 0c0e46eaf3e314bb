#!/usr/bin/env python3
"""Draws what kuiper_bench wrote, as an SVG that follows the reader's light or dark theme.

    tools/plot_bench.py REPORT.json PICTURE.svg [--x COLUMN] [--y COLUMN] [--by COLUMN] [--only COLUMN=VALUE] [--log]
    tools/plot_bench.py REPORT.json PICTURE.svg --roofline
    tools/plot_bench.py SERIES.csv PICTURE.svg        of --scenario memory --csv: waste over time

A line for each value of --by; quartiles, where the report has them, are bars. By default decoded tokens per second over the number of
sequences, a line for each context; of --scenario serve the shares of requests and tokens that took no longer, and columns are those of its
calls, as --x planned_s --y ttft_ms. The roofline needs rows with gbps and gflops (--scenario rates or throughput).
"""
import argparse
import csv
import json
import math
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 84, 170, 20, 50
# Told apart by people who see few colours, on white and on black.
COLORS = ["#0072b2", "#d55e00", "#009e73", "#b8860b", "#cc79a7", "#56b4e9", "#7f7f7f", "#a0522d"]
STYLE = """svg { background: #ffffff; color: #1f2328; font: 13px sans-serif }
@media (prefers-color-scheme: dark) { svg { background: #0d1117; color: #e6edf3 } }
text { fill: currentColor } .axis { stroke: currentColor } .grid { stroke: currentColor; opacity: .15 }
.roof { stroke: currentColor; stroke-dasharray: 6 4; fill: none }"""


def fail(message):
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


class Axis:
    """Values on a line of the picture, from `start` to `end` in its units."""

    def __init__(self, values, start, end, log):
        self.start, self.end, self.log = start, end, log
        low, high = min(values), max(values)
        if log:
            if low <= 0:
                fail("a logarithmic axis has no place for numbers that are not above 0")
            self.low, self.high = math.floor(math.log2(low)), math.ceil(math.log2(high))
            self.high = max(self.high, self.low + 1)
            every = max(1, (self.high - self.low) // 10)
            self.marks = [2.0**i for i in range(self.low, self.high + 1, every)]
        else:
            step = 10.0 ** math.floor(math.log10(max(high - min(low, 0), 1e-12)))
            step *= next((part for part in (0.1, 0.2, 0.5, 1) if (high - min(low, 0)) / (step * part) <= 10), 1)
            self.low = math.floor(min(low, 0) / step) * step
            self.high = max(math.ceil(high / step) * step, self.low + step)
            self.marks = [self.low + i * step for i in range(round((self.high - self.low) / step) + 1)]

    def at(self, value):
        part = ((math.log2(value) if self.log else value) - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 1)


def number(value):
    return f"{value:.6g}"


def draw(series, x_name, y_name, log_x, log_y, roofs=()):
    """series: {name: [(x, y, low, high)]}; low and high may be None. roofs: lists of points of lines behind them."""
    points = [point for line in series.values() for point in line] + [(*p, None, None) for roof in roofs for p in roof]
    ys = [y for _, *some in points for y in some if y is not None]
    x_axis = Axis([point[0] for point in points], LEFT, WIDTH - RIGHT, log_x)
    y_axis = Axis(ys, HEIGHT - BOTTOM, TOP, log_y)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
           f"<title>{escape(y_name)} over {escape(x_name)}</title><style>{STYLE}</style>"]
    for mark in x_axis.marks:
        x = x_axis.at(mark)
        out.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
                   f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{number(mark)}</text>')
    for mark in y_axis.marks:
        y = y_axis.at(mark)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{number(mark)}</text>')
    out.append(f'<path class="axis" fill="none" d="M{LEFT},{TOP} V{HEIGHT - BOTTOM} H{WIDTH - RIGHT}"/>'
               f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x_name)}</text>'
               f'<text transform="translate(16,{(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{escape(y_name)}</text>')
    for roof in roofs:
        out.append('<polyline class="roof" points="%s"/>' % " ".join(f"{x_axis.at(x)},{y_axis.at(y)}" for x, y in roof))
    for i, (name, line) in enumerate(series.items()):
        color, y = COLORS[i % len(COLORS)], TOP + 10 + 20 * i
        places = [(x_axis.at(point[0]), y_axis.at(point[1])) for point in line]
        out.append('<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>'
                   % (color, " ".join(f"{a},{b}" for a, b in places)))
        for (a, b), (_, _, low, high) in zip(places, line):
            if len(line) < 100:
                out.append(f'<circle cx="{a}" cy="{b}" r="3" fill="{color}"/>')
            if low is not None:
                out.append(f'<line stroke="{color}" x1="{a}" x2="{a}" y1="{y_axis.at(low)}" y2="{y_axis.at(high)}"/>')
        out.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{y - 5}" width="14" height="4" fill="{color}"/>'
                   f'<text x="{WIDTH - RIGHT + 34}" y="{y + 2}">{escape(name)}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def read(path):
    """-> (the rows of a report or of a series, whether it is a series, the calls of a load that were answered)"""
    try:
        with open(path, newline="") as file:
            if path.endswith(".csv"):
                return list(csv.DictReader(file)), True, []
            report = json.load(file)
            return report["rows"], False, [call for call in report.get("calls", []) if call["error"] is None]
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")
    except (ValueError, KeyError, TypeError):
        fail(f"{path} is no report of kuiper_bench")


def lines(rows, x, y, by):
    series = {}
    try:
        for row in rows:
            value = float(row[y])
            low, high = row.get(y + "_quartiles") or (None, None)
            if y == "tokens_per_s" and "ms_quartiles" in row:  # as the time has them
                high, low = (value * float(row["ms"]) / ms for ms in row["ms_quartiles"])
            series.setdefault(f"{by} {row[by]}" if by else y, []).append((float(row[x]), value, low, high))
    except (KeyError, TypeError, ValueError):
        fail(f"the rows have no numbers {x} and {y}" + (f", or no {by}" if by else ""))
    return {name: sorted(points, key=lambda point: point[0]) for name, points in series.items()}


def distributions(calls):
    """Which share of the requests, and of the times between tokens, took no longer than so many milliseconds."""
    times = {"first token": [call["ttft_ms"] for call in calls], "whole answer": [call["e2e_ms"] for call in calls],
             "between tokens": [gap for call in calls for gap in call["itl_ms"]]}
    series = {name: [(max(value, 0.001), 100 * (i + 1) / len(values), None, None) for i, value in enumerate(sorted(values))]
              for name, values in times.items() if values}
    return draw(series, "milliseconds", "share that took no longer, %", True, False)


def roofline(rows):
    """FLOP/s over FLOPs per byte, below the roof of the fastest yardsticks."""
    rows = [row for row in rows if row.get("gbps") and row.get("gflops")]
    if not rows or not all(row.get("machine_gbps") and row.get("machine_gflops") for row in rows):
        fail("the rows have no gbps and gflops of the machine")
    series = {}
    for row in rows:
        name = f"{row.get('phase', 'decode')} {row['tokens']}" if "tokens" in row else f"context {row['context']}"
        series.setdefault(name, []).append((row["gflops"] / row["gbps"], row["gflops"], None, None))
    memory, peak = (max(row["machine_" + unit] for row in rows) for unit in ("gbps", "gflops"))
    xs = [point[0] for line in series.values() for point in line] + [peak / memory]
    roof = [(x, min(memory * x, peak)) for x in sorted({min(xs) / 2, peak / memory, 2 * max(xs)})]
    return draw(series, "FLOP per byte read", "GFLOP/s", True, True, [roof])


def picture(args):
    rows, is_series, calls = read(args.file)
    if args.roofline:
        return roofline(rows)
    if is_series:
        series = lines(rows, "seconds", "waste", "layout")
        return draw({name.removeprefix("layout "): [(x, 100 * y, None, None) for x, y, *_ in line]
                     for name, line in series.items()}, "seconds", "empty part of the memory held, %", False, False)
    if calls and args.y is None:
        return distributions(calls)
    rows = calls or rows
    only = args.only or (["phase=decode"] if any("phase" in row for row in rows) and args.y is None else [])
    for condition in only:
        column, _, value = condition.partition("=")
        rows = [row for row in rows if str(row.get(column)) == value]
    if not rows:
        fail("no row is left")
    names = [] if calls else [name for name in ("tokens", "context") if name in rows[0]]
    x, y, by = args.x or "batch", args.y or "tokens_per_s", args.by or next(iter(names), None)
    return draw(lines(rows, x, y, by), x, y, args.log, False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("picture")
    parser.add_argument("--x")
    parser.add_argument("--y")
    parser.add_argument("--by")
    parser.add_argument("--only", action="append")
    parser.add_argument("--log", action="store_true", help="x doubles from mark to mark")
    parser.add_argument("--roofline", action="store_true")
    args = parser.parse_args()
    text = picture(args)
    try:
        with open(args.picture, "w") as file:
            file.write(text)
    except OSError as error:
        fail(f"cannot write {args.picture}: {error.strerror}")


if __name__ == "__main__":
    main()
