"""Change what a run depends on between its kill and its resume: it is refused, and the sentence names what changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.attempts import Attempt
from fuzz.damage_bytes import copied
from fuzz.hooks import killed_after
from fuzz.judge import FINE, Failed
from fuzz.materials import OUT, SMALL, arrays, write_graph
from fuzz.outcomes import differences, outcome

ABOUT = "graph, partition, settings or version changed between a kill and a resume"


def prepare(folder: Path) -> dict[str, Any]:
    """Runs that were killed half way, with the graph and the partition beside them."""
    return {name: _killed(folder / name, name) for name in ("run", "partition", "compare")}


def attempt(case: Attempt) -> None:
    """Change something, resume."""
    name = case.rng.choice(sorted(case.material))
    there = case.material[name]
    # At the place where the run was made, so that its paths hold.
    case.folder = there["place"]
    shutil.rmtree(case.folder)
    shutil.copytree(there["snapshot"], case.folder)
    change = case.rng.choice(sorted(sort for sort in _CHANGES if name in _CHANGES[sort][0]))
    _, does, words = _CHANGES[change]
    does(case)
    case.note(f"{name}: {change}")
    ended = case.run("resume", OUT, "-q")
    if not words:  # nothing that matters changed
        if ended.status != FINE:
            raise Failed("refused for nothing", f"{change}: {ended.err.strip()}")
        different = differences(there["outcome"], outcome(case.folder / OUT))
        if different:
            raise Failed("other result", f"{change}: differs in {', '.join(different[:5])}")
    elif ended.status == FINE:
        raise Failed("resumed on something else", f"{change}: resumed without a word")
    elif not any(word in ended.err for word in words):
        raise Failed("not named", f"{change}: {ended.err.strip()}")


def _killed(place: Path, name: str) -> dict[str, Any]:
    """A folder with graph.npz, cut.npz and the folder of a run that was killed after some rounds."""
    place.mkdir()
    write_graph(place / "graph.npz")
    case = Attempt("changed", 0, 0, place, None)
    case.run("partition", "./graph.npz", "--kind", "disjoint", "--clients", "3", "--out", "cut.npz")
    clients = ("-p", "./cut.npz", *SMALL[2:]) if name == "partition" else SMALL
    what = ("compare", "--methods", "local,fedavg") if name == "compare" else ("run", "-m", "fedavg")
    arguments = (*what, "-d", "./graph.npz", *clients, "--checkpoint-every", "0", "-q", "--out", OUT)
    case.run(*arguments)
    whole = outcome(place / OUT)
    for operations in range(20, 200, 4):
        shutil.rmtree(place / OUT)
        ended = case.unjudged(*arguments, before=killed_after(operations, place))
        saved = [path for path in (place / OUT).rglob("round-*.json") if "fedavg" in str(path) or name != "compare"]
        if ended.status < 0 and saved:
            snapshot = copied(place, place.with_name(f"{name}-snapshot"))
            return {"place": place, "snapshot": snapshot, "outcome": whole}
        if ended.status >= 0:
            break
    raise RuntimeError(f"no kill leaves a {name} with a checkpoint")


# --- changes


def _graph(change: Callable[[dict[str, np.ndarray], Attempt], dict[str, np.ndarray]]) -> Callable[[Attempt], None]:
    def does(case: Attempt) -> None:
        np.savez_compressed(case.folder / "graph.npz", **change(arrays(), case))  # type: ignore[arg-type]

    return does


def _permuted(name: str) -> Any:
    def change(made: dict[str, np.ndarray], case: Attempt) -> dict[str, np.ndarray]:
        order = np.random.default_rng(case.rng.randrange(2**31)).permutation(len(made[name]))
        return {**made, name: made[name][order]}

    return _graph(change)


def _one_label(made: dict[str, np.ndarray], case: Attempt) -> dict[str, np.ndarray]:
    y = made["y"].copy()
    node = case.rng.randrange(len(y))
    y[node] = (y[node] + 1) % 3
    return {**made, "y": y}


def _one_feature(made: dict[str, np.ndarray], case: Attempt) -> dict[str, np.ndarray]:
    x = made["x"].copy()
    x[case.rng.randrange(len(x)), case.rng.randrange(x.shape[1])] += 0.25
    return {**made, "x": x}


def _fewer_edges(made: dict[str, np.ndarray], case: Attempt) -> dict[str, np.ndarray]:
    return {**made, "edge_index": made["edge_index"][:, case.rng.choice((1, 5, 40)) :]}


def _more_nodes(made: dict[str, np.ndarray], case: Attempt) -> dict[str, np.ndarray]:
    more = arrays(seed=9, nodes=4)
    return {**made, "x": np.concatenate([made["x"], more["x"]]), "y": np.concatenate([made["y"], more["y"]])}


def _another_graph(made: dict[str, np.ndarray], case: Attempt) -> dict[str, np.ndarray]:
    return arrays(seed=case.rng.randint(1, 999))


def _partition(case: Attempt) -> None:
    (case.folder / "cut.npz").unlink()
    kind, seed = case.rng.choice((("disjoint", "5"), ("random", "1"), ("random", "2")))
    case.run("partition", "./graph.npz", "--kind", kind, "--clients", "3", "--seed", seed, "--out", "cut.npz")


def _config(**changes: Any) -> Callable[[Attempt], None]:
    """Change fields of config.json; those of `settings` are written setting__name."""

    def does(case: Attempt) -> None:
        for path in sorted((case.folder / OUT).rglob("config.json")):
            config = json.loads(path.read_text())
            for name, value in changes.items():
                inner, _, key = name.partition("__")
                if key:
                    config[inner] = {**config[inner], key: value}
                else:
                    config[name] = value
            path.write_text(json.dumps(config, indent=2) + "\n")

    return does


def _elsewhere(case: Attempt) -> None:
    """Move the run's folder away and back: nothing changed."""
    copied(case.folder / OUT, case.folder / "elsewhere")
    shutil.rmtree(case.folder / OUT)
    (case.folder / "elsewhere").rename(case.folder / OUT)


