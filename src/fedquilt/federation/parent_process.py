"""Ends this process soon after its parent. Flower's processes may otherwise wait for ever for a SuperLink that is gone."""

from __future__ import annotations

import os
import threading
import time
from functools import cache


@cache
def exit_with_parent(grace: float = 5.0) -> None:
    """From now on, end this process when its parent is gone and it has not ended by itself in `grace` seconds."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        time.sleep(grace)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
