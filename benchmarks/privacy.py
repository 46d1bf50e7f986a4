"""`python -m benchmarks.privacy measure`: accuracy against epsilon, for methods that send weights and one that does not.

Every method is trained with each budget (`--dp-epsilon`, spent over all rounds) and each clip norm, on the same clients and
seeds; of the clip norms that with the best mean validation metric counts, test is the mean over seeds at the best validation
round, as everywhere. (The budget does not account for these choices.) `inf` is no protection at all. The floors send nothing:
each client's most common class, each client alone with FedAvg's model, and alone with FedSSA's, to which that method falls back
when noise hides what it shares. Each case is added to a JSON file when it is measured, so that a stopped measurement can be
continued. `python -m benchmarks.privacy draw` makes docs/images/privacy.svg of it, and a table.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import fedquilt
from fedquilt.common.files import write_json
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import find_method
from fedquilt.reports.names import metric_name
from fedquilt.reports.style import GREY, colour, new_figure, save_figure, styled

# Names of what sends nothing: the method, its settings, and a line style.
FLOORS: dict[str, tuple[str, dict[str, Any], str]] = {
    "FedSSA alone": ("fedssa", {"semantic": False, "structural": False}, "-."),
    "local": ("local", {}, "--"),
    "majority": ("majority", {}, ":"),
}
Case = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy against epsilon.")
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="train, and write what came of it")
    measuring.add_argument("--methods", default="fedavg,fedpub,fedssa")
    measuring.add_argument("--epsilons", default="1,2,4,8,16,32,64,128,512,2048,8192,inf")
    measuring.add_argument(
        "--clips", default="0.001,0.01,0.1,1,10,100", help="clip norms, of which the best on validation counts"
    )
    measuring.add_argument("--delta", type=float, default=1e-5)
    measuring.add_argument("--dataset", default="cora")
    measuring.add_argument("--partition", default="disjoint")
    measuring.add_argument("--clients", type=int, default=10)
    measuring.add_argument("--seeds", default="0,1,2")
    measuring.add_argument("--rounds", type=int, help="the dataset's by default")
    measuring.add_argument("--device", default="auto")
    measuring.add_argument("--out", type=Path, default=Path("privacy.json"))
    drawing = commands.add_parser("draw", help="draw what was measured, and print it as a table")
    drawing.add_argument("results", type=Path, nargs="?", default=Path("privacy.json"))
    drawing.add_argument("picture", type=Path, nargs="?", default=Path("docs/images/privacy.svg"))
    given = parser.parse_args()
    if given.command == "measure":
        measure(given)
    else:
        draw(json.loads(given.results.read_text(encoding="utf-8")), given.picture)


# -- measuring ---------------------------------------------------------------------------------------------------------


def measure(given: argparse.Namespace) -> None:
    common = {
        "dataset": given.dataset,
        "partition": given.partition,
        "clients": given.clients,
        "seeds": [int(seed) for seed in given.seeds.split(",")],
        "rounds": given.rounds,
    }
    start = {"common": common, "delta": given.delta, "cells": []}
    results = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else start
    if (results["common"], results["delta"]) != (common, given.delta):
        raise SystemExit(f"{given.out} holds results of something else; give another --out.")
    done = {_key(case) for case in results["cells"]}
    for case in cases(given):
        if _key(case) in done:
            continue
        results["cells"].append(case | trained(case, common, given))
        write_json(given.out, results)
        print(line_of(results["cells"][-1]), flush=True)


def cases(given: argparse.Namespace) -> list[Case]:
    """What is to be trained: a method, a budget (None: no protection) and a clip norm each."""
    out: list[Case] = [{"method": name, "epsilon": None, "clip": None} for name in FLOORS]  # by their names here
    for name in given.methods.split(","):
        for epsilon in map(float, given.epsilons.split(",")):
            if math.isinf(epsilon):
                out.append({"method": name, "epsilon": None, "clip": None})
            else:
                out += [{"method": name, "epsilon": epsilon, "clip": float(c)} for c in given.clips.split(",")]
    return out


def _key(case: Case) -> tuple[Any, ...]:
    return case["method"], case["epsilon"], case["clip"]


def trained(case: Case, common: dict[str, Any], given: argparse.Namespace) -> Case:
    """The metrics of a case, or why there are none."""
    options: dict[str, Any] = {"device": given.device}
    if case["epsilon"] is not None:
        options |= {"dp_clip": case["clip"], "dp_epsilon": case["epsilon"], "dp_delta": given.delta}
    began = time.perf_counter()
    try:
        name, settings, _ = FLOORS.get(case["method"], (case["method"], {}, ""))
        result = fedquilt.run(name, **common, **options, settings=settings).result
    except FedquiltError as error:  # noise may make a training diverge
        return {"val": None, "test": None, "std": None, "why": str(error)}
    return {
        "val": result["val_mean"],
        "test": result["test_mean"],
        "std": result["test_std"],
        "metric": result["metric"],
        "spent": max(seed.get("epsilon", 0.0) for seed in result["seeds"]),
        "seconds": time.perf_counter() - began,
    }


def line_of(case: Case) -> str:
    epsilon = "no protection" if case["epsilon"] is None else f"epsilon {case['epsilon']:g}, clip {case['clip']:g}"
    return f"{case['method']}, {epsilon}: " + (case["why"] if case["test"] is None else f"{case['test']:.2f}")


# -- drawing -----------------------------------------------------------------------------------------------------------


def chosen(results: dict[str, Any]) -> dict[str, dict[float, Case]]:
    """For each method and epsilon (infinity: no protection) the case that is best on validation."""
    out: dict[str, dict[float, Case]] = {}
    for case in results["cells"]:
        if case["test"] is None:
            continue
        curve, at = out.setdefault(case["method"], {}), case["epsilon"] or math.inf
        if at not in curve or case["val"] > curve[at]["val"]:
            curve[at] = case
    return out


def draw(results: dict[str, Any], picture: Path) -> None:
    curves = chosen(results)
    budgets = sorted({epsilon for curve in curves.values() for epsilon in curve if math.isfinite(epsilon)})
    if not budgets:
        raise SystemExit("Nothing was measured with protection yet.")
    ratio = min((b / a for a, b in pairwise(budgets)), default=2.0)
    without = budgets[-1] * ratio**2  # where "no protection" is drawn, at a distance
    metric = next(case["metric"] for curve in curves.values() for case in curve.values())
    with styled():
        figure = new_figure(5.6, 3.4)
        ax = figure.add_subplot()
        for name, (_, _, style) in FLOORS.items():
            if name in curves:
                level, label = curves[name][math.inf]["test"], f"{name[0].upper()}{name[1:]}: sends nothing"
                ax.axhline(level, color=GREY, linestyle=style, linewidth=1.0, label=label)
        for place, (name, curve) in enumerate((n, c) for n, c in curves.items() if n not in FLOORS):
            look: Any = {"color": colour(place), "marker": "o", "markersize": 3.5, "capsize": 2, "linewidth": 1.4}
            finite = sorted(epsilon for epsilon in curve if math.isfinite(epsilon))
            aside = ratio ** (0.08 * (place - 1))  # shifts curves that would cover each other
            parts: list[tuple[list[float], list[float], str | None]] = [
                (finite, finite, titled(name)),
                ([e for e in curve if math.isinf(e)], [without], None),
            ]
            for at, where, name_shown in parts:
                if at:
                    y, spread = [curve[e]["test"] for e in at], [curve[e]["std"] for e in at]
                    ax.errorbar([x * aside for x in where], y, spread, label=name_shown, **look)
        ax.set_xscale("log")
        ax.set_xticks([*budgets, without], [*(f"{e:g}" for e in budgets), "none"])
        ax.minorticks_off()
        ax.set_xlabel(f"ε of a client over all rounds (δ = {results['delta']:g}); none: no protection")
        ax.set_ylabel(metric_name(metric).label)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        save_figure(figure, picture)
    print(table(curves, budgets))
    print(f"Written to {picture}.")


def titled(name: str) -> str:
    """The title of a method or a floor."""
    return name if name in FLOORS else find_method(name).title


def table(curves: dict[str, dict[float, Case]], budgets: list[float]) -> str:
    """The same as Markdown: a row for each method, a column for each budget."""
    lines = ["| method | " + " | ".join([*(f"ε = {e:g}" for e in budgets), "no protection"]) + " |"]
    lines.append("|---" * (len(budgets) + 2) + "|")
    for name, curve in curves.items():
        columns = [curve.get(e) for e in (*budgets, math.inf)]
        texts = ["" if case is None else f"{case['test']:.2f} ± {case['std']:.2f}" for case in columns]
        lines.append(f"| {titled(name)} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
