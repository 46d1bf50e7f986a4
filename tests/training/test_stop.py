from __future__ import annotations

from fedquilt.training.plan import Plan
from fedquilt.training.stop import StopRun
from support.federations import make_method, make_training, ragged_clients


def test_a_training_stops_after_the_round_that_asked_for_it() -> None:
    def on_round(record: dict) -> None:
        if record["round"] == 1:
            raise StopRun("enough")

    clients = ragged_clients()
    training = make_training(make_method("fedavg", clients), clients, Plan(4), on_round=on_round)
    training.run()
    assert [record["round"] for record in training.records] == [0, 1]
    assert training.stop is not None
    assert not training.complete
    assert training.stop.reason == "enough"


def test_a_stop_has_a_reason() -> None:
    assert StopRun().reason == "a callback asked for it"
    assert StopRun("two\n lines").reason == "two lines"
