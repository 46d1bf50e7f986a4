"""The in-process engine: participation, chunks, messages, and going on from a saved state."""

from __future__ import annotations

import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import federated_methods, methods
from fedquilt.tasks.node_classification import accuracy, losses
from fedquilt.training.engines.base import Evaluation
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.plan import Plan
from support.federations import assert_same, copied, make_method, make_task, make_training, ragged_clients

SOME = torch.tensor([1, 3])


SIZES = [None, 1, 2, 3]


def start(name: str, cohort_size: int | None = None) -> tuple[InProcess, dict]:
    clients = ragged_clients()
    method = make_method(name, clients)
    return InProcess(method, clients, cohort_size=cohort_size), method.server_start()[1]


def figures(report: Evaluation) -> dict[str, torch.Tensor]:
    return {name: getattr(report, name) for name in Evaluation.__dataclass_fields__}


@pytest.mark.parametrize("cohort_size", [None, 2])
@pytest.mark.parametrize("name", [n for n in methods() if n != "majority"])
def test_only_participants_change(name: str, cohort_size: int | None) -> None:
    engine, down = start(name, cohort_size)
    before, standing = copied(engine.state()), figures(engine.evaluate())
    uploads, report = engine.round(0, SOME, down, evaluate=True)
    after = engine.state()
    others = [m for m in range(5) if m not in SOME.tolist()]
    for key in (k for k in before if not k.startswith("figures.")):
        assert torch.equal(after[key][others], before[key][others]), key
    weights = [f"model.{key}" if f"model.{key}" in before else key for key in engine.personal()]
    for m in SOME.tolist():
        assert any(not torch.equal(after[key][m], before[key][m]) for key in weights), m
    for key, tensor in uploads.items():
        assert len(getattr(tensor, "tensor", tensor)) == 2, key
    # Figures of those who sat out stay what they were.
    for key, values in figures(report).items():
        assert torch.equal(values[others].nan_to_num(-1), standing[key][others].nan_to_num(-1)), key
    assert torch.isfinite(report.train_loss[SOME]).all()
    assert report.train_loss[others].isnan().all()
    # The personal models that follow are those of the new states.
    assert_same(engine.personal(), engine.method.personal(after))


@pytest.mark.parametrize("cohort_size", SIZES)
def test_chunks_give_what_one_cohort_gives(cohort_size: int | None) -> None:
    """Uploads in rising order of the clients, however they are chunked; chunks without a participant are passed over."""
    for chosen in (torch.arange(5), SOME, torch.tensor([4])):
        (whole, down), (cut, _) = start("fedavg"), start("fedavg", cohort_size)
        for r in range(2):
            (one, mine), (two, other) = (engine.round(r, chosen, down, True) for engine in (whole, cut))
            assert list(one) == list(two)
            for name in one:
                assert torch.allclose(one[name], two[name], atol=1e-6), name
            for name, values in figures(mine).items():
                assert torch.allclose(values, figures(other)[name], atol=1e-5, equal_nan=True)
        assert torch.allclose(whole.personal()["conv1.weight"], cut.personal()["conv1.weight"], atol=1e-6)


@pytest.mark.parametrize("cohort_size", SIZES)
def test_evaluate_before_training_measures_the_start(cohort_size: int | None) -> None:
    engine, _ = start("fedavg", cohort_size)
    report = engine.evaluate()
    cohort = Cohort(ragged_clients())
    logits = engine.method.logits(engine.method.personal(engine.method.start(cohort)), cohort)
    assert torch.allclose(report.val, accuracy(cohort, logits, cohort.val))
    assert torch.allclose(report.test, accuracy(cohort, logits, cohort.test))
    assert torch.allclose(report.val_loss, losses(cohort, logits, cohort.val))
    assert report.train_loss.isnan().all()
    assert all(values.shape == (5,) for values in figures(report).values())


def test_a_report_is_a_copy_and_comes_when_asked_for() -> None:
    engine, down = start("local")
    first = engine.evaluate()
    kept = first.val_loss.clone()
    assert engine.round(0, torch.arange(5), down, evaluate=False)[1] is None
    _, report = engine.round(1, torch.arange(5), down, evaluate=True)
    assert torch.equal(first.val_loss, kept)
    assert not torch.equal(report.val_loss, kept)


