"""Whether a site is ready: everything is tried, nothing is written."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.common.writable import check_folder_writable
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.budget import Budget
from fedquilt.federation.site.check import MethodUploads, check_site
from fedquilt.methods.base import federated_methods
from fedquilt.privacy.accountant import spent_epsilon
from fedquilt.privacy.dp import DpConfig
from support.federations import ragged_clients
from support.trained_sites import as_file, write_site

CLIENT = ragged_clients((40,))[0]


def report(folder: Path, **fields: Any) -> Any:
    return check_site(write_site(folder, as_file(CLIENT), **fields))


@cache
def silent_lines() -> dict[str, MethodUploads]:
    """What each method would send from a site that says nothing about permits."""
    with TemporaryDirectory() as folder:
        return {line.method: line for line in report(Path(folder)).methods}


def test_a_site_that_is_ready(tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    found = report(tmp_path, permits="all")
    assert found.graph.nodes == 40
    assert found.split == "given"
    labelled = CLIENT.graph.y >= 0
    assert found.parts == tuple(int(np.count_nonzero((CLIENT.split == part) & labelled)) for part in (0, 1, 2))
    assert found.permitted == list(federated_methods())
    assert found.reports_metrics
    assert found.privacy == ["Uploads leave as they are: no differential privacy is asked for (dp)."]
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "graph.npz", tmp_path / "site.yaml"])


def test_how_features_will_be_prepared_is_said(tmp_path: Path) -> None:
    found = report(tmp_path)
    assert found.prepare == "standard"
    assert found.preparation.startswith(
        "Numeric columns are standardised by this site's own statistics, which stay here (prepare: standard, as its graph "
        "suggests), unless "
    )
    counts = replace(CLIENT, graph=replace(CLIENT.graph, x=sp.csr_matrix(np.eye(40, 10, dtype=np.float32))))
    path = write_site(tmp_path, as_file(counts))
    assert check_site(path).preparation.startswith(
        "Each node's are divided by their sum, as counts are (prepare: rows, as its graph suggests), unless "
    )
    for said, words in (("none", "They are used as they are"), ("standard", "Numeric columns are standardised")):
        found = check_site(write_site(tmp_path, as_file(counts), prepare=said))
        assert found.prepare == said
        assert found.preparation.startswith(words)
        assert f"(prepare: {said}, as site.yaml says)" in found.preparation


def test_each_method_says_what_it_would_send(tmp_path: Path) -> None:
    found = report(tmp_path, permits=["train_nodes", "model.conv*"])
    lines = {line.method: line for line in found.methods}
    assert lines["fedavg"].refused == ["model.classifier.weight", "model.classifier.bias"]
    assert lines["fedavg"].needs == "permits: [train_nodes, model.conv*, weights]"
    assert [spec.name for spec, _ in lines["fedavg"].uploads] == ["model.*", "train_nodes"]
    assert (lines["fedper"].refused, lines["fedper"].needs) == ([], None)
    assert lines["local"].uploads == []
    layers = {"model.conv1.weight", "model.conv1.bias", "model.conv2.weight", "model.conv2.bias"}
    sent = {name for line in found.methods for name in line.names if name.startswith("model.conv")}
    assert set(found.permits) == {"train_nodes", "model.conv*"}
    assert found.permits["train_nodes"] == ["train_nodes"]
    assert sorted(found.permits["model.conv*"]) == sorted(sent)
    assert sent >= layers


def test_a_site_that_says_nothing_lets_weights_and_counts_leave(tmp_path: Path) -> None:
    found = report(tmp_path)
    assert not found.says_permits
    assert found.site.permits == ["weights", "counts"]
    assert {"fedavg", "fedhero", "fedper", "fedprox", "local", "majority", "quilt"} <= set(found.permitted)
    assert not found.reports_metrics
    needs = {line.method: line.needs for line in found.methods if line.refused}
    assert sorted([*needs, *found.permitted]) == list(federated_methods())
    assert {name: needs.get(name) for name in ("fediih", "fedpub", "fedsheafhn", "fedssa")} == {
        "fediih": "permits: [weights, counts, latent.mean, latent.logvar]",
        "fedpub": "permits: [weights, counts, embedding]",
        "fedsheafhn": "permits: [weights, counts, embedding]",
        "fedssa": "permits: [weights, counts, energy, class.mean, class.covariance]",
    }
    assert "train_nodes" in found.permits["counts"]
    assert "embedding" not in found.permits["weights"]


@pytest.mark.parametrize("method", federated_methods())
def test_the_line_that_a_method_needs_makes_the_site_ready_for_it(tmp_path: Path, method: str) -> None:
    write_site(tmp_path, as_file(CLIENT))
    line = silent_lines()[method]
    if line.needs is not None:
        with pytest.raises(FedquiltError, match=f"'st-anna' is not ready for {method}, which sends .*write 'permits: "):
            check_site(tmp_path / "site.yaml", method)
        (tmp_path / "site.yaml").write_text((tmp_path / "site.yaml").read_text() + line.needs + "\n")
    assert check_site(tmp_path / "site.yaml", method).permitted == [method]


def test_a_method_is_checked_with_its_settings(tmp_path: Path) -> None:
    report(tmp_path)
    path = tmp_path / "site.yaml"
    assert check_site(path, "fedpub", {"matching": False}).permitted == ["fedpub"]
    with pytest.raises(
        FedquiltError, match=r"which sends 'label_share' too; .* 'permits: \[weights, counts, label_share\]'"
    ):
        check_site(path, "fedpub", {"similarity": "label"})
    with pytest.raises(FedquiltError, match="There is no method 'fedpup'"):
        check_site(path, "fedpup")
    assert not report(tmp_path, permits=["model"]).reports_metrics
    assert report(tmp_path, permits=["model", "figures"]).reports_metrics


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"permits": ["modle"]}, "There is no upload 'modle'; did you mean 'model'?"),
        ({"split": "20/40"}, "is not three percentages"),
        ({"split": "2fold"}, "has too few folds"),
        ({"graph": "nowhere.npz"}, "There is no file or folder"),
        ({"graph": "site.yaml"}, "is not an npz file"),
        ({"state": "graph.npz/state"}, "graph.npz is a file"),
        ({"device": "abacus"}, "There is no device 'abacus'"),
        ({"device": "meta"}, "There is no device 'meta'; use auto, cpu or cuda"),
        ({"device": "cuda:x"}, "There is no device 'cuda:x'"),
        ({"permits": ["model.conv"]}, "write 'model.conv*' to permit 'model.conv1."),
        ({"quota": {"rums": 3}}, "there is no field of quota 'rums'; did you mean 'runs'?"),
        ({"quota": {"runs": 0}}, "quota.runs=0 is not possible"),
        ({"quota": 3}, "it has to hold names and values, such as {runs: 100"),
        ({"permits": ["model."]}, "There is no upload 'model.'; did you mean 'model'?"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(FedquiltError) as error:
        report(tmp_path, **fields)
    assert says in str(error.value)


def test_a_device_that_is_not_there_is_said_in_the_words_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    for name in ("cuda", "cuda:1", "mps"):
        with pytest.raises(FedquiltError, match=r"device that PyTorch can use; use device: cpu or auto\.$"):
            report(tmp_path, device=name)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    report(tmp_path, device="cuda:1")
    with pytest.raises(FedquiltError, match="This machine has no device 'cuda:2'; the last one is cuda:1"):
        report(tmp_path, device="cuda:2")


def test_a_split_that_the_graph_lacks_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="has no given split"):
        check_site(write_site(tmp_path, CLIENT.graph, split="given"))


def test_a_state_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_site(tmp_path, CLIENT.graph, state="new/deep")
    check_site(path)
    assert not (tmp_path / "new").exists()

    def forbidden(*_: object, dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr("tempfile.TemporaryFile", forbidden)
    with pytest.raises(FedquiltError, match=r"The state folder .*deep cannot be written to \(Permission denied\)"):
        check_site(path)


def test_a_state_folder_without_permission(tmp_path: Path) -> None:
    check_folder_writable(tmp_path / "new" / "deep")
    assert list(tmp_path.iterdir()) == []
    if os.geteuid() == 0:
        pytest.skip("the superuser may write anywhere")
    (tmp_path / "sealed").mkdir(mode=0o500)
    with pytest.raises(FedquiltError, match="cannot be written to"):
        check_folder_writable(tmp_path / "sealed" / "state")


def test_a_state_folder_that_may_not_be_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", forbidden)
    with pytest.raises(FedquiltError, match=r"cannot be written to \(Permission denied\)"):
        check_folder_writable(tmp_path / "sealed" / "state")


def test_a_site_that_demands_masks_permits_methods_that_do_with_sums(tmp_path: Path) -> None:
    found = report(tmp_path, permits="all", secure_aggregation="required")
    able = [name for name, kind in federated_methods().items() if not kind.single_uploads or not kind.uploads]
    assert found.permitted == able
    assert {"fedavg", "fedhero", "fedper", "fedprox", "local", "majority", "quilt"} <= set(able)
    assert not {"fedpub", "fediih", "fedssa", "fedsheafhn"} & set(able)
    assert "Uploads leave only masked, as parts of sums over three or more sites" in found.masking[0]
    assert "fedpub" in report(tmp_path, permits="all").permitted


class TestPrivacy:
    @pytest.fixture(autouse=True)
    def _accountant(self) -> None:
        pytest.importorskip("dp_accounting", reason="pip install 'fedquilt[dp]'")

    def test_noise_in_words(self, tmp_path: Path) -> None:
        said = " ".join(report(tmp_path, dp={"clip": 2, "noise": 4, "epsilon": 8}).privacy)
        assert "is cut to length 2" in said
        assert "noise of standard deviation 8." in said
        assert f"Epsilon at delta 1e-05: {spent_epsilon(4.0, 1, 1e-5):.3g} after 1" in said
        assert "The budget of epsilon 8 is enough for" in said
        assert "train_nodes" in said

    def test_a_budget_alone_in_words(self, tmp_path: Path) -> None:
        said = " ".join(report(tmp_path, dp={"clip": 1, "epsilon": 8}).privacy)
        assert "as much as keeps a whole run within epsilon 8" in said

    def test_what_was_spent_is_said(self, tmp_path: Path) -> None:
        Budget(tmp_path / "state", DpConfig(clip=1, noise=4)).spend(4.0)
        said = f"Spent so far: epsilon {spent_epsilon(4.0, 1, 1e-5):.3g} in 1 uploads."
        assert said in report(tmp_path, dp={"clip": 1, "noise": 4}).privacy

    def test_a_budget_that_is_not_enough_for_anything(self, tmp_path: Path) -> None:
        with pytest.raises(FedquiltError, match=r"One upload with noise 1 spends epsilon .* more than the budget of 1"):
            report(tmp_path, dp={"clip": 1, "noise": 1, "epsilon": 1})

    def test_metrics_need_not_be_sent(self, tmp_path: Path) -> None:
        assert not report(tmp_path, dp={"clip": 1, "noise": 4, "report": False}).reports_metrics
