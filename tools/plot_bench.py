#!/usr/bin/env python3
"""Plots the series that kuiper_bench --scenario memory --csv FILE writes: waste over time."""
import argparse
import csv
import sys


def fail(message):
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def read_series(path):
    """{layout: ([seconds], [percent])}"""
    series = {}
    try:
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                seconds, percent = series.setdefault(row["layout"], ([], []))
                seconds.append(float(row["seconds"]))
                percent.append(float(row["waste"]) * 100)
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")
    except (KeyError, TypeError, ValueError):
        series = {}
    if not series:
        fail(f"{path} is not a series of kuiper_bench --scenario memory --csv FILE")
    return series


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv")
    parser.add_argument("picture", help="its ending chooses the format: .png, .svg, .pdf")
    args = parser.parse_args()
    series = read_series(args.csv)
    try:
        import matplotlib
    except ImportError:
        fail("matplotlib is missing; install it: apt-get install python3-matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    for layout, (seconds, percent) in series.items():
        axes.plot(seconds, percent, label=layout)
    axes.set(xlabel="seconds", ylabel="empty part of the memory held, %", ylim=(0, 100))
    axes.legend()
    try:
        figure.savefig(args.picture, bbox_inches="tight")
    except (OSError, ValueError) as error:
        fail(f"cannot write {args.picture}: {error}")


if __name__ == "__main__":
    main()