@pytest.mark.parametrize("sizes", [(None, None), (3, 1)])
@pytest.mark.parametrize("name", federated_methods())
def test_state_and_restore(name: str, sizes: tuple[int | None, int | None]) -> None:
    """What was saved with one cohort size can be gone on from with another."""
    engine, down = start(name, sizes[0])
    engine.evaluate()
    engine.round(0, SOME, down, True)
    saved = copied(engine.state())
    fresh, _ = start(name, sizes[1])
    fresh.personal()  # what is remembered of the old models must be forgotten
    fresh.restore(saved)
    assert_same(copied(fresh.state()), saved)
    assert_same(fresh.personal(), engine.personal())
    one, two = (each.round(1, torch.tensor([0, 1, 4]), down, True) for each in (engine, fresh))
    for key, values in figures(one[1]).items():
        assert torch.allclose(values, figures(two[1])[key], atol=1e-5, equal_nan=True)
    if sizes[0] == sizes[1]:
        assert_same(copied(one[0]), copied(two[0]))
        assert_same(copied(engine.state()), copied(fresh.state()))


def test_restore_copies() -> None:
    engine, down = start("fedavg")
    saved = copied(engine.state())
    kept = copied(saved)
    engine.restore(saved)
    engine.round(0, torch.arange(5), down, True)
    assert_same(saved, kept)


def spoil(engine: InProcess, clients: list[int], value: float, parts: tuple[str, ...] = ("val", "test")) -> None:
    """Make one logit of some clients `value` at the rows of these parts; with no part, at all rows not measured."""
    logits = engine.method.logits

    def spoiled(personal: dict, cohort: Cohort) -> torch.Tensor:
        out = logits(personal, cohort).clone()
        chosen = torch.zeros(cohort.rows, dtype=torch.bool)
        for part in parts or ("val", "test"):
            chosen[getattr(cohort, part)] = True
        chosen = chosen if parts else ~chosen
        out[torch.isin(cohort.ids[cohort.client], torch.tensor(clients)) & chosen, -1] = value
        return out

    engine.method.logits = spoiled


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("cohort_size", [None, 4])
def test_a_model_that_gives_no_numbers_is_refused(value: float, cohort_size: int | None) -> None:
    engine, down = start("fedavg", cohort_size)
    engine.evaluate()
    spoil(engine, [1, 3], value)
    for measure in (engine.evaluate, lambda: engine.round(0, torch.arange(5), down, evaluate=True)[1]):
        with pytest.raises(
            FedquiltError, match=r"Training diverged: no finite numbers come from the models of clients 1, 3 any"
        ):
            measure().check_finite()
    report = engine.round(3, torch.tensor([0, 2]), down, evaluate=True)[1]  # others go on
    assert torch.isfinite(report.val_loss[[0, 2]]).all()
    assert report.finite.tolist() == [1, 0, 1, 0, 1]


def test_one_model_that_gives_no_numbers_is_named() -> None:
    engine, down = start("fedavg")
    spoil(engine, [3], torch.nan)
    report = engine.round(1, torch.tensor([0, 3]), down, evaluate=True)[1]
    with pytest.raises(FedquiltError, match=r"from the model of client 3 any more; use a smaller learning rate"):
        report.check_finite()
    with pytest.raises(FedquiltError, match=r"from the model of client 13 any more"):
        report.check_finite(first=10)


@pytest.mark.parametrize("part", ["val", "test"])
def test_both_measured_parts_are_looked_at(part: str) -> None:
    engine, _ = start("local")
    spoil(engine, [2], torch.nan, parts=(part,))
    with pytest.raises(FedquiltError, match="from the model of client 2 any more"):
        engine.evaluate().check_finite()


def test_only_the_first_five_are_named() -> None:
    clients = ragged_clients((9, 10, 11, 12, 13, 14, 15))
    engine = InProcess(make_method("local", clients), clients)
    spoil(engine, [0, 1, 2, 4, 5, 6], torch.nan)
    with pytest.raises(FedquiltError, match=r"from the models of clients 0, 1, 2, 4, 5 and others any more"):
        engine.evaluate().check_finite()


