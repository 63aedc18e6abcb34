"""bench_plot.py results.json plot.svg: each peer's latency as a multiple of sealift's, a row a model. Needs matplotlib (the peers have it)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from bench_engines import ENGINES
from bench_report import median

COLOURS = {"eager": "#888888", "aoti": "#e07b00", "aoti_tuned": "#b04000", "onnxruntime": "#2060c0", "openvino": "#7030a0", "executorch": "#1a8a4a"}


def main(store: str, target: str) -> None:
    models = {m: e["engines"] for m, e in json.loads(Path(store).read_text())["models"].items() if "failed" not in e}
    names = [m for m in models if median(models[m].get("sealift", {}), "calls", "1")]
    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(11, 1.2 + 0.36 * max(len(names), 1)), layout="constrained")
    for axis, threads in zip(axes, ("1", "2"), strict=True):
        for engine, colour in COLOURS.items():
            points = []
            for row, model in enumerate(names):
                ours, theirs = median(models[model]["sealift"], "calls", threads), median(models[model].get(engine, {}), "calls", threads)
                if ours and theirs and "error_note" not in models[model][engine]:
                    points.append((theirs / ours, row))
            if points:
                axis.plot(*zip(*points, strict=True), "o", color=colour, label=ENGINES[engine].title, alpha=0.85)
        axis.axvline(1, color="black", linewidth=1)
        axis.set_xscale("log")
        axis.set_title(f"{threads} thread{'s' * (threads != '1')}: latency over sealift's (right of the line: slower)", fontsize=9)
        axis.grid(axis="both", linewidth=0.3)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    plt.rcParams["svg.hashsalt"] = "sealift"  # the same figures give the same file
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
