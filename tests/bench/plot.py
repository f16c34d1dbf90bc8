#!/usr/bin/env python3
"""Draws what `gpuos bench --json F` wrote: how long pauses, units and take-backs took.

    gpuos bench gemm.cubin --trace --take-back 10000 --json gemm.json
    gpuos bench gemm.cubin --pause-storm 100000 --json storm.json
    python3 tests/bench/plot.py gemm.json storm.json -o plots [--format svg]

One picture for each measurement that a file has: FILE.pauses.png, FILE.take_backs.png, and
FILE.units.png with one panel an operator. Counts are on a logarithmic scale: what matters is how
rare the long ones are. Needs matplotlib, which nothing else here does.
"""

import argparse
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

INK, BARS, LONGEST, BOUND = "#222222", "#3b75af", "#c0392b", "#2e8b57"
PANELS = 12  # operators in one picture, those with the most time
SHARES = (("P50", 0.5), ("P99", 0.99), ("P99.9", 0.999))


# ---- numbers ------------------------------------------------------------------------------------


def in_us(ns):
    return ns / 1000


def share_of_times(times, share):
    """Of sorted times the one that `share` of them do not exceed, as gpuos prints it."""
    return times[min(int(len(times) * share), len(times) - 1)]


def share_of_bins(bins, width, share):
    """The upper edge of the bin that holds it."""
    total, seen = sum(bins), 0
    for number, count in enumerate(bins):
        seen += count
        if seen and seen >= share * total:
            return (number + 1) * width
    return 0


def bins_of_times(times, count=100):
    """Sorted times by bins of a round width that hold the longest."""
    width = next(w for w in (20, 50, 100, 200, 500, 1000, 10**4, 10**5, 10**6, 10**8)
                 if times[-1] < w * count or w == 10**8)
    bins = [0] * (times[-1] // width + 1)
    for time in times:
        bins[time // width] += 1
    return bins, width


# ---- a panel ------------------------------------------------------------------------------------


def trimmed(bins):
    """Without the empty bins behind the last one that holds something."""
    last = max((number for number, count in enumerate(bins) if count), default=0)
    return bins[: last + 1]


def draw_bins(axes, bins, width, open_last):
    """A last bin that holds all longer ones is hatched, if anything is in it."""
    shown = trimmed(bins)
    edges = [in_us(number * width) for number in range(len(shown))]
    patches = axes.bar(edges, shown, width=in_us(width), align="edge", color=BARS, linewidth=0)
    if open_last and bins[-1]:
        patches[-1].set(hatch="////", edgecolor="white")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.7)
    axes.set_xlim(left=0)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def mark(axes, at_us, text, color, style="-"):
    axes.axvline(at_us, color=color, linewidth=1.2, linestyle=style, label=f"{text} {at_us:.1f} µs")


def finish(axes, title, unit):
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xlabel("µs")
    axes.set_ylabel(unit)
    axes.legend(fontsize=8, loc="upper right", framealpha=1, edgecolor="white")


# ---- pictures -----------------------------------------------------------------------------------


def draw_pauses(bench):
    pauses = bench["pauses"]
    figure, axes = pyplot.subplots(figsize=(8, 4.2))
    draw_bins(axes, pauses["bins"], pauses["bin_ns"], open_last=True)
    for (text, share), style in zip(SHARES, ("-", "--", ":")):
        mark(axes, in_us(share_of_bins(pauses["bins"], pauses["bin_ns"], share)), text, INK, style)
    mark(axes, in_us(pauses["longest_ns"]), "longest", LONGEST)
    finish(axes, f"from the pause until the last of {bench['sms']} SMs has stopped loading: "
                 f"{pauses['done']:,} pauses, {pauses['lost']:,} lost", "pauses")
    return figure


def draw_take_backs(bench):
    taken = bench["take_backs"]
    times = sorted(taken["times_ns"])
    figure, axes = pyplot.subplots(figsize=(8, 4.2))
    bins, width = bins_of_times(times)
    draw_bins(axes, bins, width, open_last=False)
    for (text, share), style in zip(SHARES, ("-", "--", ":")):
        mark(axes, in_us(share_of_times(times, share)), text, INK, style)
    mark(axes, in_us(times[-1]), "longest", LONGEST)
    finish(axes, f"from the take-back until the SM is free: {len(times):,} in {taken['rounds']:,} rounds, "
                 f"{taken['parked']:,} parked, {taken['lost']:,} lost", "SMs taken back")
    return figure


def draw_op(axes, op):
    draw_bins(axes, op["bins"], op["bin_ns"], open_last=True)
    mark(axes, in_us(op["bound_ns"]), "bound", BOUND)
    mark(axes, in_us(op["longest_ns"]), "longest", LONGEST)
    finish(axes, f"{op['name']} ({op['kind']}): {op['units']:,} units, {op['over_bound']:,} over", "units")


def draw_units(bench):
    ops = sorted((op for op in bench["units"] if op["units"]), key=lambda op: -op["run_ns"])[:PANELS]
    columns = 1 if len(ops) == 1 else 2
    rows = -(-len(ops) // columns)
    figure, grid = pyplot.subplots(rows, columns, figsize=(8 * columns, 3.8 * rows), squeeze=False)
    panels = list(grid.flat)
    for axes, op in zip(panels, ops):
        draw_op(axes, op)
    for axes in panels[len(ops):]:
        axes.set_visible(False)
    return figure


def pictures_of(bench):
    """Name and figure of each measurement that is there."""
    if sum(bench.get("pauses", {}).get("bins", [])):
        yield "pauses", draw_pauses(bench)
    if bench.get("take_backs", {}).get("times_ns"):
        yield "take_backs", draw_take_backs(bench)
    if any(op["units"] for op in bench.get("units", [])):
        yield "units", draw_units(bench)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE.json")
    parser.add_argument("-o", "--out", type=pathlib.Path, default=pathlib.Path("."), metavar="FOLDER")
    parser.add_argument("--format", choices=("png", "svg"), default="png")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for path in options.files:
        bench, drawn = json.loads(path.read_text()), 0
        for name, figure in pictures_of(bench):
            figure.suptitle(pathlib.Path(bench["file"]).name, x=0.01, ha="left", fontsize=9, color="#777777")
            figure.tight_layout()
            figure.savefig(options.out / f"{path.stem}.{name}.{options.format}", dpi=150)
            pyplot.close(figure)
            drawn += 1
        if not drawn:
            parser.exit(1, f"{path}: neither pauses, units nor take-backs in it\n")


if __name__ == "__main__":
    main()
