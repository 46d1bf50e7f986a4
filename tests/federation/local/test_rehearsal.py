"""What a rehearsal shows of a run, and what it keeps when it is stopped."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.config import FederationConfig
from fedquilt.federation.local.rehearsal import HOST, Rehearsal, app_folder, find_tool, free_ports
from support.nginx import needs_nginx


def test_lines_of_an_earlier_attempt_are_not_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "run.log").write_text("INFO : fedquilt: of yesterday\n")
    (tmp_path / "result.json").write_text("{}")
    rehearsal = Rehearsal([], tmp_path / "logs", private=tmp_path / "private")
    script = "print('INFO : fedquilt: of today')"
    monkeypatch.setattr(
        rehearsal, "start_run", lambda order: rehearsal.group.start("run", [sys.executable, "-c", script], os.environ)
    )
    told: list[str] = []
    try:
        rehearsal._prepare()
        assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700
        assert rehearsal.run({"out": str(tmp_path)}, told.append) == {}
    finally:
        rehearsal.__exit__()
    assert told == ["of today"]
    assert not (tmp_path / "private").exists()
    assert not rehearsal.folder.exists()


def test_keys_outlive_a_rehearsal_that_has_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/tmp")  # where names of sockets are short enough
    keys = []
    for _ in range(2):
        rehearsal = Rehearsal([tmp_path / "site.yaml"], tmp_path / "logs", private=tmp_path / "private")
        try:
            rehearsal._prepare()
            assert rehearsal._env("site-0")["TMPDIR"].startswith(str(rehearsal.folder))
        finally:
            rehearsal.__exit__()
        keys.append((tmp_path / "private" / "keys" / "node-0").read_bytes())
        assert (tmp_path / "private" / "keys" / "node-0").stat().st_mode & 0o777 == 0o600
    assert keys[0] == keys[1]


def test_without_nginx_sites_connect_to_the_superlink_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for found, same in (("/usr/sbin/nginx", False), (None, True)):
        monkeypatch.setattr("fedquilt.federation.local.rehearsal.find_nginx", lambda found=found: found)
        rehearsal = Rehearsal([], tmp_path / "logs")
        try:
            rehearsal._prepare()
            assert (rehearsal.port == rehearsal.superlink_port) == same
            config = tomllib.loads((rehearsal.folder / "coordinator" / "config.toml").read_text())
            assert config["superlink"]["rehearsal"]["address"] == f"{HOST}:{rehearsal.superlink_port}"
            if found is None:
                rehearsal.start_proxy()
                assert "proxy" not in rehearsal.group.running
        finally:
            rehearsal.__exit__()


@needs_nginx
def test_the_proxy_has_the_mark_of_the_rehearsal_and_says_why_it_did_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal = Rehearsal([], tmp_path / "logs")
    try:
        rehearsal._prepare()
        rehearsal.start_proxy()
        (process,) = rehearsal.group.started("proxy")  # its mark is there, so a watchdog finds it
        assert process == rehearsal.group.running["proxy"].pid
        monkeypatch.setattr("fedquilt.federation.nginx.proxy.Proxy.config", lambda self: "nonsense;")
        rehearsal.group.end(["proxy"])
        with pytest.raises(FedquiltError, match=r"The proxy \(nginx\) did not start; it said: .*nonsense"):
            rehearsal.start_proxy()
    finally:
        rehearsal.__exit__()
    assert not Path(f"/proc/{process}").exists()


def test_the_flower_app_is_where_flwr_run_is_told() -> None:
    folder = app_folder()
    assert (folder / "pyproject.toml").is_file()
    app = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    for component in app["components"].values():
        assert (folder / (component.partition(":")[0].replace(".", "/") + ".py")).is_file()
    said = subprocess.run([sys.executable, "-m", "fedquilt.federation"], capture_output=True, text=True, check=True)
    assert said.stdout == f"{folder}\n"


def test_the_app_lists_the_fields_of_the_configuration() -> None:
    app = tomllib.loads((app_folder() / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    fields = FederationConfig.model_fields
    assert {name.replace("-", "_") for name in app["config"]} == set(fields)
    made = FederationConfig.read({**app["config"], "out": "run"})
    assert made == FederationConfig(out="run")


def test_a_command_that_is_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FedquiltError, match="Flower is not installed"):
        find_tool("flower-nothing")


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(3)
    assert len(set(ports)) == 3
    for port in ports:
        with socket.socket() as listening:
            listening.bind((HOST, port))
