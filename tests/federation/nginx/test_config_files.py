"""What is filled into configurations of nginx, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.nginx.config_files import (
    CONFIG,
    address_and_port,
    existing_file,
    find_nginx,
    host_and_port,
    is_root,
    network,
    start_command,
    valid_port,
    write_config,
)


@pytest.mark.parametrize(
    ("read", "text", "made"),
    [
        (host_and_port, "coordinator.example:8000", ("coordinator.example", 8000)),
        (host_and_port, "[2001:db8::1]:1", ("[2001:db8::1]", 1)),
        (address_and_port, "0.0.0.0:65535", ("0.0.0.0", 65535)),
        (address_and_port, "[::]:8000", ("[::]", 8000)),
    ],
)
def test_places_are_split(read: Callable, text: str, made: tuple[str, int]) -> None:
    assert read(text, "a.example:1") == made


@pytest.mark.parametrize(
    ("read", "text", "says"),
    [
        (
            host_and_port,
            "coordinator.example",
            "'coordinator.example' is no address with a port; write it as in a.example:1",
        ),
        (host_and_port, "a;b:80", "no address with a port"),
        (host_and_port, "a b:80", "no address with a port"),
        (host_and_port, "$x:80", "no address with a port"),
        (host_and_port, "a}\n:80", "no address with a port"),
        (host_and_port, ":80", "no address with a port"),
        (host_and_port, "[x]:80", "no address with a port"),
        (host_and_port, "ä.example:80", "no address with a port"),
        (host_and_port, "a:0", "'0' is no port; it has to be a number from 1 to 65535"),
        (host_and_port, "a:65536", "no port"),
        (host_and_port, "a:8_0", "no port"),
        (host_and_port, "a:٣", "no port"),
        (address_and_port, "coordinator.example:80", "'coordinator.example' is no address of this machine"),
    ],
)
def test_what_is_no_place_is_refused(read: Callable, text: str, says: str) -> None:
    with pytest.raises(FedquiltError) as caught:
        read(text, "a.example:1")
    assert says in str(caught.value)


def test_ports_and_networks() -> None:
    assert valid_port(8000) == valid_port("8000") == 8000
    assert [network(each) for each in ("192.0.2.7", " 10.0.0.0/8")] == ["192.0.2.7/32", "10.0.0.0/8"]
    for text in ("all", "10.0.0.1/8", "", "1.2.3.4; allow all"):
        with pytest.raises(FedquiltError, match="no address or network; write it as in 192"):
            network(text)


@pytest.mark.parametrize("name", ['a"b', "a$b", "a\\b", "a\nb"])
def test_files_that_nginx_would_read_as_something_else_are_refused(tmp_path: Path, name: str) -> None:
    fine = tmp_path / "with a space; and {more}"
    fine.touch()
    assert existing_file(fine, "it") == f'"{fine}"'
    with pytest.raises(FedquiltError, match="is not there; name the file with the key"):
        existing_file(tmp_path / "nothing", "the key")
    (tmp_path / name).touch()
    with pytest.raises(FedquiltError, match="nginx cannot read the path"):
        existing_file(tmp_path / name, "it")


def test_a_configuration_is_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "proxy"
    write_config(folder, "text")
    assert (folder / CONFIG).read_text() == "text"
    assert [(folder / name).stat().st_mode & 0o777 for name in (".", "logs", "temp")] == [0o700] * 3


def test_the_command_that_starts_it(tmp_path: Path) -> None:
    command = start_command(tmp_path, "nginx", " master_process off;")
    assert command == [
        "nginx",
        "-e",
        "stderr",
        "-p",
        str(tmp_path),
        "-c",
        CONFIG,
        "-g",
        "daemon off; master_process off;",
    ]


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("echo 'nginx version: nginx/1.22.1' >&2", True),
        ("echo 'nginx version: openresty/2.1.4.1' >&2", True),
        ("echo 'nginx version: nginx/1.18.0 (Ubuntu)' >&2", False),
        ("exit 1", False),
    ],
)
def test_nginx_is_found_where_path_does_not_name_its_folder_unless_it_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, found: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("fedquilt.federation.nginx.config_files.SYSTEM_FOLDERS", (str(tmp_path / "sbin"),))
    assert find_nginx() is None
    program = tmp_path / "sbin" / "nginx"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    assert find_nginx() == (str(program) if found else None)


def test_root_is_told_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, root in ((0, True), (1000, False)):
        monkeypatch.setattr("os.geteuid", lambda number=number: number)
        assert is_root() == root
