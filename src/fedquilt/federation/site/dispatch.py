"""Requests answered one after the other: what they need of the site is read once, and again when it changed."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from fedquilt.federation.site.config import SiteConfig, read_site
from fedquilt.federation.site.requests import Desk, RefusedError
from fedquilt.federation.site.site import Site
from fedquilt.privacy.dp import BudgetSpentError

_log = logging.getLogger("fedquilt.site")


class Answering:
    """Answers requests to sites; keeps the last site's graph, and the cohort of the last run."""

    def __init__(self) -> None:
        self._desk: Desk | None = None
        self._stamp: tuple[Any, ...] = ()

    def reply(self, site: str, header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """The answer; what goes wrong stays in the site's log, but for what it refuses on purpose."""
        try:
            return self._at(site).answer(header, body)
        except RefusedError as error:
            _log.error("%s", error)
            return {"refused": str(error)}, b""
        except BudgetSpentError as error:
            _log.error("%s", error)
            return {"refused": str(error), "spent": True}, b""
        except Exception:
            _log.exception("A request could not be fulfilled.")
            return {"refused": "The site failed; its own log says why."}, b""

    def _at(self, path: str) -> Desk:
        """The site as it is now: its site.yaml is read each time, its graph when it changed."""
        config = read_site(path)
        stamp = (path, config, _changed(config))
        if self._desk is None or stamp != self._stamp:
            self._desk, self._stamp = Desk(Site(config)), stamp
        return self._desk


def _changed(config: SiteConfig) -> tuple[tuple[str, int, int], ...]:
    """What tells a version of the graph's files from another."""
    graph = Path(config.graph)
    files = sorted(graph.iterdir()) if graph.is_dir() else [graph]
    found = ((str(file), os.stat(file)) for file in files)
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in found)
