"""Answers requests to a site. The site and its client of the last run stay loaded between requests."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedquilt.common.printable import printable
from fedquilt.errors import FedquiltError
from fedquilt.federation.protocol import HELLO, VERSION, RefusedError, Reply, Request
from fedquilt.federation.site.config import SiteConfig, read_site
from fedquilt.federation.site.quota import QuotaError
from fedquilt.federation.site.run_client import RunClient
from fedquilt.federation.site.site import Site
from fedquilt.privacy.dp import BudgetSpentError

_log = logging.getLogger("fedquilt.site")


class RequestHandler:
    """Answers one request after the other. What a site.yaml or a graph changes is seen at the next request."""

    def __init__(self) -> None:
        self._site: Site | None = None
        self._site_version: tuple[Any, ...] = ()
        self._client: RunClient | None = None

    def reply(self, site_file: str, header: Mapping[str, Any], body: bytes) -> Reply:
        """The reply to a request. Only refusals on purpose name their reason; other errors go to the site's log."""
        try:
            site = self._load_site(site_file)
            site.quota.count(header.get("kind"))
        except QuotaError as error:  # the site's log has the first of these; a line for each would have no end
            return {"refused": str(error)}, b""
        except Exception:
            return self._failed()
        try:
            return self._answer(site, header, body)
        except QuotaError as error:
            return self._refused(site, header, error, "quota")
        except RefusedError as error:
            return self._refused(site, header, error, "refused")
        except BudgetSpentError as error:
            said, upload = self._refused(site, header, error, "budget")
            return said | {"spent": True}, upload
        except Exception as error:
            _note_incident(site, header, "failed", f"{type(error).__name__}: {error}")
            return self._failed()

    def _refused(self, site: Site, header: Mapping[str, Any], error: FedquiltError, what: str) -> Reply:
        _log.error("%s", error)
        _note_incident(site, header, what, str(error))
        return {"refused": str(error)}, b""

    def _failed(self) -> Reply:
        """The reply after an error that the coordinator is not told."""
        _log.exception("A request could not be fulfilled.")
        return {"refused": "The site failed; its own log says why."}, b""

    def _answer(self, site: Site, header: Mapping[str, Any], body: bytes) -> Reply:
        """The reply to a request that is within the limit on requests."""
        if header.get("version") != VERSION:
            raise RefusedError("The coordinator has another version of fedquilt than this site; install the same.")
        if header.get("kind") == HELLO:
            introduction = site.introduction().to_header()
            site.log.note("A coordinator asked who this site is, and was told its name, its widths and its permits.")
            return introduction, b""
        request = Request.from_header(header)
        client = self._run_client(site, request)
        site.quota.admit(request.run)
        return client.answer(request, body)

    def _load_site(self, site_file: str) -> Site:
        """The site as it is now: its site.yaml is read each time, its graph when the files changed."""
        config = read_site(site_file)
        version = (site_file, config, _graph_version(config))
        if self._site is None or version != self._site_version:
            self._client = None
            self._site, self._site_version = Site(config), version
        return self._site

    def _run_client(self, site: Site, request: Request) -> RunClient:
        """The site's client of the request's run: the one that is loaded, or a new one in its place."""
        if self._client is None or not self._client.serves(request):
            self._client = None  # frees its memory before another is made
            self._client = RunClient(site, request)
        return self._client


def _note_incident(site: Site, header: Mapping[str, Any], what: str, reason: str) -> None:
    """Note an incident in the site's log, with the run and the round that the request names."""
    run, round = header.get("run"), header.get("round")
    site.log.incident(
        what, reason, printable(run[:64]) if isinstance(run, str) else None, round if type(round) is int else None
    )


def _graph_version(config: SiteConfig) -> tuple[tuple[str, int, int], ...]:
    """Names, times and sizes of the graph's files: they differ when the graph was changed."""
    graph = Path(config.graph)
    files = sorted(graph.iterdir()) if graph.is_dir() else [graph]
    stats = ((str(file), os.stat(file)) for file in files)
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
