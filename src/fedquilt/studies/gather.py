"""Gather the summary of a study from the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedquilt.runs.folder import SeedFolder
from fedquilt.studies.cells import Cell, Missing
from fedquilt.studies.measures import measure_at
from fedquilt.studies.plan import StudyPlan
from fedquilt.studies.published import Published, read_published, within
from fedquilt.studies.selection import selected_candidates
from fedquilt.studies.spec import Study, find_study
from fedquilt.studies.store import CellStore, StoredCell
from fedquilt.studies.summary import Entry, Summary


def gather(plan: StudyPlan, into: Path) -> Summary:
    """The summary of the cells that are done. Where the plan names no number of seeds, all seeds that were started count.

    A graph is looked for only at places where nothing is done, to say why.
    """
    store = CellStore(into)
    stored = store.by_identity()
    cells = plan.cells
    if plan.seeds is None:
        reported = plan.study.reported_seeds()
        begun = [reported.index(c.seed) + 1 for c in cells if c.seed in reported and c.identity in stored]
        counted = {*plan.study.choosing_seeds(), *reported[: max(begun, default=len(reported))]}
        cells = [cell for cell in cells if cell.seed in counted]
    done = {cell.place for cell in cells if cell.identity in stored}
    missing = [*plan.missing, *plan.without_graph(cell for cell in cells if cell.place not in done)]
    published = within(plan.study, read_published(find_study(plan.name), plan.name))
    return summarise(plan.study, cells, missing, published, store, stored)


def summarise(
    study: Study,
    cells: Sequence[Cell],
    missing: Sequence[Missing],
    published: Sequence[Published],
    store: CellStore,
    stored: Mapping[str, StoredCell] | None = None,
) -> Summary:
    """The summary of a study's cells in a store; of several candidates the one that validation selected counts.

    `stored` are the store's finished cells, where they were read already.
    """
    stored, failures = store.by_identity() if stored is None else stored, store.failures()
    printed = {(tuple(p.at.values()), p.value): p for p in published if not p.is_average}
    why = {tuple(one.at.values()): one.why for one in missing}
    by_place: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        by_place.setdefault(cell.place, []).append(cell)
    selected = selected_candidates(study, cells, stored)
    entries: list[Entry] = []
    used: list[StoredCell] = []
    for at in study.places():
        place = tuple(at.values())
        candidates = [cell for cell in by_place.get(place, []) if study.reports(cell.seed)]
        chosen = [cell for cell in candidates if cell.candidate == selected.get(place)]
        done = {cell.seed: stored[cell.identity] for cell in chosen if cell.identity in stored}
        used += done.values()
        for value in study.values:
            entries.append(
                Entry(
                    at=at,
                    value=value,
                    by_seed=dict(_values(value, done)),
                    settings=chosen[0].settings if chosen else {},
                    choices=len({cell.candidate for cell in candidates}),
                    published=printed.get((place, value)),
                    missing=why.get(place, ""),
                    cells=done,
                    planned=len({cell.seed for cell in candidates}),
                    better=study.better.get(value, "higher"),
                )
            )
    return Summary(
        study=study,
        entries=entries,
        averages=[p for p in published if p.is_average],
        failed={c.label: failures[c.identity] for c in cells if c.identity in failures and c.identity not in stored},
        missing=list(missing),
        codes=dict(Counter(cell.facts["code"] for cell in used)),
        machines=dict(Counter(map(_machine, used))),
    )


def _values(value: str, cells: Mapping[int, StoredCell]) -> Iterator[tuple[int, float]]:
    """A value of each seed that has it; `test@R` is read from the metrics of the rounds."""
    for seed, cell in sorted(cells.items()):
        found = cell.measures.get(value)
        if found is None and "@" in value:
            found = measure_at(value, SeedFolder(cell.folder / f"seed-{seed}").records())
        if found is not None:
            yield seed, found


def _machine(cell: StoredCell) -> str:
    versions = cell.facts["versions"]
    return f"{cell.facts['device']}, PyTorch {versions['torch']}, fedquilt {versions['fedquilt']}"
