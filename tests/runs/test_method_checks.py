"""What a run may ask of a method, and what it keeps of the server."""

from __future__ import annotations

from typing import Any

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig
from fedquilt.runs.method_checks import LARGEST_SERVER, check_needs, keeps_server
from support.federations import make_method, ragged_clients


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [
        ("fediih", {"batch": "clusters"}, "Method 'fediih' cannot train on parts of a client's graph: "),
        ("fedavg", {"attack": "same-value"}, "fedavg"),
        ("local", {"hold_out_clients": 0.2}, "local"),
        ("fedssa", {"aggregation": "median"}, "fedssa"),
        ("fedpub", {"upload_delay": 1}, "Asynchronous rounds are for methods that"),
        ("centralised", {"workers": 2}, "leave out workers, since all clients train as one"),
        (
            "centralised",
            {"dp_clip": 1.0, "dp_noise": 1.0},
            "leave out dp_clip, since nothing is sent that could be protected",
        ),
        ("fedavg", {"client_settings": {"1": {"model": "sage"}}}, "cannot be set for client 1 alone"),
    ],
)
def test_what_a_method_lacks_is_refused_in_a_sentence(method: str, options: dict[str, Any], says: str) -> None:
    made = make_method(method, ragged_clients())
    check_needs(made, RunConfig.build({"method": method}))
    with pytest.raises(FedquiltError, match=says):
        check_needs(made, RunConfig.build({"method": method, **options}))


def test_a_server_is_kept_where_newcomers_need_it_and_it_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, clients = RunConfig.build({}), ragged_clients()
    made = {name: make_method(name, clients) for name in ("local", "fedavg", "fedpub")}
    assert [keeps_server(method, plain) for method in made.values()] == [False, True, True]
    monkeypatch.setattr("fedquilt.runs.method_checks.LARGEST_SERVER", LARGEST_SERVER // 2**20)
    assert [keeps_server(method, plain) for method in made.values()] == [False, True, False]
    assert keeps_server(made["fedpub"], RunConfig.build({"hold_out_clients": 0.2}))
    assert not keeps_server(made["fedpub"], RunConfig.build({"dp_clip": 1.0, "dp_noise": 1.0}))
