"""What may leave a site: names, patterns, and the methods that remain."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import SiteConfig
from fedquilt.federation.site.permits import (
    check_permit_names,
    check_permits,
    check_upload_names,
    is_permitted,
    permitted_methods,
    refused_uploads,
)
from fedquilt.messages.message import TensorSpec, declared
from fedquilt.methods.base import methods
from fedquilt.methods.fedavg import FedAvg
from support.federations import make_method, make_task, ragged_clients, registered, tapped_run

NAMES = sorted({spec.name for method in methods().values() for spec in method.uploads})


def site(permits: Any) -> SiteConfig:
    return SiteConfig(name="st-anna", graph="g", state="s", permits=permits)


def test_a_permit_is_a_name_a_pattern_or_the_beginning_of_names() -> None:
    assert is_permitted(["train_nodes"], "train_nodes")
    assert not is_permitted(["train_nodes"], "train_nodes_of_each_class")
    assert not is_permitted(["train"], "train_nodes")
    for wide in ("model", "model.*", "mod*", "*"):
        assert is_permitted([wide], "model.*")
        assert is_permitted([wide], "model.conv*")
        assert is_permitted([wide], "model.conv1.weight")
    for narrow in ("model.conv", "model.conv*"):
        assert is_permitted([narrow], "model.conv*")
        assert not is_permitted([narrow], "model.*")  # it stands for more than is permitted
        assert not is_permitted([narrow], "model.classifier.weight")
    assert not is_permitted(["model"], "modelling")
    assert not is_permitted([], "anything")
    assert is_permitted("all", "anything")


@given(st.sets(st.sampled_from(NAMES)))
def test_permitted_methods_send_permitted_names_only(permits: set[str]) -> None:
    chosen = site(sorted(permits))
    allowed = permitted_methods(chosen)
    assert {"local", "majority"} <= set(allowed)
    clients = ragged_clients((9, 9))
    for name in methods():
        refused = refused_uploads(chosen.permits, make_method(name, clients))
        assert (name in allowed) == (not refused)
        assert not {spec.name for spec in refused} & permits


def test_everything_is_permitted_unless_said_otherwise() -> None:
    assert permitted_methods(site("all")) == list(methods())
    assert permitted_methods(site([])) == ["local", "majority"]
    assert permitted_methods(site(["model.conv", "train_nodes"])) == ["fedper", "local", "majority"]


CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in methods()),
    *(("fedpub", {"similarity": kind}) for kind in ("label", "parameter")),
    ("fedpub", {"matching": False}),
    *(("fedhero", {"share": kind}) for kind in ("gcn", "all", "none")),
    ("quilt", {"evidence": False}),
    ("quilt", {"share": "filter"}),
    ("fedsheafhn", {"client_vector": "one-hot"}),
    ("fedssa", {"semantic": False}),
]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_what_is_said_to_leave_covers_what_does(name: str, settings: dict[str, Any]) -> None:
    """The uploads of a real training: none that was not announced."""
    clients = ragged_clients((12, 9, 14))
    method = make_method(name, clients, make_task(clients), **settings)
    announced = method.sent_uploads()
    _, tap = tapped_run(method, clients, 2, 1.0)
    for upload in tap.ups:
        for sent in upload:
            assert declared(announced, sent) is not None, sent
    if not any(tap.ups):
        assert announced == []


def test_a_refused_upload_is_named_with_the_methods_that_would_work() -> None:
    method = make_method("fedavg", ragged_clients((9,)))
    with pytest.raises(FedquiltError) as error:
        check_permits(site(["train_nodes", "model.conv"]), method)
    assert str(error.value) == (
        "Site 'st-anna' does not permit 'model.*' to leave, which fedavg sends; permitted methods: fedper, local, majority."
    )
    check_permits(site(["train_nodes", "model"]), method)


def test_settings_decide_what_is_sent() -> None:
    clients = ragged_clients((9,))
    only = site(["model", "embedding"])
    check_permits(only, make_method("fedpub", clients))
    with pytest.raises(FedquiltError, match="'label_share'"):
        check_permits(only, make_method("fedpub", clients, similarity="label"))
    with pytest.raises(FedquiltError, match="'train_nodes'"):
        check_permits(only, make_method("fedpub", clients, matching=False))
    check_permits(site([]), make_method("fedhero", clients, share="none"))
    with pytest.raises(FedquiltError, match="'model\\.\\*'"):
        check_permits(site(["nodes"]), make_method("fedhero", clients))


def test_a_message_is_looked_through_again_before_it_leaves() -> None:
    message = {"model.conv1.weight": torch.zeros(1), "train_nodes": torch.zeros(1)}
    check_upload_names(site(["model", "train_nodes"]), message)
    with pytest.raises(FedquiltError, match="does not permit 'train_nodes' to leave; nothing was sent"):
        check_upload_names(site(["model"]), message)


def test_a_mistyped_permit_is_refused() -> None:
    check_permit_names("all")
    check_permit_names([*NAMES, "model", "class", "figures", "model.conv*"])
    with pytest.raises(FedquiltError, match="There is no upload 'train_node'; did you mean 'train_nodes'"):
        check_permit_names(["model", "train_node"])


def test_a_dot_at_the_end_is_refused() -> None:
    """It would permit `model.*` as a method declares it, and no tensor of it."""
    assert not is_permitted(["model."], "model.*")
    assert not is_permitted(["model."], "model.conv1.weight")
    with pytest.raises(FedquiltError, match=r"There is no upload 'model\.'; did you mean 'model'"):
        check_permit_names(["model."])


def test_a_new_method_is_known_by_what_it_declares() -> None:
    class Own(FedAvg):
        uploads = (TensorSpec("secret", "Everything."),)

    with registered(Own, "own"):
        check_permit_names(["secret"])
        assert "own" in permitted_methods(site(["secret"]))
        assert "own" not in permitted_methods(site(["model", "train_nodes"]))
