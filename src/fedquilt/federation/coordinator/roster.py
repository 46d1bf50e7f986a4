"""Who is who: sites say hello, are checked, and get their numbers in the order of their names."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from flwr.app import Message
from flwr.serverapp import Grid
from httpx import HTTPError

from fedquilt.common.files import write_json
from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.incidents import Incidents
from fedquilt.federation.flower_messages import packed, unpacked
from fedquilt.federation.site.config import is_site_name
from fedquilt.federation.site.requests import HELLO, VERSION

HELLO_SECONDS = 30.0  # for a stranger to say who it is, while a round is under way
GREET_SECONDS = 120.0  # the same before the first round
LATER = 60.0  # seconds until a node that could not say who it is is asked again
POLL = 0.2  # seconds between looks for replies; Flower's own send_and_receive looks every 3
MANY = 10  # waiting for more, looks are rarer in proportion: each is a request of its own


@dataclass(frozen=True)
class NoReply:
    """Why there is nothing to read, and whether it may help to ask again."""

    reason: str
    again: bool


# A header and a blob, or why there is none.
Reply = tuple[dict[str, Any], bytes] | NoReply


@dataclass(frozen=True)
class Introduction:
    """What a site says of itself."""

    name: str
    features: int
    classes: int
    feature_names: str | None
    class_names: str | None
    permits: list[str] | Literal["all"]
    protected: bool

    @classmethod
    def read(cls, header: dict[str, Any]) -> Introduction:
        """From a reply's header; ValueError on anything else."""
        said = {name: header.get(name) for name in cls.__dataclass_fields__}
        sizes = all(type(n) is int and 0 < n < 2**31 for n in (said["features"], said["classes"]))
        permits = said["permits"]
        listed = isinstance(permits, list) and all(isinstance(one, str) for one in permits)
        if not isinstance(said["name"], str) or not is_site_name(said["name"]):
            raise ValueError("it has no name, or none that can be used")
        if not sizes or not (permits == "all" or listed) or not isinstance(said["protected"], bool):
            raise ValueError("what it says of its graph cannot be read")
        if not all(isinstance(said[names], str | None) for names in ("feature_names", "class_names")):
            raise ValueError("what it says of its features and classes cannot be read")
        return cls(**said)  # type: ignore[arg-type]


@dataclass
class Sites:
    """The sites of a federation, and the nodes where they are.

    Attributes:
        names: in the order of their numbers.
        nodes: the node of each site that was heard of, by its name.
        noisy: names of sites that protect their uploads with noise.
        keyed: nodes with a registered key: a site that is there is never anywhere else.
        turned_away: nodes that are not asked again.
        later: nodes that could not say who they are, and when they are asked again.
    """

    grid: Grid
    incidents: Incidents
    names: list[str] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)
    noisy: set[str] = field(default_factory=set)
    keyed: set[int] = field(default_factory=set)
    turned_away: set[int] = field(default_factory=set)
    later: dict[int, float] = field(default_factory=dict)

    def protected(self, number: int) -> bool:
        """Whether a site's uploads have noise on them."""
        return self.names[number] in self.noisy

    def online(self) -> set[int]:
        """The nodes that Flower can reach now."""
        return set(self.grid.get_node_ids())

    def post(self, kind: str, group: str, timeout: float) -> Post:
        """A way to send requests of a kind, which count for so many seconds, and to collect the replies."""
        return Post(self.grid, kind, group, timeout)

    def greet(self, timeout: float) -> dict[str, Introduction]:
        """Say hello to nodes that nobody knows yet; who they say they are, by name."""
        post = self.post("query", "hello", timeout)
        now = time.monotonic()
        waiting = {node for node, until in self.later.items() if until > now}
        for node in sorted(self.online() - set(self.nodes.values()) - self.turned_away - waiting):
            post.send(node, {"kind": HELLO}, b"")
        replies: dict[int, Reply] = dict.fromkeys(post.waiting.values(), NoReply("it gave no answer", True))
        while True:
            replies |= post.collect()
            if not post.waiting or post.over:
                break
            post.pause()
        return self._introduced(replies)

    def _introduced(self, replies: Mapping[int, Reply]) -> dict[str, Introduction]:
        """Who said who they are, by name; the others are turned away, or asked again later."""
        out: dict[str, Introduction] = {}
        for node, reply in sorted(replies.items()):
            refused = None if isinstance(reply, NoReply) else reply[0].get("refused")
            if isinstance(reply, NoReply) or refused is not None:
                reason = reply.reason if isinstance(reply, NoReply) else str(refused)[:500].rstrip(".")
                self.later[node] = time.monotonic() + LATER
                self.incidents.note(None, None, "hello", f"Node {node} did not say who it is: {reason}.")
                continue
            try:
                who = Introduction.read(reply[0])
                self._place(who.name, node)
            except ValueError as error:
                self._turn_away(node, str(error))
            else:
                out[who.name] = who
                (self.noisy.add if who.protected else self.noisy.discard)(who.name)
        return out

    def reach(self, numbers: Iterable[int], seconds: float = HELLO_SECONDS) -> dict[int, int]:
        """The nodes of those of the sites `numbers` that can be reached now; some may be back as other nodes.

        Nodes that nobody knows have up to `seconds` to say who they are.
        """
        online = self.online()
        found = {m: self.nodes.get(self.names[m], -1) for m in numbers}
        if any(node not in online for node in found.values()):
            self.greet(min(seconds, HELLO_SECONDS))
            online = self.online()
            found = {m: self.nodes.get(self.names[m], -1) for m in found}
        return {m: node for m, node in found.items() if node in online}

    def _place(self, name: str, node: int) -> None:
        """Note where a site is; ValueError where it cannot be there."""
        known = self.nodes.get(name)
        if known is not None and (known in self.keyed or known in self.online()):
            raise ValueError(f"it says that it is '{name}', which is node {known}")
        if self.names and name not in self.names:
            raise ValueError(f"it says that it is '{name}', who is not one of this run's sites")
        self.nodes[name] = node
        if any(info.node_id == node and bool(info.public_key) for info in self.grid.get_nodes()):
            self.keyed.add(node)

    def _turn_away(self, node: int, reason: str) -> None:
        self.turned_away.add(node)
        self.incidents.note(None, None, "turned away", f"Node {node} was turned away: {reason}.")

    def save(self, path: Path) -> None:
        """Keep who is who, for a coordinator that is started again."""
        nodes = [{"name": name, "node": str(node), "keyed": node in self.keyed} for name, node in self.nodes.items()]
        write_json(path, {"names": self.names, "noisy": self.noisy, "nodes": nodes})

    def load(self, path: Path) -> None:
        """Go on with what `save` kept."""
        kept = json.loads(path.read_bytes())
        self.names, self.noisy = kept["names"], set(kept["noisy"])
        self.nodes = {one["name"]: int(one["node"]) for one in kept["nodes"]}
        self.keyed = {int(one["node"]) for one in kept["nodes"] if one["keyed"]}


