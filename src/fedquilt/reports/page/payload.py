"""The JSON that the charts of a page read, bounded in size."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedquilt.common.printable import printable
from fedquilt.reports.names import metric_name
from fedquilt.reports.page.condense import mean_over_factors
from fedquilt.reports.page.data import Holdings, Page, PageRun, PageSeed, Similarity, ViewShares
from fedquilt.reports.style import PALETTE

MANY_RUNS = 12  # with more runs, the page has similarities, holdings and views of the first seed only
_MAX_CHARACTERS = 1_500_000  # of all similarities together
# A level is two digits of base 64; 4095 means "no value".
_DIGITS = np.array([*"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"])
_NONE = 4095


def payload(page: Page) -> str:
    """The runs as JSON that is safe inside a <script>, whatever text labels and settings contain."""
    runs, left_out = _bounded(page.runs)
    cuts: dict[Holdings, int] = {}
    data = {
        "palette": PALETTE,
        "settings": list(dict.fromkeys(run.setting for run in runs)),
        "labels": list(dict.fromkeys(run.label for run in runs)),
        "runs": [_run(run, cuts) for run in runs],
        "similaritiesLeftOut": left_out,
    }
    data["holdings"] = [_holdings(cut) for cut in cuts]
    return script_json(data)


def script_json(value: Any) -> str:
    """JSON in which nothing can end a <script>, open a comment, or end a line of JavaScript."""
    text = json.dumps(_printable(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _printable(value: Any) -> Any:
    """The same with every text, keys included, made printable."""
    if isinstance(value, str):
        return printable(value, lines=True)
    if isinstance(value, dict):
        return {printable(str(key)): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list | tuple) else value


def _run(run: PageRun, cuts: dict[Holdings, int]) -> dict[str, Any]:
    return {
        "label": run.label,
        "setting": run.setting,
        "method": run.method,
        "metric": metric_name(run.metric).label,
        "curve": dataclasses.asdict(run.curve),
        "seeds": [_seed(seed, cuts) for seed in run.seeds],
        "upload": dict(run.upload),
        "download": dict(run.download),
        "timings": dict(run.timings),
        "facts": [[group.title, [list(pair) for pair in group.pairs]] for group in run.facts],
        "command": run.command,
    }


def _seed(seed: PageSeed, cuts: dict[Holdings, int]) -> dict[str, Any]:
    out: dict[str, Any] = {"seed": seed.seed, "best": seed.best_round, "tests": list(seed.tests)}
    if seed.clients != tuple(range(len(seed.tests))):
        out["clients"] = list(seed.clients)
    if seed.names:
        out["names"] = list(seed.names)
    if seed.similarities:
        out["similarities"] = [_similarity(one) for one in seed.similarities]
    if seed.holdings is not None:
        # All methods of a comparison train on the same partition, so it is in the page once.
        out["holdings"] = cuts.setdefault(seed.holdings, len(cuts))
    if seed.views is not None:
        out["views"] = _views(seed.views)
    return out


def _views(shares: ViewShares) -> dict[str, Any]:
    return {
        "names": shares.names,
        "clients": shares.clients,
        "block": shares.block,
        "rounds": shares.rounds,
        "byRound": shares.by_round,
        "last": shares.last,
    }


def _similarity(one: Similarity) -> dict[str, Any]:
    symmetric = _is_symmetric(one)
    return {
        "round": one.round,
        "best": one.best,
        "size": one.levels.shape[-1],
        "block": one.block,
        "low": one.low,
        "high": one.high,
        "symmetric": symmetric,
        "levels": [_packed(square, symmetric) for square in one.levels],
    }


def _packed(square: np.ndarray, symmetric: bool) -> str:
    """Two digits for each level, row by row; of a symmetric matrix only the upper triangle with the diagonal."""
    flat = square[np.triu_indices(len(square))] if symmetric else square.ravel()
    flat = np.where(flat < 0, _NONE, flat).astype(np.int64)
    return "".join(_DIGITS[np.stack([flat // 64, flat % 64], axis=1).ravel()].tolist())


def _holdings(cut: Holdings) -> dict[str, Any]:
    return {"sizes": cut.sizes, "classes": cut.classes, "counts": cut.counts, "block": cut.block, "names": cut.names}


def _bounded(runs: Sequence[PageRun]) -> tuple[list[PageRun], bool]:
    """The runs with at most `_MAX_CHARACTERS` of similarities, and whether some were left out.

    Left out are, one after the other as far as needed: seeds but the first; single factors; rounds but the best and the
    last; all similarities of the last runs.
    """
    whole = sum(map(_size, runs))
    bounded = [_first_seed_only(run) for run in runs] if len(runs) > MANY_RUNS else list(runs)
    reductions: tuple[Callable[[PageRun], PageRun], ...] = (_first_seed_only, _without_factors, _few_rounds)
    for reduce in reductions:
        if sum(map(_size, bounded)) <= _MAX_CHARACTERS:
            break
        bounded = [reduce(run) for run in bounded]
    used = 0
    for place, run in enumerate(bounded):
        used += _size(run)
        if used > _MAX_CHARACTERS:
            bounded[place] = _with_similarities(run, lambda ones: ())
    return bounded, sum(map(_size, bounded)) < whole


def _size(run: PageRun) -> int:
    """Characters that the run's similarities take."""
    return sum(one.levels.size * (1 if _is_symmetric(one) else 2) for seed in run.seeds for one in seed.similarities)


def _is_symmetric(one: Similarity) -> bool:
    return bool((one.levels == one.levels.transpose(0, 2, 1)).all())


def _with_similarities(run: PageRun, change: Callable[[tuple[Similarity, ...]], tuple[Similarity, ...]]) -> PageRun:
    seeds = tuple(dataclasses.replace(seed, similarities=change(seed.similarities)) for seed in run.seeds)
    return dataclasses.replace(run, seeds=seeds)


def _first_seed_only(run: PageRun) -> PageRun:
    """The run with similarities, holdings and views of only the first seed that has them."""
    seeds, has_similarities, has_holdings, has_views = [], False, False, False
    for seed in run.seeds:
        seeds.append(
            dataclasses.replace(
                seed,
                similarities=() if has_similarities else seed.similarities,
                holdings=None if has_holdings else seed.holdings,
                views=None if has_views else seed.views,
            )
        )
        has_similarities = has_similarities or bool(seed.similarities)
        has_holdings = has_holdings or seed.holdings is not None
        has_views = has_views or seed.views is not None
    return dataclasses.replace(run, seeds=tuple(seeds))


def _without_factors(run: PageRun) -> PageRun:
    return _with_similarities(
        run, lambda ones: tuple(mean_over_factors(one) if len(one.levels) > 1 else one for one in ones)
    )


def _few_rounds(run: PageRun) -> PageRun:
    return _with_similarities(run, lambda ones: tuple(one for one in ones if one.best or one is ones[-1]))
