"""What a study's file may say, and how its places get their options."""

from __future__ import annotations

import itertools
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.studies.catalogue_files import common_candidates
from fedquilt.studies.spec import Study, find_study
from support.tiny_studies import TINY, study_of

METHODS = TINY["axes"]["method"]
CLIENTS = {"clients": [2, 3]}


def refusal(folder: Path, **changes: Any) -> str:
    """The one sentence with which a study is refused."""
    with pytest.raises(FedquiltError) as caught:
        study_of(folder, **changes)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith("The study tiny is not sound")
    assert sentence.endswith(".")
    assert not sentence.endswith("..")
    for jargon in ("NoneType", "object has no attribute", "update sequence", "not iterable"):
        assert jargon not in sentence
    return sentence


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"options": {"colour": 1}}, "a study cannot set 'colour'; it can set aggregation"),
        ({"options": {"seeds": [1]}}, "a study cannot set 'seeds'"),
        ({"options": {"device": "cpu"}}, "a study cannot set 'device'"),
        ({"axes": {"method": [{"label": "a", "colour": 1}], **CLIENTS}}, "a study cannot set 'colour'"),
        ({"overrides": [{"where": {"clients": 2}, "colour": 1}]}, "a study cannot set 'colour'"),
        ({"axes": {"colour": ["red"], **CLIENTS}}, "colour is no option of a run, so write its level 'red' as a mapping"),
        ({"axes": {"method": ["local", "local"], **CLIENTS}}, "the levels of method need labels of their own"),
        ({"axes": {"method": ["local", "average"], **CLIENTS}}, "none may be 'average'"),
        ({"axes": {"method": [{"dataset": "patchwork"}], **CLIENTS}}, "the levels of method need labels of their own"),
        ({"axes": {"method": [], **CLIENTS}}, "at axes.method: List should have at least 1 item"),
        ({"axes": {"method": [{"label": 5, "method": "local"}], **CLIENTS}}, "at axes.method.0.label: Input should be"),
        ({"rows": ["colour"]}, "there is no axis colour; there are method, clients"),
        ({"columns": ["colour"]}, "there is no axis colour"),
        ({"columns": ["method"]}, "rows and columns need an axis each, and no axis twice"),
        ({"rows": []}, "rows and columns need an axis each"),
        ({"skip": [{"colour": "red"}]}, "there is no axis colour"),
        ({"skip": [{"method": "FedSage+"}]}, "the axis method has no level 'FedSage+'; it has FED-PUB, FedAvg, Local"),
        ({"overrides": [{"where": {"clients": [2, 7]}, "rounds": 5}]}, "the axis clients has no level '7'"),
        ({"figures": [{"kind": "convergence", "where": {"method": "fedpub"}}]}, "the axis method has no level 'fedpub'"),
        ({"figures": [{"kind": "lines"}]}, "there is no axis x"),
        ({"choose_at": {"colour": {"red": "blue"}}}, "there is no axis colour"),
        ({"choose_at": {"clients": {3: 7}}}, "the axis clients has no level '7'"),
        ({"choose_at": {"clients": [3]}}, "clients must be names with something each"),
        ({"seeds": [3, 3]}, "seeds must list seeds, each once"),
        ({"choose_on": []}, "choose_on must list seeds, each once"),
        ({"seeds": [-1]}, "at seed_list.0: Input should be greater than or equal to 0"),
        ({"claim": None}, "it needs a claim (a paper's conclusion) or a question (of your own), and not both"),
        ({"question": "Does it?"}, "and not both"),
        ({"figures": [{"kind": "bars", "x": "clients", "by": "colour"}]}, "there is no axis colour"),
        ({"figures": [{"kind": "pie"}]}, "at figures.0.kind: Input should be 'convergence'"),
        ({"figures": [{"kind": "convergence", "value": "cost"}]}, "a figure draws cost, which is not among the values"),
        ({"better": {"cost": "lower"}}, "better speaks of cost, which is not among the values"),
        ({"better": {"test": "best"}}, "at better.test: Input should be 'higher'"),
        ({"seeds": 0}, "at seeds: Input should be greater than or equal to 1"),
        ({"choose_on": 0}, "at choose_on: "),
        ({"of": "walk"}, "at of: Input should be 'run'"),
        ({"title": None}, "at title: Field required"),
        ({"axes": None}, "at axes: Field required"),
        ({"colour": "red"}, "at colour: Extra inputs are not permitted"),
        ({"axes": ["method"]}, "axes must be names with something each"),
        ({"axes": {"method": "fedpub", **CLIENTS}}, "the levels of method must be a list"),
        ({"options": ["rounds"]}, "options must be names with something each"),
        ({"overrides": {"where": {}}}, "overrides must be a list"),
        ({"overrides": ["rounds"]}, "each of overrides must be names with something each"),
        ({"overrides": [{"where": ["clients"]}]}, "where must be names with something each"),
        ({"skip": ["clients"]}, "each of skip must be names with something each"),
        ({"figures": "lines"}, "figures must be a list"),
        ({"options": {"settings": 3}}, "settings cannot be 3: input should be a valid dictionary"),
        ({"options": {"settings": {"lr": date(2020, 1, 2)}}}, "YAML reads it as a date, which no option is"),
        ({"options": {"rounds": 1e400}}, "rounds cannot be inf: it is not a finite number"),
        ({"options": {"dataset": "x" * 5000}}, "it has 5,000 characters, more than the 4,096 of the longest path"),
        ({"axes": {"method": [["fedpub"]], **CLIENTS}}, "method cannot be ['fedpub']: input should be a valid string"),
        ({"axes": {"method": [{"method": {"a": 1}}], **CLIENTS}}, "method cannot be {'a': 1}"),
        ({"axes": {"method": [{"method": "fedpub", "candidates": [{"lr": b"x"}]}], **CLIENTS}}, "candidates cannot be"),
        ({"overrides": [{"where": {}, "settings": [1]}]}, "settings cannot be [1]"),
        ({"seeds": 10**18}, "its axes and seeds make more than 1,000,000 cells"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_study_is_one_sentence(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    assert says in refusal(tmp_path, **changes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("axes: [", "is not valid YAML (line 1)"),
        ("- a\n- b\n", "must hold names and values"),
        ("", "must hold names and values"),
    ],
)
def test_a_file_that_is_no_study_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(FedquiltError, match=r"odd\.yaml") as caught:
        find_study(str(path))
    assert says in str(caught.value)


def test_a_file_that_is_not_there_and_a_name_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="cannot be read: No such file or directory"):
        find_study(str(tmp_path / "none.yaml"))
    with pytest.raises(FedquiltError, match="There is no study 'fedpub-tabel-1'; did you mean 'fedpub-table-1'"):
        find_study("fedpub-tabel-1")


