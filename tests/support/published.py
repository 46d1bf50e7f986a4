"""What the tests of every paper's studies and published numbers ask of them."""

from __future__ import annotations

import math

from fedquilt.datasets.catalogue import choose
from fedquilt.methods.base import RunContext, methods
from fedquilt.methods.settings import resolve_settings
from fedquilt.partition.kind import partition_kinds
from fedquilt.runs.config import RunConfig
from fedquilt.studies.published import Published, read_published, wrong_averages
from fedquilt.studies.spec import Study, find_study


def sound_study(name: str, places: int) -> Study:
    """The study, after a look at each of its places.

    There are as many as said, options build, graph and kind of partition are known, and a method that is there takes the
    settings and each candidate. Methods that are not there yet are left out.
    """
    study = find_study(name)
    where = list(study.places())
    assert len(where) == places
    for at in where:
        if study.missing_at(at) is not None:
            continue
        options = study.options_at(at)
        config = RunConfig.build({**options, "seeds": list(range(study.seeds))})
        dataset = choose(config.dataset).dataset
        assert config.partition in partition_kinds(), at
        if study.of != "partition" and config.method in methods():
            context = RunContext(
                dataset=config.dataset,
                partition=config.partition,
                metric=config.metric or dataset.protocol.metric,
                features=dataset.features,
                outputs=dataset.classes,
                clients=config.clients or 10,
                epochs=config.epochs or dataset.protocol.epochs,
                seed=0,
            )
            for candidate in study.candidates_at(at):
                resolve_settings(methods()[config.method], context, config.settings | candidate, config.epochs)
    return study


def sound_numbers(study: Study, lines: int, unprinted: int = 0) -> list[Published]:
    """The published numbers: as many as said, so many of them without a number, each at a place of the study or an average
    that is the average of its cells."""
    published = read_published(study)
    assert len(published) == lines
    assert sum(math.isnan(one.mean) for one in published) == unprinted
    assert wrong_averages(study, published) == []
    places = [tuple(at.values()) for at in study.places()]
    assert all(one.is_average or tuple(one.at.values()) in places for one in published)
    return published


def labels(published: list[Published], axis: str) -> set[str]:
    """Which levels of an axis have published numbers; averages are not levels."""
    return {one.at[axis] for one in published} - {"average"}


def printed(published: list[Published], value: str = "test", **at: str) -> tuple[float, float | None]:
    """Mean and standard deviation at one place, None where no deviation is printed."""
    (one,) = [one for one in published if one.at == at and one.value == value]
    return one.mean, None if math.isnan(one.std) else one.std
