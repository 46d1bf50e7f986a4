"""Headers of requests and replies: what is read, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from fedquilt.federation.protocol import ROUND, Introduction, RefusedError, Request, read_metrics
from fedquilt.tasks import NODE_CLASSIFICATION
from fedquilt.tasks.base import find_task
from support.federations import make_task, ragged_clients

CONTEXT = make_task(ragged_clients((9, 9))).to_dict()
REQUEST = Request(ROUND, "0123456789abcdef", 0, 1, -1, 1, 5, "fedavg", {"hidden": 8}, CONTEXT)
ACCURACY = find_task(NODE_CLASSIFICATION).metric("accuracy")


def test_a_request_comes_back_from_json() -> None:
    header = json.loads(json.dumps(REQUEST.to_header()))
    assert Request.from_header(header) == REQUEST
    assert set(header) == {
        *("kind", "run", "coordinator", "round", "best", "client", "rounds", "method", "settings", "task", "evaluate"),
        *("secure", "prepare"),
    }
    assert set(header["task"]) == {
        *("dataset", "partition", "metric", "features", "classes", "clients", "epochs", "seed", "rounds")
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"run": "../../etc"}, "cannot be read"),
        ({"run": 7}, "cannot be read"),
        ({"round": True}, "cannot be read"),
        ({"round": 10**9}, "cannot be read"),
        ({"kind": "round", "round": -1}, "cannot be read"),
        ({"rounds": 0}, "cannot be read"),
        ({"client": -1}, "cannot be read"),
        ({"settings": []}, "cannot be read"),
        ({"kind": "dance"}, "no request called 'dance'"),
        ({"kind": "secure-share"}, "cannot be read"),
        ({"secure": {}}, "cannot be read"),
        ({"secure": {"sum": "../../../../etc/x", "range": 64.0}}, "cannot be read"),
        ({"secure": {"sum": "0" * 32, "range": float("nan")}}, "cannot be read"),
        ({"secure": {"sum": "0" * 32, "range": 1e9}}, "cannot be read"),
        ({"secure": {"sum": "0" * 32, "range": 64.0, "threshold": 1}}, "cannot be read"),
    ],
    ids=str,
)
def test_a_request_of_another_form_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        Request.from_header({**REQUEST.to_header(), **change})


def test_a_request_builds_its_method() -> None:
    method = REQUEST.build_method()
    assert (method.name, method.settings.hidden, method.context.to_dict()) == ("fedavg", 8, CONTEXT)


@pytest.mark.parametrize(
    ("nodes", "says"), [(9, "less than 10 nodes"), (-1, "less than 10 nodes"), ("12", "cannot be read"), (True, "read")]
)
def test_batches_of_another_form_are_refused(nodes: Any, says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        replace(REQUEST, task={**REQUEST.task, "batch_nodes": nodes}).build_method()
    able = replace(REQUEST, task={**REQUEST.task, "batch_nodes": 10}).build_method()
    assert able.context.batch_nodes == 10


@pytest.mark.parametrize("fan_out", [7, "10", [0], [2.0], [True], [10**9], [1] * 17, [[1]], {"10": 1}, None])
def test_numbers_of_neighbours_that_are_none_are_refused(fan_out: Any) -> None:
    with pytest.raises(RefusedError, match="The task cannot be read"):
        replace(REQUEST, task={**REQUEST.task, "batch_nodes": 10, "fan_out": fan_out}).build_method()
    able = replace(REQUEST, task={**REQUEST.task, "batch_nodes": 10, "fan_out": [10, 5]}).build_method()
    assert able.context.fan_out == (10, 5)


def test_a_request_by_secure_aggregation_comes_back_from_json() -> None:
    request = replace(REQUEST, kind="secure-share", secure={"sum": "0" * 32, "range": 64.0})
    assert Request.from_header(json.loads(json.dumps(request.to_header()))) == request


def test_a_site_that_does_not_say_whether_it_demands_masks_does_not() -> None:
    said = Introduction("st-anna", 8, 2, None, None, "all", False, True).to_header()
    assert Introduction.from_header(said).secure
    del said["secure"]
    assert not Introduction.from_header(said).secure


@pytest.mark.parametrize(
    "change", [{"features": 10.0}, {"classes": "3"}, {"epochs": 10**6}, {"clients": 1}, {"task": []}, {"more": 1}]
)
def test_a_context_that_is_not_possible_is_refused(change: dict[str, Any]) -> None:
    request = Request.from_header({**REQUEST.to_header(), "task": {**CONTEXT, **change}})
    with pytest.raises(RefusedError, match="The task cannot be read"):
        request.build_method()


def test_too_many_epochs_are_refused() -> None:
    request = Request.from_header({**REQUEST.to_header(), "settings": {"epochs": 10_001}})
    with pytest.raises(RefusedError, match="more than 10,000 epochs"):
        request.build_method()


INTRODUCTION = Introduction("st-anna", 10, 3, None, "0f" * 32, ["model"], False)


def test_an_introduction_comes_back_from_json() -> None:
    assert Introduction.from_header(json.loads(json.dumps(INTRODUCTION.to_header()))) == INTRODUCTION


@pytest.mark.parametrize(
    "change",
    [
        *({"name": "a/b"}, {"features": 0}, {"classes": 2**40}, {"permits": "some"}, {"protected": 1}),
        *({"permits": ["a"] * 1001}, {"permits": ["a*" * 101]}),
        *({"nodes": 0}, {"nodes": 2.5}, {"nodes": 10**400}, {"nodes": True}),
    ],
    ids=lambda change: str(change)[:40],
)
def test_an_introduction_of_another_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cannot be read|no name"):
        Introduction.from_header({**INTRODUCTION.to_header(), **change})


@pytest.mark.parametrize(
    ("values", "possible"),
    [
        ([0.5, 0.7, 0.2, 0.3, 1.0], True),
        ([0.5, math.nan, math.nan, 1, 1], True),
        ([math.inf, 0.7, 0.2, 0.3, 1.0], False),
        ([0.5, 0.7, 1.2, 0.3, 1.0], False),
        ([0.5, 0.7, 0.2, 0.3, 0.0], False),
        ([0.5, 0.7, 0.2, 0.3], False),
        (["0.5", 0.7, 0.2, 0.3, 1.0], False),
        ({"val": 1}, False),
    ],
)
def test_metrics_that_are_not_possible_are_not_read(values: Any, possible: bool) -> None:
    assert (read_metrics(values, ACCURACY) is not None) == possible


def test_class_weights_cross_as_a_word_and_wrong_ones_are_refused() -> None:
    task = {**CONTEXT, "class_weights": "balanced"}
    assert replace(REQUEST, task=task).build_method().task.class_weights == "balanced"  # type: ignore[attr-defined]
    assert "class_weights" not in REQUEST.build_method().context.to_dict()
    for wrong, says in (("heavy", "cannot be read"), ("1,2", "2 class weights"), (7, "task cannot be read")):
        with pytest.raises(RefusedError, match=says):
            replace(REQUEST, task={**CONTEXT, "class_weights": wrong}).build_method()


def test_a_log_loss_has_no_upper_bound_and_is_a_number() -> None:
    log_loss = find_task(NODE_CLASSIFICATION).metric("log-loss")
    assert read_metrics([0.5, 0.5, 2.5, 40.0, 1.0], log_loss) is not None
    assert read_metrics([0.5, 0.5, math.inf, 2.0, 1.0], log_loss) is None
    assert read_metrics([0.5, 0.5, -0.1, 2.0, 1.0], log_loss) is None


def test_a_method_that_the_site_does_not_have_is_refused_with_what_to_do() -> None:
    with pytest.raises(RefusedError, match=r"The site has no method 'mine'; .* under 'plugins:' in its site\.yaml"):
        replace(REQUEST, method="mine").build_method()
    with pytest.raises(RefusedError, match="there is no backbone 'mine'; choose one of: gcn, sage, gat, mlp"):
        replace(REQUEST, settings={"model": "mine"}).build_method()