# -- what a place is told ----------------------------------------------------------------------------


def test_options_are_the_studys_then_the_levels_then_the_overrides(tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        options={"rounds": 1, "epochs": 1, "metric": "accuracy", "settings": {"a": 1, "b": 1, "c": 1}},
        axes={
            "method": [{"label": "Mine", "method": "local", "rounds": 2, "settings": {"b": 2, "d": 2}}, "fedavg"],
            "clients": [2, {"label": "few", "clients": 3, "epochs": 3, "rounds": 3, "settings": {"d": 3}}],
        },
        overrides=[
            {"where": {"clients": "few"}, "settings": {"c": 4, "e": 4}},
            {"where": {"method": ["Mine"], "clients": ["few"]}, "metric": "auc", "settings": {"e": 5}},
        ],
    )
    assert study.options_at({"method": "Mine", "clients": "few"}) == {
        "method": "local",
        "clients": 3,
        "rounds": 3,  # the later axis wins
        "epochs": 3,
        "metric": "auc",
        "settings": {"a": 1, "b": 2, "d": 3, "c": 4, "e": 5},
    }
    assert study.options_at({"method": "fedavg", "clients": "2"}) == {
        "method": "fedavg",
        "clients": 2,
        "rounds": 1,
        "epochs": 1,
        "metric": "accuracy",
        "settings": {"a": 1, "b": 1, "c": 1},
    }
    assert study.options == {"rounds": 1, "epochs": 1, "metric": "accuracy", "settings": {"a": 1, "b": 1, "c": 1}}


