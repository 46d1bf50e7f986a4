"""What secure aggregation costs a round: bytes and seconds, beside a plain round of the same run.

    python -m benchmarks.secure_round [--sites 3,10] [--rounds 4] [--dataset cora] [--method fedavg]
    python -m benchmarks.secure_round --processes [--sites 3]

Without `--processes` sites answer in this process, one after the other: seconds are those of all computation, of all sites
and the coordinator, divided by the number of sites where it says "a site". Bytes are those of headers and bodies as they are
handed to Flower. With `--processes` there are Flower's real processes on this machine (as in `benchmarks.flower_round`), and
seconds are those of a round from one to the next.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedquilt.federation.coordinator.config import FederationConfig
from fedquilt.federation.coordinator.coordinator import Coordinator
from fedquilt.federation.flower_messages import pack, unpack
from fedquilt.federation.local.rehearsal import Rehearsal
from fedquilt.federation.site.examples import write_sites
from fedquilt.federation.site.request_handler import RequestHandler
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun


class LoadedGrid(Grid):
    """Sites in this process that stay loaded between requests.

    Attributes:
        down, up: bytes by round, over all sites and stages.
        seconds: what the sites took for the requests of each round.
    """

    def __init__(self, sites: Sequence[Path]) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
        self.sites = {1000 + n: (str(path), RequestHandler()) for n, path in enumerate(sites)}
        self.replies: dict[str, Message] = {}
        self.down: dict[int, int] = defaultdict(int)
        self.up: dict[int, int] = defaultdict(int)
        self.seconds: dict[int, float] = defaultdict(float)

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return list(self.sites)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node) for node in self.sites]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            number, (site, handler) = message.object_id, self.sites[message.metadata.dst_node_id]
            message.metadata.__dict__["_message_id"] = number
            message.metadata.__dict__["_src_node_id"] = 1
            header, body = unpack(message.content)
            round = header.get("round", -1)
            began = time.perf_counter()
            said, sent = handler.reply(site, header, body)
            self.seconds[round] += time.perf_counter() - began
            self.down[round] += len(json.dumps(header)) + len(body)
            self.up[round] += len(json.dumps(said)) + len(sent)
            self.replies[number] = Message(pack(said, sent), reply_to=message)
            ids.append(number)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self.replies.pop(number) for number in message_ids]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))


def measured(clients: Sequence[Any], folder: Path, secure: bool, rounds: int, method: str) -> dict[str, float]:
    """Medians over the rounds but the first, in which sites prepare their graphs."""
    grid = LoadedGrid(write_sites(folder, clients, permits="all"))
    config = FederationConfig(
        out=str(folder / "run"), sites=len(clients), method=method, rounds=rounds, secure_aggregation=secure
    )
    there = Coordinator(config, grid, lambda text: None)
    there.run()
    records = there.folder.seed(0).records()[1:]
    numbers = [record["round"] for record in records]
    of_sites = [grid.seconds[n] for n in numbers]
    whole = [record["seconds"] for record in records]
    return {
        "bytes up a site": statistics.median(grid.up[n] for n in numbers) / len(clients),
        "bytes down a site": statistics.median(grid.down[n] for n in numbers) / len(clients),
        "seconds a site": statistics.median(of_sites) / len(clients),
        "seconds of the coordinator": statistics.median(w - s for w, s in zip(whole, of_sites, strict=True)),
    }


def with_processes(clients: Sequence[Any], folder: Path, secure: bool, rounds: int, method: str) -> dict[str, float]:
    """The median seconds of a round but the first with Flower's processes."""
    sites = write_sites(folder / "sites", clients, permits="all")
    order = {"sites": len(clients), "method": method, "rounds": rounds, "wait": 300.0, "secure-aggregation": secure}
    with Rehearsal(sites, folder / "logs") as rehearsal:
        rehearsal.run({**order, "out": str(folder / "run")})
    lines = (folder / "run" / "seed-0" / "metrics.jsonl").read_text().splitlines()
    return {"seconds of a round": statistics.median(json.loads(line)["seconds"] for line in lines[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", default="3,10")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--method", default="fedavg")
    parser.add_argument("--processes", action="store_true")
    asked = parser.parse_args()
    measure = with_processes if asked.processes else measured
    for count in map(int, asked.sites.split(",")):
        clients = ResolvedRun(RunConfig(dataset=asked.dataset, clients=count, seeds=[0])).clients(0)
        with tempfile.TemporaryDirectory() as temporary:
            plain, secure = (
                measure(clients, Path(temporary) / str(on), on, asked.rounds, asked.method) for on in (False, True)
            )
        print(f"{asked.method} on {asked.dataset}, {count} sites, medians of {asked.rounds - 1} rounds")
        print(f"{'':28} {'plain':>12} {'secure':>12} {'ratio':>7}")
        for name, before in plain.items():
            number = ".3f" if "seconds" in name else ",.0f"
            print(f"{name:28} {before:12{number}} {secure[name]:12{number}} {secure[name] / before:7.2f}")


if __name__ == "__main__":
    main()
