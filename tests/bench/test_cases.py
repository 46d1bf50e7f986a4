from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.bench.cases import DEFAULTS, SYNTHETIC, Case, chosen_cases, load_cases, parse_case
from fedquilt.errors import FedquiltError
from fedquilt.graphs.npz import write_npz
from support.small_runs import own_graph


def test_a_case_is_read_as_it_is_written() -> None:
    case = Case("cora", "overlapping", 50)
    assert parse_case(str(case)) == case
    assert parse_case("some/folder/mine.npz/disjoint/3") == Case("some/folder/mine.npz", "disjoint", 3)


@pytest.mark.parametrize("text", ["cora", "cora/disjoint", "cora/disjoint/ten", "cora/disjoint/0", "/disjoint/3", ""])
def test_what_is_not_a_case_is_refused(text: str) -> None:
    with pytest.raises(FedquiltError, match="is not a cell; write dataset/partition/clients"):
        parse_case(text)


def test_a_case_of_an_unknown_partition_or_parameter_is_refused() -> None:
    with pytest.raises(FedquiltError, match="no partition 'disjiont'; did you mean 'disjoint'"):
        parse_case("cora/disjiont/10")
    with pytest.raises(FedquiltError, match="has no parameter 'x'"):
        parse_case("cora:x=1/disjoint/10")


def test_a_known_graph_that_is_not_here_is_left_out_with_a_sentence(elsewhere: Path) -> None:
    absent = Case("credit", "disjoint", 5)
    loaded, left_out = load_cases([absent, SYNTHETIC, SYNTHETIC], ["fedavg"], "cpu")
    assert [one.case for one in loaded] == [SYNTHETIC]
    (sentence,) = left_out
    assert sentence.startswith("credit/disjoint/5 is left out: ")


def test_an_unknown_graph_is_an_error(elsewhere: Path) -> None:
    with pytest.raises(FedquiltError, match="no dataset 'coar'; did you mean 'cora'"):
        load_cases([Case("coar", "disjoint", 5)], ["fedavg"], "cpu")


def test_a_cut_with_another_number_of_clients_is_an_error() -> None:
    with pytest.raises(FedquiltError, match=r"gives 10 clients; write patchwork/natural/10\."):
        load_cases([Case("patchwork", "natural", 7)], ["fedavg"], "cpu")


def test_a_graph_of_ones_own_can_be_a_case(tmp_path: Path) -> None:
    write_npz(own_graph(), tmp_path / "mine.npz")
    (loaded,), left_out = load_cases([Case(str(tmp_path / "mine.npz"), "random", 3)], ["fedavg", "quilt"], "cpu")
    training = loaded.resolve("quilt").training(0)
    training.advance(2)
    assert not left_out
    assert [record["round"] for record in training.records] == [0, 1]


def test_the_named_cases_or_the_defaults_are_chosen_and_the_built_in_graph_always() -> None:
    assert chosen_cases(None) == [*DEFAULTS, SYNTHETIC]
    assert chosen_cases(None, quick=True) == [SYNTHETIC]
    assert chosen_cases(["cora/disjoint/5"]) == [Case("cora", "disjoint", 5), SYNTHETIC]