def test_candidates_are_the_overrides_else_the_levels_else_the_common_ones(tmp_path: Path) -> None:
    axes = {
        "method": [{"label": "Local", "method": "local", "candidates": [{"lr": 1}, {"lr": 2}]}, "fedavg", "fedpub"],
        "clients": [2, 3],
    }
    overrides = [
        {"where": {"clients": 3}, "candidates": [{"lr": 9}]},
        {"where": {"clients": 3, "method": "fedpub"}, "candidates": []},
    ]
    study = study_of(tmp_path, axes=axes, overrides=overrides)

    def at(study: Study, method: str, clients: str) -> list[dict[str, Any]]:
        return study.candidates_at({"method": method, "clients": clients})

    assert at(study, "Local", "2") == [{"lr": 1}, {"lr": 2}]
    assert at(study, "Local", "3") == [{"lr": 9}]
    assert at(study, "fedavg", "2") == [{}]
    assert at(study, "fedpub", "3") == [{}]
    tuned = study_of(tmp_path, axes=axes, overrides=overrides, tuned=True)
    assert at(tuned, "Local", "2") == [{"lr": 1}, {"lr": 2}]
    assert at(tuned, "fedavg", "2") == common_candidates()["fedavg"]
    assert at(tuned, "fedpub", "3") == [{}]  # an override without any means: nothing to choose