class Post:
    """Requests that were sent, and the replies that come; those that come too late are nobody's."""

    def __init__(self, grid: Grid, kind: str, group: str, timeout: float) -> None:
        self.grid, self.kind, self.group = grid, kind, group
        self.until = time.monotonic() + timeout
        self.waiting: dict[str, int] = {}  # nodes by the requests they were sent

    @property
    def left(self) -> float:
        """Seconds until the time is up."""
        return max(0.0, self.until - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return not self.left

    def pause(self) -> None:
        """Wait until the next look."""
        time.sleep(POLL * max(1.0, len(self.waiting) / MANY))

    def send(self, node: int, header: Mapping[str, Any], body: bytes) -> None:
        """Send a node its request. One that has not been fetched when the time is up is never delivered."""
        content = packed({"version": VERSION, **header}, body)
        message = Message(content, node, self.kind, ttl=max(1.0, self.left), group_id=self.group)
        (number,) = self.grid.push_messages([message])
        if number:
            self.waiting[number] = node

    def collect(self) -> list[tuple[int, Reply]]:
        """What has come by now: a header and a blob, or why it cannot be used.

        Replies are fetched one by one: Flower unpacks what a node wrote, and one that it cannot unpack must not take the
        others with it.
        """
        out: list[tuple[int, Reply]] = []
        for number, node in list(self.waiting.items()):
            try:
                replies = list(self.grid.pull_messages([number]))
            except (OSError, HTTPError):  # the SuperLink is not there: nobody's reply is at fault
                raise
            except Exception:
                out.append((node, NoReply("cannot be read", again=False)))
                del self.waiting[number]
                continue
            if replies:
                del self.waiting[number]
                out.append((node, _read(replies[0])))
        return out


def _read(reply: Message) -> Reply:
    if reply.has_error():
        return NoReply(f"Flower says: {str(reply.error.reason)[:300]}", again=True)
    try:
        return unpacked(reply.content)
    except (ValueError, KeyError, TypeError, RecursionError):
        return NoReply("cannot be read", again=False)


def gather(sites: Sites, count: int, wait: float, timeout: float, say: Callable[[str], None]) -> list[Introduction]:
    """Wait until `count` sites are there; they get their numbers in the order of their names."""
    known: dict[str, Introduction] = {}
    until, told = time.monotonic() + wait, -1
    while True:
        known |= sites.greet(min(timeout, GREET_SECONDS))
        if len(known) != told:
            told = len(known)
            say(f"{told} of {count} sites are there" + (f": {', '.join(sorted(known))}." if known else "."))
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
    sites.names = sorted(known)
    check_alike([known[name] for name in sites.names])
    return [known[name] for name in sites.names]


def check_alike(sites: Iterable[Introduction]) -> None:
    """Refuse sites whose features or classes are not the same."""
    first, *others = sites
    for other in others:
        for what in ("features", "classes"):
            mine, theirs = getattr(first, what), getattr(other, what)
            if mine != theirs:
                raise FedquiltError(
                    f"Site '{first.name}' has {mine} {what} and site '{other.name}' has {theirs}; all sites need the same."
                )
        for what, same in (("feature", "columns in the same order"), ("class", "classes.txt")):
            mine, theirs = getattr(first, f"{what}_names"), getattr(other, f"{what}_names")
            if None not in (mine, theirs) and mine != theirs:
                raise FedquiltError(
                    f"Sites '{first.name}' and '{other.name}' have other {what} names, or in another order; give all sites the "
                    f"same {same}."
                )