_ALL, _RUNS = ("run", "partition", "compare"), ("run", "partition")
# By name: the runs that it is done to, what is done, and the words of which the sentence has one. No words: nothing changed.
_CHANGES: dict[str, tuple[tuple[str, ...], Callable[[Attempt], None], tuple[str, ...]]] = {
    "labels permuted": (_ALL, _permuted("y"), ("graph",)),
    "features permuted": (_ALL, _permuted("x"), ("graph",)),
    "one label": (_ALL, _graph(_one_label), ("graph",)),
    "one feature": (_ALL, _graph(_one_feature), ("graph",)),
    "edges dropped": (_ALL, _graph(_fewer_edges), ("graph",)),
    "nodes added": (_ALL, _graph(_more_nodes), ("graph", "partition")),
    "another graph": (_ALL, _graph(_another_graph), ("graph", "partition")),
    "partition remade": (("partition",), _partition, ("partition",)),
    "split": (_ALL, _config(split="40/30/30"), ("split", "config.json")),
    "lr": (_ALL, _config(settings__lr=0.2), ("lr", "settings", "config.json")),
    "hidden": (_ALL, _config(settings__hidden=5), ("hidden", "settings", "config.json")),
    "epochs": (_ALL, _config(epochs=4), ("epochs", "config.json")),
    "participation": (_ALL, _config(participation=0.5), ("participation", "config.json")),
    "method": (_RUNS, _config(method="fedprox"), ("method", "config.json")),
    "kind of partition": (("run",), _config(partition="random"), ("partition", "config.json")),
    "clients": (("run",), _config(clients=4), ("clients", "config.json")),
    "attack": (_RUNS, _config(attack="sign-flip"), ("attack", "config.json")),
    "aggregation": (_RUNS, _config(aggregation="median"), ("aggregation", "config.json")),
    "another version": (_RUNS, _config(versions__fedquilt="0.0.9"), ("version", "fedquilt", "config.json")),
    "other numbers": (_RUNS, _config(versions__computation=1), ("fedquilt", "version", "config.json")),
    "nothing: the graph written again": (_ALL, _graph(lambda made, case: made), ()),
    "nothing: moved and back": (_ALL, _elsewhere, ()),
}
