"""Engines by name: the options of a run choose one, and a name that does not exist is one sentence."""

from __future__ import annotations

import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.engines.registry import EngineOptions, find_engine, make_engine
from support.federations import make_method, ragged_clients

CPU = torch.device("cpu")


def test_workers_choose_the_engine() -> None:
    assert EngineOptions(CPU).engine == "in_process"
    assert EngineOptions(CPU, workers=2).engine == "ray_workers"


def test_the_options_reach_the_engine() -> None:
    clients = ragged_clients()
    engine = make_engine(make_method("fedavg", clients), clients, EngineOptions(CPU, cohort_size=2, precision="mixed"))
    assert isinstance(engine, InProcess)
    assert [part.cohort.clients for part in engine.parts] == [2, 2, 1]
    assert (engine.precision, engine.device) == ("mixed", CPU)


def test_a_name_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(FedquiltError, match="There is no engine 'in_proces'; did you mean 'in_process'"):
        find_engine("in_proces")
    with pytest.raises(FedquiltError, match="There is no engine 'base'"):  # a module here that is no engine
        find_engine("base")
