"""`StopRun`: how a callback ends a training cleanly."""

from __future__ import annotations


class StopRun(Exception):  # noqa: N818 (no error: it asks for something)
    """Raise it in a `Callback` to stop a run: what is trained is kept, and a run in a folder can be resumed.

    Attributes:
        reason: why, in a few words; it is stored with the run.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = " ".join(str(reason).split()) or "a callback asked for it"
