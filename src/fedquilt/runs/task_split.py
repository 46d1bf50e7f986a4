"""The split of a run whose task splits each client's edges: the option `split` and the task's setting of that name are one."""

from __future__ import annotations

from dataclasses import fields

from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig
from fedquilt.tasks.base import find_task


def with_task_split(config: RunConfig) -> RunConfig:
    """The configuration with both alike, where the task splits edges; refused where they are given and differ.

    Copies of nodes need not be kept together where no nodes are split.
    """
    task = find_task(config.task)
    if not task.splits_edges:
        return config
    (usual,) = (field.default for field in fields(task.Settings) if field.name == "split")
    own = config.task_settings.get("split")
    if None not in (own, config.split) and own != config.split:
        raise FedquiltError(
            f"The edges' shares are given twice, as split={config.split} and as the task's setting split={own}; leave one out."
        )
    split = config.split or own or usual
    settings = dict(config.task_settings) | ({} if split == usual else {"split": split})
    found = config.model_copy(
        update={"split": split, "task_settings": settings, "keep_copies": config.keep_copies or "never"}
    )
    find_task(config.task, settings)  # a wrong share is an error that speaks of edges
    return found