def test_rows_that_are_not_measured_may_be_anything() -> None:
    """Training rows, rows in no part and padding."""
    engine, _ = start("fedavg")
    before = figures(engine.evaluate())
    spoil(engine, [0, 1, 2, 3, 4], torch.nan, parts=())
    assert_same(figures(engine.evaluate()), before)


def test_a_learning_rate_far_too_large_is_refused() -> None:
    clients = ragged_clients()
    method = make_method("fedavg", clients, lr=1e30)
    engine, down = InProcess(method, clients), method.server_start()[1]
    with pytest.raises(FedquiltError, match=r"from the models of clients 0, 1, 2, 3, 4 any more"):
        engine.round(0, torch.arange(5), down, evaluate=True)[1].check_finite()


# -- clients that come after training ----------------------------------------------------------------


@pytest.mark.parametrize("cohort_size", SIZES)
def test_clients_may_have_any_numbers_in_rising_order(cohort_size: int | None) -> None:
    late = ragged_clients()[2:]
    method = make_method("fedavg", late)
    engine = InProcess(method, late, cohort_size=cohort_size)
    before = engine.evaluate()
    assert torch.isfinite(before.val).all()
    uploads, report = engine.round(0, torch.tensor([2, 4]), {}, evaluate=True)
    assert all(len(value) == 2 for value in uploads.values())
    assert report.train_loss.isnan().tolist() == [False, True, False]
    assert report.val_loss[1] == before.val_loss[1]
    assert report.val_loss[0] != before.val_loss[0]


@pytest.mark.parametrize("cohort_size", SIZES)
def test_settle_is_a_last_step_for_everyone(cohort_size: int | None) -> None:
    """Of one epoch, where newcomers have as many: what the second round of training is."""
    clients = ragged_clients()
    method = make_method("fedavg", clients, make_task(clients, newcomer_epochs=1))
    engine, other = (InProcess(method, clients, cohort_size=cohort_size) for _ in range(2))
    for each in (engine, other):
        each.round(0, torch.arange(5), {}, evaluate=False)
    report = engine.settle({})
    _, expected = other.round(1, torch.arange(5), {}, evaluate=True)
    assert_same(figures(report), figures(expected))
    assert_same(engine.personal(), other.personal())


@pytest.mark.parametrize("cohort_size", SIZES)
def test_probabilities_of_every_node(cohort_size: int | None) -> None:
    engine, _ = start("fedavg", cohort_size)
    cohort = Cohort(ragged_clients())
    logits = engine.method.logits(engine.method.personal(engine.method.start(cohort)), cohort)
    for mine, expected in zip(engine.predictions(), cohort.parts_of(logits.softmax(1)), strict=True):
        assert torch.allclose(mine, expected, atol=1e-6)
    spoil(engine, [3], torch.nan, parts=("train",))
    with pytest.raises(FedquiltError, match="from the model of client 3 any more"):
        engine.predictions()


@pytest.mark.parametrize("cohort_size", [1, 2])
def test_each_chunk_gets_its_own_part_of_a_download(cohort_size: int) -> None:
    clients = ragged_clients()
    trainings = [
        make_training(make_method("fedpub", clients, threshold=0.3), clients, Plan(3, participation=0.6), size)
        for size in (None, cohort_size)
    ]
    seen: list[dict] = []
    engine = trainings[1].engine
    whole = engine.method.local_update

    def spied(state: dict, cohort: Cohort, down: dict, round: int) -> object:
        seen.append({"round": round, "ids": cohort.ids.tolist(), "down": copied(down)})
        return whole(state, cohort, down, round)

    engine.method.local_update = spied
    for training in trainings:
        training.run()
    for record in trainings[1].records:
        mine = [each for each in seen if each["round"] == record["round"]]
        assert [i for each in mine for i in each["ids"]] == record["participants"]
        for each in mine:
            assert len(each["ids"]) <= cohort_size
            for name, tensor in each["down"].items():
                assert name == "graph_seed" or len(tensor) == len(each["ids"])


def test_checkpoints_name_metrics_as_they_always_did() -> None:
    engine, _ = start("local")
    saved = {name for name in engine.state() if name.startswith("figures.")}
    assert saved == {"figures.train_loss", "figures.val_loss", "figures.val", "figures.test", "figures.sound"}
