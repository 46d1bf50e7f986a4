"""Exported models of the first format give the outputs that they gave then.

The folders in format_1/ were written by the code that had this format: `model.json`, `model.safetensors`, and the outputs of
the module on the graph of `graph.safetensors`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedquilt.common.sealed import read_pair, write_pair
from fedquilt.errors import FedquiltError
from fedquilt.export.storage import load_module, save_module
from support.clients import assert_near

FOLDER = Path(__file__).with_name("format_1")
CASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_the_code_that_wrote_it(case: str, tmp_path: Path) -> None:
    graph = load_file(FOLDER / "graph.safetensors")
    module = load_module(FOLDER / case)
    logits = module(graph["x"], graph["edge_index"])
    assert_near(logits.detach(), load_file(FOLDER / case / "logits.safetensors")["logits"], 1e-5)
    assert module.class_names == ("a", "b", "c")
    save_module(module, tmp_path)  # from then on it is of the format of now
    assert torch.equal(load_module(tmp_path)(graph["x"], graph["edge_index"]), logits)


def test_every_network_of_the_format_is_among_them() -> None:
    networks = {read_pair(FOLDER / case / "model")[1]["network"] for case in CASES}
    assert networks == {"Majority", "Backbone", "Filters", "Spectral", "Routing", "Structure"}


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    weights, facts = read_pair(FOLDER / "backbone-gcn" / "model")

    def altered(said: str, **changes: object) -> None:
        write_pair(tmp_path / "model", weights, facts | changes)
        with pytest.raises(FedquiltError, match=said):
            load_module(tmp_path)

    altered("There is no network 'Backbon'; did you mean 'Backbone'", network="Backbon")
    altered("model='transformer' of method 'local' is not possible", config=facts["config"] | {"kind": "transformer"})
    altered("does not describe a model", config={"kind": "gcn"})
    altered("hidden='wide' of method 'local' is not possible", config=facts["config"] | {"hidden": "wide"})
    altered("'classifier.weight' is 4x3 where 9x3 belongs", config=facts["config"] | {"hidden": 9})
    altered("not those of its network", config=facts["config"] | {"features": 10**12})
