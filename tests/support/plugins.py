"""Plug-ins for tests: a file that registers one of everything, and a process that has loaded none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedquilt.common import registry

METHOD = '''"""Half: FedAvg whose server sends half of what it averages.

It is of no use but to tests.
"""

from fedquilt.methods.base import register
from fedquilt.methods.fedavg import FedAvg


@register("half")
class Half(FedAvg):
    title = "Half"
    paper = "none"

    def aggregate(self, server, uploads, senders, receivers):
        return {name: value * 0.5 for name, value in super().aggregate(server, uploads, senders, receivers).items()}
'''


@pytest.fixture
def no_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is loaded or remembered before the test, nor after it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(registry.PLUGINS, "")
    yield
    forget()


def forget() -> None:
    """As if a new process began, in which no plug-in is loaded."""
    for path in registry.loaded_plugins():
        registry._forget(path)
