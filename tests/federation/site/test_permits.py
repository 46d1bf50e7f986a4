"""What may leave a site: one rule about the names of tensors, and the methods that remain."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import SiteConfig
from fedquilt.federation.site.permits import (
    check_permit_names,
    check_permits,
    check_upload_names,
    default_names,
    is_permitted,
    line_to_add,
    permits_needed,
    permitted_methods,
    refused_names,
    upload_names,
)
from fedquilt.messages.message import COUNTS, OTHER, WEIGHTS, TensorSpec, declared
from fedquilt.methods.base import Method, federated_methods
from fedquilt.methods.fedavg import FedAvg
from support.federations import make_method, make_task, ragged_clients, registered, tapped_run

NAMES = sorted({name for names in default_names().values() for name in names})
SPECS = FedAvg.uploads
CLIENTS = ragged_clients((12, 9, 14))
FIRST = "adam.first."


def refuse(permits: Any, method: Method) -> str:
    """The sentence with which a method is refused."""
    with pytest.raises(FedquiltError) as error:
        check_permits("st-anna", permits, method, upload_names(method))
    return str(error.value)


def test_a_permit_is_a_name_the_part_before_a_dot_or_a_pattern() -> None:
    assert is_permitted(["train_nodes"], "train_nodes")
    assert not is_permitted(["train_nodes"], "train_nodes_of_each_class")
    assert not is_permitted(["train"], "train_nodes")
    for wide in ("model", "model.conv1", "model.conv1.weight", "model.*", "model.conv*", "mod*", "*.weight", "*"):
        assert is_permitted([wide], "model.conv1.weight"), wide
    for narrow in ("model.conv", "model.con", "model.conv2", "model.", "mod", "model.conv?.weight", "model.conv[1]*"):
        assert not is_permitted([narrow], "model.conv1.weight"), narrow
    assert not is_permitted(["model.conv*"], "model.classifier.weight")
    assert not is_permitted(["model"], "modelling")
    assert not is_permitted([], "anything")
    assert is_permitted("all", "anything")


def test_weights_and_counts_are_what_methods_declare_to_be_that() -> None:
    assert is_permitted(["weights"], "model.conv1.weight", SPECS)
    assert not is_permitted(["weights"], "train_nodes", SPECS)
    assert is_permitted(["counts"], "train_nodes", SPECS)
    for word in ("weights", "counts", "other"):
        assert not is_permitted([word], "secret", (TensorSpec("secret", "Everything."),))
        assert not is_permitted([word], "undeclared", SPECS)


def test_every_upload_is_of_the_kind_that_its_sentence_says() -> None:
    kinds = {
        f"{name}: {spec.name}": spec.kind for name, method in federated_methods().items() for spec in method.uploads
    }
    other = {
        "fediih: latent.mean",
        "fediih: latent.logvar",
        "fedpub: embedding",
        "fedpub: label_share",
        "fedsheafhn: embedding",
        "fedssa: energy",
        "fedssa: class.mean",
        "fedssa: class.covariance",
    }
    assert {kinds[name] for name in other} == {OTHER}
    assert {kind for name, kind in kinds.items() if name.split(": ")[1] in ("nodes", "train_nodes")} == {COUNTS}
    assert TensorSpec("new", "A method's own.").kind == OTHER  # unless it says what it is
    assert TensorSpec("new", "Both.", count=True, weights=True).kind == COUNTS


@pytest.mark.parametrize("name", federated_methods())
def test_what_leaves_by_default_is_a_weight_or_a_count(name: str) -> None:
    """A weight is one that is trained, or a change of one; a count says of what. All else needs a permit of its own."""
    method = make_method(name, CLIENTS)
    state = method.start(Cohort(CLIENTS))
    trained = {*method.personal(state), *(key.removeprefix(FIRST) for key in state if key.startswith(FIRST))}
    for sent in upload_names(method):
        spec = declared(method.uploads, sent)
        assert spec is not None
        if spec.kind == WEIGHTS:
            parts = sent.split(".")
            ends = {".".join(parts[first:]) for first in range(len(parts))}
            assert ends & trained or any(weight.endswith("." + ".".join(parts[1:])) for weight in trained), sent
        elif spec.kind == COUNTS:
            assert re.search(r"\bhow many\b|nothing about its data", spec.reveals, re.IGNORECASE), sent


def test_by_default_weights_and_counts_leave() -> None:
    silent = SiteConfig(name="st-anna", graph="g", state="s")
    assert silent.permits == [WEIGHTS, COUNTS]
    able = permitted_methods(silent.permits)
    assert {"fedavg", "fedhero", "fedper", "fedprox", "local", "majority", "quilt"} <= set(able)
    for name, kind in federated_methods().items():
        specs = [declared(kind.uploads, sent) for sent in default_names()[name]]
        assert (name in able) == all(spec is not None and spec.kind in (WEIGHTS, COUNTS) for spec in specs), name
    method = make_method("fedpub", ragged_clients((9,)))
    with pytest.raises(FedquiltError, match="does not permit 'embedding' to leave, which fedpub sends"):
        check_permits(silent.name, silent.permits, method, upload_names(method))


@given(st.sets(st.sampled_from(NAMES)))
def test_permitted_methods_send_permitted_names_only(permits: set[str]) -> None:
    allowed = permitted_methods(sorted(permits))
    assert {"local", "majority"} <= set(allowed)
    for name, method in federated_methods().items():
        refused = refused_names(sorted(permits), default_names()[name], method.uploads)
        assert (name in allowed) == (not refused)
        assert not set(refused) & permits


def test_everything_is_permitted_to_whoever_says_so() -> None:
    assert permitted_methods("all") == list(federated_methods())
    silent = [name for name, kind in federated_methods().items() if not kind.uploads]
    assert {"local", "majority"} <= set(silent)
    assert permitted_methods([]) == silent
    some = permitted_methods(["model.conv*", "train_nodes"])
    assert {"fedper", *silent} <= set(some)
    assert not {"fedavg", "fedprox", "fedpub", "quilt"} & set(some)
    both = permitted_methods("all", ["weights", "train_nodes"])
    assert {"fedavg", "fedprox", *some} <= set(both)
    assert not {"fedpub", "fedssa", "quilt"} & set(both)


CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in federated_methods()),
    *(("fedpub", {"similarity": kind}) for kind in ("label", "parameter")),
    ("fedpub", {"matching": False}),
    ("fedavg", {"model": "gat"}),
    *(("fedhero", {"share": kind}) for kind in ("gcn", "all", "none")),
    ("quilt", {"evidence": False}),
    ("quilt", {"share": "filter"}),
    ("fedsheafhn", {"client_vector": "one-hot"}),
    ("fedsheafhn", {"generates": "model", "refresh": 2}),
    ("fedssa", {"semantic": False}),
]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_the_names_that_are_asked_about_are_those_that_leave(name: str, settings: dict[str, Any]) -> None:
    """Known before training, without anyone's data: the names of a real training's uploads, no more and no less."""
    clients = ragged_clients((12, 9, 14))
    method = make_method(name, clients, make_task(clients), **settings)
    _, tap = tapped_run(method, clients, 3, 1.0)
    left = {sent for upload in tap.ups for sent in upload}
    assert set(upload_names(method)) == left
    for sent in left:
        assert declared(method.sent_uploads(), sent) is not None, sent
    needed = permits_needed(left, method.uploads)
    assert refused_names(needed, left, method.uploads) == []


def test_a_refused_upload_is_named_with_the_methods_that_would_work() -> None:
    method = make_method("fedavg", ragged_clients((9,)))
    permits = ["train_nodes", "model.conv*"]
    said, _, named = refuse(permits, method).rpartition(" permitted methods: ")
    assert said == (
        "Site 'st-anna' does not permit 'model.classifier.weight', 'model.classifier.bias' to leave, which fedavg sends;"
    )
    able = named.removesuffix(".").split(", ")
    assert {"fedper", "fedrep", "local", "majority"} <= set(able)
    assert not {"fedavg", "fedprox", "ditto", "quilt", "fedpub"} & set(able)
    for name in able:
        made = make_method(name, ragged_clients((9,)))
        assert refused_names(permits, upload_names(made), made.uploads) == [], name
    assert "'model.conv1.weight', 'model.conv1.bias', 'model.conv2.weight' and 3 more to" in refuse(["counts"], method)
    check_permits("st-anna", ["train_nodes", "model"], method, upload_names(method))


def test_settings_decide_what_is_sent() -> None:
    clients = ragged_clients((9,))
    only = ["model", "embedding"]
    assert (
        refused_names(only, upload_names(make_method("fedpub", clients)), federated_methods()["fedpub"].uploads) == []
    )
    assert "'label_share'" in refuse(only, make_method("fedpub", clients, similarity="label"))
    assert "'train_nodes'" in refuse(only, make_method("fedpub", clients, matching=False))
    assert upload_names(make_method("fedhero", clients, share="none")) == []
    assert "'model.projection.weight'" in refuse(["nodes"], make_method("fedhero", clients))


def test_the_line_to_add_is_the_one_that_works() -> None:
    clients = ragged_clients((9,))
    for name in federated_methods():
        method = make_method(name, clients)
        sent = upload_names(method)
        for before in ([], ["weights", "counts"], ["model.conv1"], ["figures"]):
            line = line_to_add(before, sent, method.uploads)
            permits = line.removeprefix("permits: [").removesuffix("]")
            after = permits.split(", ") if permits else []
            assert refused_names(after, sent, method.uploads) == []
            assert after[: len(before)] == before
    method = make_method("fedpub", clients)
    line = line_to_add(["weights", "counts"], upload_names(method), method.uploads, ["figures"])
    assert line == "permits: [weights, counts, embedding, figures]"


def test_a_message_is_looked_through_again_before_it_leaves() -> None:
    message = {"model.conv1.weight": torch.zeros(1), "train_nodes": torch.zeros(1)}
    for permits in (["model", "train_nodes"], ["weights", "counts"]):
        check_upload_names("st-anna", permits, message, SPECS)
    with pytest.raises(FedquiltError, match="does not permit 'train_nodes' to leave; nothing was sent"):
        check_upload_names("st-anna", ["model"], message, SPECS)
    with pytest.raises(FedquiltError, match="does not permit 'secret'"):
        check_upload_names("st-anna", ["weights", "counts"], {"secret": torch.zeros(1)}, SPECS)


def test_a_mistyped_permit_is_refused() -> None:
    check_permit_names("all", {})
    known = [
        *NAMES,
        "weights",
        "counts",
        "model",
        "class",
        "figures",
        "model.conv*",
        "label_share",
        "update.classifier",
    ]
    check_permit_names(known, default_names())
    with pytest.raises(FedquiltError, match="There is no upload 'train_nods'; did you mean 'train_nodes'"):
        check_permit_names(["model", "train_nods"], default_names())


def test_a_permit_that_stands_for_nothing_is_refused_with_the_one_that_was_meant() -> None:
    """The docs once had it: it is how FedPer's uploads begin, and no name of any of them."""
    with pytest.raises(FedquiltError) as error:
        check_permit_names(["model.conv", "train_nodes", "figures"], default_names())
    names = sorted(name for name in NAMES if name.startswith("model.conv"))
    assert str(error.value) == (
        "The permit 'model.conv' is neither a name nor the part of one before a dot; write 'model.conv*' to permit "
        f"{', '.join(map(repr, names[:3]))} and {len(names) - 3} more."
    )
    with pytest.raises(FedquiltError, match=r"There is no upload 'model\.'; did you mean 'model'"):
        check_permit_names(["model."], default_names())


def test_names_of_other_settings_are_known_where_they_are_asked_about() -> None:
    gat = make_method("fedavg", ragged_clients((9,)), model="gat")
    (own, *_) = sorted(set(upload_names(gat)) - set(NAMES))
    with pytest.raises(FedquiltError):
        check_permit_names([own], default_names())
    check_permit_names([own], {"fedavg": upload_names(gat)})


def test_a_new_method_is_known_by_what_it_declares() -> None:
    class Own(FedAvg):
        uploads = (*FedAvg.uploads, TensorSpec("secret", "Everything."))

        def upload(self, state: Any, personal: Any, cohort: Any, down: Any) -> Any:
            return super().upload(state, personal, cohort, down) | {"secret": torch.ones(cohort.clients, 1)}

    with registered(Own, "own"):
        check_permit_names(["secret"], default_names())
        assert "own" in permitted_methods(["weights", "counts", "secret"])
        assert "own" not in permitted_methods(["weights", "counts"])