@given(st.data())
def test_places_are_all_combinations_but_those_skipped(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    axes = {"method": ["local", "fedavg", "fedpub"], "clients": [2, 3], "rounds": [4, 5]}
    some = {axis: st.lists(st.sampled_from([str(v) for v in vs]), min_size=1, unique=True) for axis, vs in axes.items()}
    one = st.dictionaries(st.sampled_from(list(axes)), st.none(), min_size=1).flatmap(
        lambda chosen: st.fixed_dictionaries({axis: some[axis] for axis in chosen})
    )
    skip = data.draw(st.lists(one, max_size=3))
    study = study_of(tmp_path_factory.mktemp("s"), axes=axes, skip=skip)
    expected = [
        dict(zip(axes, map(str, labels), strict=True))
        for labels in itertools.product(*axes.values())
        if not any(all(str(labels[list(axes).index(a)]) in names for a, names in each.items()) for each in skip)
    ]
    assert list(study.places()) == expected
    assert study.tables == ["rounds"]


def test_why_a_place_is_missing(tmp_path: Path) -> None:
    axes = {"method": ["local", {"label": "X", "method": "x", "missing": "no code"}], "clients": [2, 3]}
    study = study_of(tmp_path, axes=axes, overrides=[{"where": {"clients": 3}, "missing": "too few nodes"}])
    reasons = [study.missing_at(at) for at in study.places()]
    assert reasons == [None, "too few nodes", "no code", "no code"]


# -- a part of a study -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["FED-PUB", "fed-pub", "fedpub", "Fed Pub", "FEDPUB"])
def test_only_knows_a_level_by_its_label_or_its_option_however_it_is_typed(tmp_path: Path, name: str) -> None:
    part = study_of(tmp_path).only({"method": [name]})
    assert [level.label for level in part.axes["method"]] == ["FED-PUB"]
    assert [level.label for level in part.axes["clients"]] == ["2", "3"]


def test_only_by_option_where_the_label_is_another(tmp_path: Path) -> None:
    axes = {"method": ["local"], "clients": [{"label": "few", "clients": 2}, {"label": "many", "clients": 30}]}
    study = study_of(tmp_path, axes=axes)
    assert [level.label for level in study.only({"clients": ["30"]}).axes["clients"]] == ["many"]
    assert [level.label for level in study.only({"clients": ["MANY", "2"]}).axes["clients"]] == ["few", "many"]
    assert study.only({}) == study


def test_only_tells_the_nearest_name(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    with pytest.raises(FedquiltError, match=r"There is no method of tiny 'fedagv'; did you mean 'FedAvg'\?"):
        study.only({"method": ["fedagv"]})
    with pytest.raises(FedquiltError, match=r"There is no clients of tiny '77'; choose one of: 2, 3\."):
        study.only({"clients": ["77"]})
    with pytest.raises(FedquiltError, match=r"There is no axis of tiny 'metod'; did you mean 'method'\?"):
        study.only({"metod": ["local"]})


def test_only_asks_for_the_level_at_which_settings_are_chosen(tmp_path: Path) -> None:
    study = study_of(tmp_path, choose_at={"clients": {3: 2}})
    with pytest.raises(FedquiltError, match=r"settings of clients=3 are chosen at clients=2; add that to --only\.$"):
        study.only({"clients": ["3"]})
    assert len(study.only({"clients": ["2"]}).axes["clients"]) == 1


def test_the_sentence_under_the_title_is_the_papers_claim_or_the_studys_question(tmp_path: Path) -> None:
    assert study_of(tmp_path).lead == "The paper says: Nobody claims anything."
    assert study_of(tmp_path, claim=None, question="Who wins?").lead == "The question: Who wins?"


# -- a study that is like another --------------------------------------------------------------------------------------


def written(folder: Path, values: dict[str, Any], name: str = "mine") -> str:
    """A file with these values alone; what find_study takes."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("like", ["quilt-comparison", "fedpub-table-1", "quilt-unseen-seeds"])
def test_a_users_study_may_be_like_one_of_the_catalogue(tmp_path: Path, like: str) -> None:
    """It has all that the other has, but for what it says itself, whole: nothing inside of that is merged."""
    base = find_study(like)
    assert find_study(written(tmp_path, {"like": like})) == base.model_copy(update={"name": "mine"})
    mine = find_study(
        written(tmp_path, {"like": like, "title": "Mine: others", "seeds": [11, 12], "options": {"rounds": 3}})
    )
    assert (mine.name, mine.title, mine.reported_seeds(), mine.options) == (
        "mine",
        "Mine: others",
        [11, 12],
        {"rounds": 3},
    )
    same = {"name": "mine", "title": mine.title, "seeds": 2, "seed_list": [11, 12], "options": mine.options}
    assert mine == base.model_copy(update=same)
    assert find_study(like) == base  # which stays as it is
    axis = next(iter(base.axes))
    label = base.axes[axis][0].label
    assert find_study(written(tmp_path, {"like": like, "skip": [{axis: label}], "choose_at": {}})).skip == [
        {axis: [label]}
    ]


def test_a_study_without_a_base_says_all_itself(tmp_path: Path) -> None:
    assert find_study(written(tmp_path, TINY | {"like": None}, "tiny")) == study_of(tmp_path)
    with pytest.raises(FedquiltError, match=r"^The study mine is not sound at \w+: [^.]+\.$"):
        find_study(written(tmp_path, {"seeds": [1]}))


@pytest.mark.parametrize(
    ("like", "says"),
    [
        ("quilt-comparisen", r"There is no study 'quilt-comparisen'; did you mean 'quilt-comparison'\?"),
        ("nothing of the sort", r"There is no study 'nothing of the sort'; "),
        ("tiny.yaml", r"There is no study 'tiny\.yaml'; "),  # of the catalogue only
        ("../quilt/comparison", r"There is no study '\.\./quilt/comparison'"),
        ("", r"There is no study ''; "),
        (5, r"There is no study '5'; "),
        (["quilt-comparison"], r"There is no study "),
        ({"quilt-comparison": 1}, r"There is no study "),
        ("two\nlines", r"There is no study "),
    ],
    ids=str,
)
def test_a_base_that_is_none_is_one_sentence(tmp_path: Path, like: Any, says: str) -> None:
    written(tmp_path, TINY, "tiny")
    with pytest.raises(FedquiltError, match=says) as caught:
        find_study(written(tmp_path, {"like": like, "seeds": [1]}))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith((".", "?"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rows": ["colour"]}, "there is no axis colour"),
        ({"colour": 1}, "colour"),
        ({"seeds": []}, "seeds"),
        (
            {"axes": {"method": ["local"], "clients": [2]}},
            "there is no axis",
        ),  # rows and columns name those of the base
    ],
    ids=str,
)
def test_what_it_says_itself_is_checked_beside_what_it_has_from_its_base(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(FedquiltError, match=f"^The study mine is not sound.*{says}"):
        find_study(written(tmp_path, {"like": "quilt-views", **changes}))


def test_seeds_that_were_never_used_are_the_comparison_with_other_seeds() -> None:
    base, study = find_study("quilt-comparison"), find_study("quilt-unseen-seeds")
    assert study.reported_seeds() == [6, 7, 8]
    assert not set(study.reported_seeds()) & {*base.reported_seeds(), *base.choosing_seeds()}
    own = {"name": study.name, "title": study.title, "question": study.question, "seed_list": [6, 7, 8]}
    assert study == base.model_copy(update=own)
    # Settings are chosen where the comparison chose them.
    assert study.choosing_seeds() == base.choosing_seeds() == [0]
    for at in base.places():
        assert study.options_at(at) == base.options_at(at)
        assert study.candidates_at(at) == base.candidates_at(at)
        assert study.chosen_at(at) == base.chosen_at(at)
