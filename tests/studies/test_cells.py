"""Cells: which of them are the same run, and which places have none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.methods.base import methods
from fedquilt.partition.make import make_partition
from fedquilt.partition.storage import save
from fedquilt.runs.config import RunConfig
from fedquilt.studies import cells as module
from fedquilt.studies import digests
from fedquilt.studies.cells import Cell, expand, format_settings, with_others
from fedquilt.studies.spec import MACHINE_OPTIONS
from fedquilt.tasks.base import TASKS
from support.small_runs import own_graph
from support.tiny_studies import TINY, cells_of, study_of

# Options that change where and how fast a run is computed: values that must not matter.
MACHINE: dict[str, list[Any]] = {
    "device": ["cpu", "cuda", "auto"],
    "data": ["/a", "/b/c", None],
    "checkpoint_seconds": [0.0, 30.0, 1e9],
    "workers": [None, 1, 4],
    "cohort_size": [None, 1, 7],
    "threads": [None, 1, 4],
    "on_divergence": ["retry", "stop"],
}
# Of every other field some values, each of which is another run.
DETERMINING: dict[str, list[Any]] = {
    "method": ["fedpub", "local"],
    "dataset": ["communities-3", "patchwork"],
    "partition": ["disjoint", "natural"],
    "clients": [2, 3, None],
    "sizes": [None, [3, 4], [4, 3]],
    "alpha": [None, 0.1, 1.0],
    "seeds": [[0], [1]],
    "rounds": [None, 1, 2],
    "epochs": [None, 1, 2],
    "split": [None, "40/30/30", "5fold"],
    "task": ["node-classification", "another"],
    "metric": [None, "accuracy", "auc"],
    "settings": [{}, {"lr": 0.1}, {"lr": 0.2}, {"lr": 0.1, "hidden": 8}],
    "clients_from": [None, ["a", "b"], ["b", "a"]],
    "client_settings": [{}, {"0": {"lr": 0.1}}, {"0": {"lr": 0.2}}],
    "participation": [1.0, 0.5],
    "task_settings": [{}, {"width": 16}],
    "batch": ["full", "clusters", "neighbours"],
    "batch_nodes": [10_000, 500],
    "fan_out": [[10, 10], [5], [5, 10]],
    "drop_out": [0.0, 0.2],
    "stragglers": [0.0, 0.2],
    "join_late": [0.0, 0.2],
    "join_round": [None, 3],
    "leave": [0.0, 0.2],
    "leave_round": [None, 3],
    "upload_delay": [0, 2],
    "buffer": [None, 3],
    "evaluate_every": [1, 2],
    "patience": [None, 5],
    "min_train": [None, 1, 2],
    "keep_copies": [None, "neighbours", "both"],  # on these datasets None is "never", see below
    "prepare": [None, "standard", "rows"],  # on these datasets None is "none", see below
    "prepare_statistics": ["own", "shared"],
    "edge_noise": [0.0, 0.1],
    "feature_noise": [0.0, 0.1],
    "label_noise": [0.0, 0.1],
    "label_noise_kind": ["uniform", "pair"],
    "hold_out_clients": [0.0, 0.2],
    "newcomer_epochs": [None, 3],
    "attack": ["gaussian", "same-value"],
    "attack_scale": [5.0, 6.0],
    "attack_ratio": [0.2, 0.3],
    "class_weights": ["none", "balanced", "1,2"],
    "aggregation": ["mean", "median", "trimmed", "clipped"],
    "aggregation_trim": [0.2, 0.3],
    "aggregation_clip": [1.0, 2.0],
    "aggregation_voters": [3, 5],
    "dp_clip": [None, 1.0, 2.0],
    "dp_noise": [None, 5.0],
    "dp_epsilon": [None, 2.0, 8.0],
    "dp_delta": [1e-5, 1e-6],
    "precision": ["float32", "mixed"],
}
configs = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in DETERMINING.items()})
places = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in MACHINE.items()})


def cell(kind: str = "run", alone: bool = False, extra: tuple[str, ...] = (), **options: Any) -> Cell:
    # Not all options go together; the identity need not know which.
    config = RunConfig.model_construct(**{"dataset": "communities-3", "seeds": [0], **options})
    return Cell("tiny", {"method": "x"}, 0, {}, 0, kind, alone, config, extra)


def test_every_option_of_a_run_is_said_to_matter_or_not() -> None:
    by_content = {"plugins"}  # tests/integration/test_plugins.py
    assert MACHINE.keys() | DETERMINING.keys() | by_content == RunConfig.model_fields.keys()


@given(configs, places, places)
def test_where_a_cell_runs_and_the_order_of_settings_do_not_matter(
    config: dict[str, Any], here: dict[str, Any], there: dict[str, Any]
) -> None:
    first = cell(**config, **here)
    turned = {**config, "settings": dict(reversed(config["settings"].items()))}
    second = replace(cell(**dict(reversed(turned.items())), **there), study="other", at={"a": "b"}, candidate=3)
    assert first.identity == second.identity


@given(configs, st.data())
def test_each_option_that_determines_the_result_is_part_of_the_identity(config: dict[str, Any], data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(DETERMINING)))
    other = data.draw(st.sampled_from([value for value in DETERMINING[name] if value != config[name]]))
    assert cell(**config).identity != cell(**{**config, name: other}).identity


def test_features_that_are_used_as_they_are_identify_as_before() -> None:
    assert cell().identity == cell(prepare="none").identity
    own = cell(dataset="mine.npz", prepare="none").identity
    assert own == cell(dataset="mine.npz", prepare="none").identity
    assert own != cell(dataset="mine.npz").identity != cell(dataset="mine.npz", prepare="rows").identity


def test_what_is_done_is_part_of_the_identity() -> None:
    every = [cell(), cell(kind="oracle"), cell(kind="partition"), cell(alone=True), cell(extra=("test.neighbour",))]
    assert len({one.identity for one in every}) == len(every)


def test_an_option_that_is_added_later_counts_only_where_it_is_not_the_default() -> None:
    """Study folders that were written before the option existed stay valid."""
    later = RunConfig.model_fields.keys() - module._FIRST_OPTIONS - MACHINE_OPTIONS
    dump = cell().config.model_dump()
    first = {name: value for name, value in dump.items() if name in module._FIRST_OPTIONS}
    assert cell().identity == digests.json_digest({"kind": "run", "alone": False, "dear": (), **first})
    for name in later:
        default = RunConfig.model_fields[name].get_default(call_default_factory=True)
        assert cell(**{name: default}).identity == cell().identity
        assert cell(**{name: "another"}).identity != cell().identity


def test_what_a_split_keeps_together_counts_and_not_how_it_is_said() -> None:
    def identity(dataset: str, *keep: Any) -> str:
        return cell(dataset=dataset, **({"keep_copies": keep[0]} if keep else {})).identity

    def before(dataset: str) -> str:
        """The identity that a cell had before there was the option."""
        dump = cell(dataset=dataset).config.model_dump()
        first = {name: value for name, value in dump.items() if name in module._FIRST_OPTIONS}
        return digests.json_digest({"kind": "run", "alone": False, "dear": (), **first})

    # Squirrel's copies were apart: an old cell is no result of today's default, and is one of "never".
    for name in ("squirrel", "chameleon"):
        assert identity(name, "never") == before(name)
        assert identity(name) == identity(name, "neighbours") != before(name)
        assert len({identity(name, kind) for kind in ("never", "neighbours", "features", "both")}) == 4
    # The union's were together already, others have none.
    assert identity("syn-cora:h=all") == identity("syn-cora:h=all", "features") == before("syn-cora:h=all")
    assert identity("syn-cora:h=all", "never") != before("syn-cora:h=all")
    assert identity("cora") == identity("cora", "never") == before("cora") != identity("cora", "neighbours")


def test_the_identity_of_a_cell_of_the_first_version_is_unchanged() -> None:
    """Of a cell in a study folder that was written before options could be added."""
    options = {"method": "fedpub", "dataset": "cora", "clients": 5, "settings": {"lr": 0.01}}
    assert cell(**options).identity == "ed9cddd7694dd9a32b16c9822e4adc4a"


def test_of_an_own_graph_the_content_is_the_identity_and_its_path_where_it_cannot_be_read(elsewhere: Path) -> None:
    found: dict[str, set[str]] = {"file": set(), "clients": set()}
    for graph in changed(own_graph(masks=True)).values():
        for name in ("here.npz", "there.npz"):
            write_npz(graph, elsewhere / name)
        fresh()
        assert cell(dataset="here.npz").identity == cell(dataset="there.npz").identity
        found["file"].add(cell(dataset="here.npz").identity)
        found["clients"].add(cell(dataset="@clients", clients_from=["*.npz"]).identity)
    assert {name: len(each) for name, each in found.items()} == {"file": 7, "clients": 7}
    for name in ("here.npz", "there.npz"):
        (elsewhere / name).unlink()
    fresh()
    gone = {cell(dataset=name).identity for name in ("here.npz", "there.npz")}
    assert gone == {cell(dataset=name).named for name in ("here.npz", "there.npz")}
    assert len(gone) == 2
    fresh()


# -- the key: content and code -----------------------------------------------------------------------


def fresh() -> None:
    """Forget what was read of files, as a new process would."""
    digests._digest_or_error.cache_clear()
    digests.file_digest.cache_clear()


def changed(graph: Graph) -> dict[str, Graph]:
    """The graph, and others that differ from it in one number."""
    x, y, edges = graph.x.copy(), graph.y.copy(), graph.edges[:, 1:].copy()
    x[3, 1] += 0.5
    y[5] = (y[5] + 1) % graph.classes
    masks = {part: mask.copy() for part, mask in (graph.masks or {}).items()}
    masks["train"][np.flatnonzero(masks["train"])[0]] = False
    return {
        "as it was": graph,
        "a feature": replace(graph, x=x),
        "a label": replace(graph, y=y),
        "an edge": replace(graph, edges=edges),
        "a mask": replace(graph, masks=masks),
        "one class more": replace(graph, classes=graph.classes + 1),
        "sparse": replace(graph, x=sp.csr_matrix(graph.x)),
    }


def test_the_key_changes_with_the_graphs_content(elsewhere: Path) -> None:
    keys = {}
    for name, graph in changed(own_graph(masks=True)).items():
        write_npz(graph, elsewhere / "mine.npz")
        fresh()
        keys[name] = cell(dataset="mine.npz").key
    assert len(set(keys.values())) == len(keys)
    write_npz(own_graph(masks=True), elsewhere / "mine.npz")
    assert cell(dataset="mine.npz").key == keys["sparse"]  # a process reads a graph once
    fresh()
    assert cell(dataset="mine.npz").key == keys["as it was"]
    fresh()


def test_the_key_changes_with_the_saved_partitions_content(elsewhere: Path) -> None:
    graph = own_graph()
    write_npz(graph, elsewhere / "mine.npz")
    keys = []
    for clients in (2, 3, 2):
        save(make_partition(graph, "disjoint", clients, 0), elsewhere / "cut.npz")
        fresh()
        keys.append(cell(dataset="mine.npz", partition="cut.npz").key)
    assert keys[0] == keys[2] != keys[1]
    fresh()


def test_the_key_changes_with_the_version_and_the_identity_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    one = cell()
    before = one.key, one.identity
    monkeypatch.setattr(module, "compute_version", lambda method, kinds=(): "other")
    assert one.key != before[0]
    assert one.identity == before[1]


def test_the_same_run_in_two_studies_has_one_key(tmp_path: Path) -> None:
    first = study_of(tmp_path, "one")
    options = {**TINY["options"], "clients": 3, "settings": {}}
    axes = {
        "method": [{"label": "ours", "method": "fedpub", "settings": {"hidden": 8}}],
        "rounds": [{"label": "short", "rounds": 3}, {"label": "long", "rounds": 5}],
    }
    second = study_of(tmp_path, "two", options=options, axes=axes, columns=["rounds"], seeds=3)
    keys = {one.key: one for one in cells_of(first)}
    shared = [other for other in cells_of(second) if other.key in keys]
    assert [(one.at["rounds"], one.seed) for one in shared] == [("short", 0), ("short", 1)]
    assert all(keys[one.key].at == {"method": "FED-PUB", "clients": "3"} for one in shared)


# -- expanding ---------------------------------------------------------------------------------------


def test_places_without_a_method_or_with_a_reason_have_no_cells(tmp_path: Path) -> None:
    axes = {
        "method": [
            "local",
            {"label": "Of tomorrow", "method": "tomorrows"},
            {"label": "X", "method": "fedavg", "missing": "why not"},
        ],
        "dataset": ["communities-3", "cora"],
    }
    study = study_of(tmp_path, axes=axes, columns=["dataset"], options={"clients": 2, "rounds": 2})
    cells, missing = expand(study, seeds=1)
    assert [one.at["dataset"] for one in cells] == ["communities-3", "cora"]  # no graph is looked for
    why = {tuple(one.at.values()): (one.why, one.method) for one in missing}
    assert len(missing) == len(why) == 4
    assert why["Of tomorrow", "cora"] == ("the method tomorrows is not in fedquilt yet", "tomorrows")
    assert why["X", "cora"] == ("why not", "")


def test_cells_come_seed_by_seed_with_each_candidate(tmp_path: Path) -> None:
    axes = {
        "method": [{"label": "A", "method": "local", "candidates": [{"lr": 0.1}, {"lr": 0.2}]}, "fedavg"],
        "clients": [2],
    }
    cells = cells_of(study_of(tmp_path, axes=axes))
    assert [(one.seed, one.at["method"], one.candidate, one.settings) for one in cells] == [
        (seed, *rest) for seed in (0, 1) for rest in (("A", 0, {"lr": 0.1}), ("A", 1, {"lr": 0.2}), ("fedavg", 0, {}))
    ]
    assert cells[1].config.settings == {"hidden": 8, "lr": 0.2}
    assert cells[1].config.seeds == [0]
    assert cells[1].label == "A, 2 (lr=0.2), seed 0"
    assert cells[2].label == "fedavg, 2, seed 0"


def test_a_value_that_needs_another_evaluation_is_asked_for_only_where_it_is_shown(tmp_path: Path) -> None:
    plain = cells_of(study_of(tmp_path))[0]
    asked = cells_of(study_of(tmp_path, values={"test": "Test", "test.neighbour": "There"}))[0]
    assert (plain.extra, asked.extra) == ((), ("test.neighbour",))


def test_all_other_methods_get_a_row_where_a_study_asks_for_them(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    assert with_others(study) is study
    more = with_others(study_of(tmp_path, others=True))
    levels = more.axes["method"]
    listed = {level.options["method"] for level in study.axes["method"]}
    wanted = {name for name, method in methods().items() if name in listed or not method.baseline}
    assert sorted(level.options["method"] for level in levels) == sorted(wanted)
    floor = [name for name, method in methods().items() if method.single_round]
    assert [level.options["method"] for level in levels[: len(floor)]] == floor
    assert levels[len(floor) : len(floor) + 3] == study.axes["method"]
    assert all(level.label == methods()[level.options["method"]].title for level in levels[len(floor) + 3 :])


def test_settings_are_written_as_one_types_them() -> None:
    assert format_settings({"lr": 0.005, "masking": False, "model": "gcn"}) == "lr=0.005 masking=false model=gcn"
    assert format_settings({}) == ""


def test_only_cells_of_a_kind_change_with_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes: list[dict[str, Any]] = [{}, {"participation": 0.5}, {"drop_out": 0.2}, {"leave": 0.2}, {"task": "link"}]
    before = [cell(**options).key for options in changes]
    method = methods()[cell().config.method]
    monkeypatch.setattr(method, "kind_versions", {**method.kind_versions, "partial": 7})
    after = [cell(**options).key for options in changes]
    assert [one == two for one, two in zip(before, after, strict=True)] == [True, False, False, False, True]
    monkeypatch.undo()
    monkeypatch.setattr(TASKS.find("link"), "compute_version", 7)
    assert [one == cell(**options).key for one, options in zip(before, changes, strict=True)] == [True] * 4 + [False]
