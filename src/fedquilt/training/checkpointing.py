"""Checkpoints of a training: everything that determines the rest of it, saved to a store and restored from it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from fedquilt.devices import offload
from fedquilt.messages.message import Factored, Message, Sparse, Value, each_tensor, moved
from fedquilt.training.plan import BEST
from fedquilt.training.progress import BestRound, Progress
from fedquilt.training.round import RoundRunner, moved_state
from fedquilt.training.round_store import RoundStore, SavedRound

# Values of a message that are more than one plain tensor, by the name that a checkpoint has for them.
_VALUE_TYPES: dict[str, Callable[..., Value]] = {"Sparse": Sparse, "Factored": Factored}


class Checkpointer:
    """Saves a training to a store and restores it.

    The tensors of a checkpoint are named group/name, with the groups engine, server, down, best and similarity.

    Attributes:
        seconds: seconds between checkpoints; more where writing one takes long.
        similarities: the similarities between clients by round, changed in place.
    """

    def __init__(
        self,
        store: RoundStore,
        seconds: float,
        runner: RoundRunner,
        progress: Progress,
        similarities: dict[int, Tensor],
    ) -> None:
        self.store, self.seconds, self.runner, self.progress = store, seconds, runner, progress
        self.similarities = similarities
        self._wait = seconds
        self._saved_at = time.monotonic()

    def save_if_due(self) -> None:
        """Save where the last checkpoint is old enough."""
        if time.monotonic() - self._saved_at > self._wait:
            self.save()

    def save(self) -> None:
        """Save the state after the last round."""
        progress, best = self.progress, self.progress.best
        similarities = self.similarities if best.similarity is None else self.similarities | {BEST: best.similarity}
        groups: Mapping[str, Mapping[str, Tensor]] = {
            "engine": self.runner.engine.state(),
            "server": self.runner.server,
            "down": {f"{n}/{i}": t for n, value in self.runner.down.items() for i, t in enumerate(each_tensor(value))},
            "best": best.models,
            "similarity": {str(round): similarity for round, similarity in similarities.items()},
        }
        tensors = {f"{group}/{name}": t.cpu() for group, named in groups.items() for name, t in named.items()}
        facts = {
            "seconds": progress.seconds,
            "upload_bytes": progress.upload_bytes,
            "download_bytes": progress.download_bytes,
            "best": [best.round, best.val, best.test, best.clients_test] if best.round >= 0 else None,
            "down": {name: type(value).__name__ for name, value in self.runner.down.items()},
        }
        began = time.monotonic()
        self.store.checkpoint(progress.next_round - 1, tensors, facts)
        self._saved_at = time.monotonic()
        if self.seconds > 0:
            # Large states take long to write: spend at most a tenth of the time on it.
            self._wait = max(self.seconds, 10 * (self._saved_at - began))

    def restore(self) -> bool:
        """Restore the newest checkpoint that is not damaged, and delete later records; whether there was a checkpoint."""
        saved = self.store.latest_checkpoint()
        self.store.truncate_after(saved.round if saved else -1)
        if saved is None:
            return False
        groups: dict[str, dict[str, Tensor]] = {name: {} for name in ("engine", "server", "down", "best", "similarity")}
        for name, tensor in saved.tensors.items():
            group, rest = name.split("/", 1)
            groups[group][rest] = tensor
        runner = self.runner
        runner.engine.restore(groups["engine"])
        # A diagnostic that a later version added is not in the checkpoint; it keeps its start until the next round.
        runner.server = runner.server | moved_state(groups["server"], runner.server_device)
        runner.down = moved(_message(groups["down"], saved.facts["down"]), runner.engine.device)
        similarities = {int(round): similarity for round, similarity in groups["similarity"].items()}
        best_similarity = similarities.pop(BEST, None)
        self.similarities.clear()
        self.similarities.update(similarities)
        self._restore_progress(saved, groups["best"])
        if best_similarity is not None:
            self.progress.best.similarity = best_similarity.to(runner.server_device)
        return True

    def _restore_progress(self, saved: SavedRound, models: Mapping[str, Tensor]) -> None:
        progress, facts, engine = self.progress, saved.facts, self.runner.engine
        progress.next_round = saved.round + 1
        progress.seconds = facts["seconds"]
        progress.upload_bytes, progress.download_bytes = facts["upload_bytes"], facts["download_bytes"]
        if facts["best"] is None:
            return
        round, val, test, clients_test = facts["best"]
        models = moved_state(models, engine.device)
        if any(map(offload.is_offloaded, engine.state().values())):
            models = {name: offload.offloaded_copy(tensor) for name, tensor in models.items()}
        worst = self.runner.method.task.metric(self.runner.method.context.metric).worst
        val, test = worst if val is None else val, math.nan if test is None else test
        progress.best = BestRound(round, val, test, clients_test, models)


def _message(tensors: Mapping[str, Tensor], types: Mapping[str, Any]) -> Message:
    """A message from its tensors (named name/0, name/1, ..) and the type of each of its values."""
    message: Message = {}
    for name, kind in types.items():
        parts = [tensor for key, tensor in sorted(tensors.items()) if key.rpartition("/")[0] == name]
        message[name] = _VALUE_TYPES[kind](*parts) if kind in _VALUE_TYPES else parts[0]
    return message
