"""Secure aggregation equals the plain run within its rounding, with and without drop-outs, and hides single uploads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedquilt.federation.coordinator.planning import plan_method
from fedquilt.federation.secure.fixed_point import FixedPoint
from fedquilt.federation.site.examples import write_sites
from fedquilt.federation.site.site import open_site
from fedquilt.messages.wire import decode
from fedquilt.methods.base import federated_methods
from fedquilt.nn import optim
from support.federations import ragged_clients
from support.flower_doubles import MemoryGrid, federation, loaded_sites, site_states
from support.tampering import header_of

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedquilt[flower]'")

from flwr.app import Message

from fedquilt.federation.flower_messages import unpack

SIZES = (12, 9, 14, 10)
NEAR = 2e-6  # float32's rounding over the rounds; the sum's own is below 1e-9
USUAL_METHODS = ("fedavg", "quilt")  # the others are in `make test-long`
CALM = 1e-4  # Adam's epsilon for them: it makes full steps of rounding where a weight has hardly any gradient
STAGES = ("secure-setup", "secure-share", "round", "secure-confirm", "secure-unmask")


@pytest.fixture(autouse=True)
def _loaded() -> Iterator[None]:
    with loaded_sites():
        yield


class LossyGrid(MemoryGrid):
    """A grid on which in round r >= 1 the site r - 1 is gone from the r-th stage on: requests do not reach it any more."""

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        (message,) = messages
        header, site = header_of(message), message.metadata.dst_node_id - 1000
        gone = header.get("round") == site + 1 and header["kind"] in self.stages_lost(site)
        self.offline = {site + 1000} if gone else set()
        ids = super().push_messages([message])
        self.offline = set()
        return ids

    def stages_lost(self, site: int) -> tuple[str, ...]:
        return STAGES[site:] if "secure" in str(self.sites[1000]) else ("round",) if site < 3 else ()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in USUAL_METHODS else [pytest.mark.long])
        for name, kind in federated_methods().items()
        if kind.uploads and not kind.single_uploads
    ],
)
def test_a_secure_run_with_drop_outs_is_the_plain_run_without_their_uploads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that drops out after its masked upload came is in the sum: nothing is lost."""
    if name not in USUAL_METHODS:
        monkeypatch.setattr(optim, "EPSILON", CALM)
    clients, runs = ragged_clients(SIZES), []
    options = {"method": name, "rounds": 5, "timeout": 0.2, "tries": 1, "min_sites": 3}
    for folder in (tmp_path / "secure", tmp_path / "plain"):
        grid = LossyGrid(write_sites(folder, clients, permits="all"))
        runs.append(federation(folder, clients, grid, secure_aggregation=folder.name == "secure", **options))
        runs[-1].run()
    one, two = runs
    there = [record["participants"] for record in one.folder.seed(3).records()]
    assert there[:5] == ["all", [1, 2, 3], [0, 2, 3], [0, 1, 3], "all"]
    assert set(there[5:]) <= {"all"}  # of later phases
    for mine, other in zip(one.folder.seed(3).records(), two.folder.seed(3).records(), strict=True):
        for key in ("val", "test", "train_loss", "val_loss"):
            assert (key in mine) == (key in other)
            assert key not in mine or mine[key] == pytest.approx(other[key], abs=1e-5), (mine["round"], key)
        assert mine["participants"] == other["participants"]
        assert mine["bytes_up"] == {name: 2 * count for name, count in other["bytes_up"].items()}
    for mine, other in zip(site_states(tmp_path / "secure"), site_states(tmp_path / "plain"), strict=True):
        for key, tensor in other.items():
            if key.startswith("model."):
                assert float((mine[key] - tensor).abs().max()) < NEAR, key


def test_what_the_coordinator_receives_of_a_site_is_unrelated_to_its_upload(tmp_path: Path) -> None:
    clients = ragged_clients((25, 14, 31))
    grid = MemoryGrid(write_sites(tmp_path, clients, permits="all"))
    received: dict[int, np.ndarray] = {}

    def listen(node: int, message: Message, reply: Message) -> Message:
        if header_of(message).get("kind") == "round":
            received[node - 1000] = np.frombuffer(unpack(reply.content)[1], "<u8")
        return reply

    grid.tamper = listen
    there = federation(
        tmp_path, clients, grid, method="quilt", rounds=1, secure_aggregation=True, settings={"hidden": 128}
    )
    there.run()
    sent = {}
    for m in received:
        (run,) = (path for path in (tmp_path / f"site-{m}" / "state").iterdir() if path.is_dir())
        saved = open_site(tmp_path / f"site-{m}" / "site.yaml").state(run.name).load()
        assert saved is not None
        sent[m] = upload_vector(there, saved[1]["answer"].numpy().tobytes())
    for m, masked in received.items():
        assert masked.shape == sent[m].shape
        counts = np.bincount(np.frombuffer(masked.tobytes(), np.uint8), minlength=256)
        expected = counts.sum() / 256
        assert float(((counts - expected) ** 2 / expected).sum()) < 255 + 5 * (2 * 255) ** 0.5
        both = np.corrcoef(masked.view(np.int64).astype(float), sent[m].view(np.int64).astype(float))
        assert abs(both[0, 1]) < 5 / len(masked) ** 0.5
        plain = np.bincount(np.frombuffer(sent[m].tobytes(), np.uint8), minlength=256)
        assert float(((plain - expected) ** 2 / expected).sum()) > 10 * 255  # which the upload itself fails


def upload_vector(there: Any, upload: bytes) -> np.ndarray:
    """A site's upload as whole numbers, before the masks."""
    sites = [open_site(path).introduction() for path in there.roster.grid.sites.values()]
    method = plan_method(there.config, sites)
    fixed = FixedPoint(len(sites), there.config.secure_range)
    within, clipped = fixed.clipped(decode(upload), method.uploads)
    return fixed.encode(method.summands(within), clipped)


def test_noise_and_masks_go_together(tmp_path: Path) -> None:
    """Uploads are clipped and noised first; the sum is that of what a plain run would have sent."""
    site = {"dp": {"clip": 1.0, "noise": 2.0}}
    there = federation(
        tmp_path, ragged_clients(SIZES[:3]), site=site, method="quilt", rounds=2, secure_aggregation=True
    )
    there.run()
    records = there.folder.seed(3).records()
    assert [record["participants"] for record in records] == ["all", "all"]
    assert records[-1]["epsilon"] > records[0]["epsilon"] > 0
    assert records[-1]["clipped"] == 0
