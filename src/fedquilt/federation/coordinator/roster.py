"""The roster of a federation: sites introduce themselves, are checked, and get numbers in the order of their names."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flwr.serverapp import Grid

from fedquilt.common.files import write_json
from fedquilt.common.json_text import read_json
from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.dispatch import NoReply, RequestBatch
from fedquilt.federation.coordinator.incidents import Incidents
from fedquilt.federation.message_checks import FEWEST, LARGEST
from fedquilt.federation.protocol import HELLO, Introduction, Reply

HELLO_SECONDS = 30.0  # for an unknown node to introduce itself while a round is under way
FIRST_HELLO_SECONDS = 120.0  # the same before the first round
RETRY_SECONDS = 60.0  # until a node that could not introduce itself is asked again


@dataclass
class Roster:
    """The sites of a federation, and the Flower nodes they run on.

    Attributes:
        names: the sites' names, in the order of their numbers.
        nodes: the node of each site that has introduced itself, by the site's name.
        noisy: names of sites that add noise to their uploads.
        sizes: how many nodes the graph of each site has at most, as it first said; of sites that did.
        keyed: nodes with a registered key; a site on such a node never moves to another one.
        rejected: nodes that are not asked again.
        retry_at: nodes that could not introduce themselves, and when they are asked again.
    """

    grid: Grid
    incidents: Incidents
    names: list[str] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)
    noisy: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    keyed: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    retry_at: dict[int, float] = field(default_factory=dict)

    def is_protected(self, number: int) -> bool:
        """Whether a site's uploads have noise on them."""
        return self.names[number] in self.noisy

    def largest_count(self, number: int, size_limit: float) -> float:
        """The most that a site can count: what it said, and at most `size_limit` times the median of the other sites.

        A site that adds noise sends ones in place of counts.
        """
        name = self.names[number]
        if name in self.noisy:
            return 1.0
        others = [self.sizes[other] for other in self.names if other != name and other in self.sizes]
        cap = size_limit * statistics.median_low(others) if len(others) + 1 >= FEWEST else LARGEST
        return min(self.sizes.get(name, cap), cap)

    def online(self) -> set[int]:
        """The nodes that Flower can reach now."""
        return set(self.grid.get_node_ids())

    def greet(self, timeout: float) -> dict[str, Introduction]:
        """Ask unknown nodes who they are; the introductions by name."""
        batch = RequestBatch(self.grid, "query", "hello", timeout)
        now = time.monotonic()
        postponed = {node for node, until in self.retry_at.items() if until > now}
        for node in sorted(self.online() - set(self.nodes.values()) - self.rejected - postponed):
            batch.send(node, {"kind": HELLO}, b"")
        replies: dict[int, Reply | NoReply] = dict.fromkeys(batch.open.values(), NoReply("it gave no answer", True))
        while True:
            replies |= batch.collect()
            if not batch.open or batch.expired:
                break
            batch.pause()
        return self._register(replies)

    def _register(self, replies: Mapping[int, Reply | NoReply]) -> dict[str, Introduction]:
        """The introductions by name. Nodes that sent none are rejected, or asked again later."""
        out: dict[str, Introduction] = {}
        for node, reply in sorted(replies.items()):
            refused = None if isinstance(reply, NoReply) else reply[0].get("refused")
            if isinstance(reply, NoReply) or refused is not None:
                reason = reply.reason if isinstance(reply, NoReply) else str(refused)[:500].rstrip(".")
                self.retry_at[node] = time.monotonic() + RETRY_SECONDS
                self.incidents.add(None, None, "hello", f"Node {node} did not say who it is: {reason}.")
                continue
            try:
                site = Introduction.from_header(reply[0])
                self._assign_node(site.name, node)
            except ValueError as error:
                self.rejected.add(node)
                self.incidents.add(None, None, "turned away", f"Node {node} was turned away: {error}.")
            else:
                out[site.name] = site
                (self.noisy.add if site.protected else self.noisy.discard)(site.name)
                if site.nodes is not None:  # what it says later does not raise its limit
                    self.sizes.setdefault(site.name, site.nodes)
        return out

    def reachable(self, numbers: Iterable[int], seconds: float = HELLO_SECONDS) -> dict[int, int]:
        """The nodes of those sites that can be reached now; a site may have come back as another node.

        Unknown nodes have up to `seconds` to introduce themselves.
        """
        online = self.online()
        found = {m: self.nodes.get(self.names[m], -1) for m in numbers}
        if any(node not in online for node in found.values()):
            self.greet(min(seconds, HELLO_SECONDS))
            online = self.online()
            found = {m: self.nodes.get(self.names[m], -1) for m in found}
        return {m: node for m, node in found.items() if node in online}

    def _assign_node(self, name: str, node: int) -> None:
        """Note on which node a site runs; ValueError where it cannot be that one."""
        known = self.nodes.get(name)
        if known is not None and (known in self.keyed or known in self.online()):
            raise ValueError(f"it says that it is '{name}', which is node {known}")
        if self.names and name not in self.names:
            raise ValueError(f"it says that it is '{name}', who is not one of this run's sites")
        self.nodes[name] = node
        if any(info.node_id == node and bool(info.public_key) for info in self.grid.get_nodes()):
            self.keyed.add(node)

    def save(self, path: Path) -> None:
        """Write the roster, for a coordinator that is started again."""
        nodes = [{"name": name, "node": str(node), "keyed": node in self.keyed} for name, node in self.nodes.items()]
        write_json(path, {"names": self.names, "noisy": self.noisy, "sizes": self.sizes, "nodes": nodes})

    def load(self, path: Path) -> None:
        """Read what `save` wrote."""
        try:
            saved = read_json(path)
            self.names, self.noisy = [str(name) for name in saved["names"]], set(saved["noisy"])
            self.sizes = {str(name): int(size) for name, size in saved.get("sizes", {}).items()}
            self.nodes = {entry["name"]: int(entry["node"]) for entry in saved["nodes"]}
            self.keyed = {int(entry["node"]) for entry in saved["nodes"] if entry["keyed"]}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise FedquiltError(f"{path} is damaged; start the run in a new folder.") from None


def gather(roster: Roster, count: int, wait: float, timeout: float, say: Callable[[str], None]) -> list[Introduction]:
    """Wait up to `wait` seconds until `count` sites are there, and number them in the order of their names."""
    known: dict[str, Introduction] = {}
    until, announced = time.monotonic() + wait, -1
    while True:
        known |= roster.greet(min(timeout, FIRST_HELLO_SECONDS))
        if len(known) != announced:
            announced = len(known)
            say(f"{announced} of {count} sites are there" + (f": {', '.join(sorted(known))}." if known else "."))
        if len(known) >= count:
            break
        if time.monotonic() > until:
            raise FedquiltError(
                f"Only {len(known)} of {count} sites were there after {wait:.0f} seconds; start the others, "
                f"or say sites={len(known)}."
            )
        time.sleep(1)
    if len(known) > count:
        raise FedquiltError(
            f"{len(known)} sites are there ({', '.join(sorted(known))}) and the run is for {count}; say sites={len(known)}."
        )
    roster.names = sorted(known)
    return [known[name] for name in roster.names]
