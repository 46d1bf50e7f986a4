"""`fedquilt federation`: the configurations of nginx that it writes, and what it refuses."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fedquilt.federation.nginx.config_files import find_nginx

FILES = ("server.pem", "server.key", "ca.crt", "site.pem", "site.key")


@pytest.fixture
def files(here: Path) -> Path:
    """A folder with files of the names that the commands look for."""
    for name in FILES:
        (here / name).touch()
    return here


def test_a_proxy_is_written_with_the_command_that_starts_it(call: Callable, files: Path) -> None:
    called = call("federation proxy proxy --listen [::]:9000 --superlink-port 9001 --allow 192.0.2.7,10.0.0.0/8")
    assert called.status == 0, called.err
    assert called.out.startswith("Written: proxy/nginx.conf. Start it with: ")
    assert "-e stderr -p proxy -c nginx.conf -g 'daemon off;'" in called.out.splitlines()[0]
    config = (files / "proxy" / "nginx.conf").read_text()
    for line in (
        "listen [::]:9000 ssl;",
        "server 127.0.0.1:9001;",
        "allow 192.0.2.7/32;",
        "allow 10.0.0.0/8;",
        "deny all;",
    ):
        assert line in config
    assert "ssl_verify_client" not in config
    call("federation proxy asking --site-authority ca.crt")
    assert "ssl_verify_client on;" in (files / "asking" / "nginx.conf").read_text()


def test_a_relay_is_written(call: Callable, files: Path) -> None:
    assert call("federation relay relay --coordinator coordinator.example:8000").status == 0
    config = (files / "relay" / "nginx.conf").read_text()
    for line in (
        "server coordinator.example:8000 max_fails=0;",
        "proxy_ssl_name coordinator.example;",
        "listen 127.0.0.1:8002 ssl;",
    ):
        assert line in config


def test_root_and_a_machine_without_nginx_are_told(
    call: Callable, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedquilt.federation.nginx.config_files.find_nginx", lambda: None)
    monkeypatch.setattr("fedquilt.federation.nginx.config_files.is_root", lambda: True)
    said = call("federation proxy proxy").out
    assert "Start it with: nginx -e stderr" in said
    assert "nginx 1.20 or newer is not installed here" in said
    assert "will run as root" in said
    assert "user root;" in (files / "proxy" / "nginx.conf").read_text()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("proxy proxy --key nothing.key", "nothing.key is not there; name the file with the certificate's key."),
        ("proxy proxy --listen 8000", "'8000' is no address with a port; write it as in 0.0.0.0:8000."),
        ("proxy proxy --listen coordinator.example:8000", "'coordinator.example' is no address of this machine"),
        ("proxy proxy --superlink-port 0", "'0' is no port; it has to be a number from 1 to 65535."),
        ("proxy proxy --superlink-port 8000", "The proxy and the SuperLink cannot both have port 8000"),
        ("proxy proxy --allow everyone", "'everyone' is no address or network"),
        ("proxy proxy --allow=", "'' is no address or network"),
        ("proxy full", "full is already there; choose another name."),
        ("relay relay --coordinator 192.0.2.1:8000", "nginx checks certificates by name"),
        ("relay relay --coordinator nowhere", "'nowhere' is no address with a port"),
        ("relay relay", "Missing option '--coordinator'"),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_is_written(
    refused: Callable, files: Path, line: str, says: str
) -> None:
    (files / "full").mkdir()
    (files / "full" / "mine").touch()
    assert says in refused(f"federation {line}")
    assert {path.name for path in files.iterdir()} == {*FILES, "full"}


@pytest.mark.skipif(find_nginx() is None, reason="needs nginx, which your distribution has")
def test_nginx_understands_what_is_written(call: Callable, here: Path) -> None:
    from fedquilt.federation.local.keys import make_certificates

    make_certificates(here)
    for line in (
        "proxy one",
        "proxy two --allow 192.0.2.7 --site-authority ca.crt",
        "relay three --coordinator localhost:1 --certificate server.pem --key server.key",
    ):
        assert call(f"federation {line}").status == 0
        folder = here / line.split()[1]
        command = [str(find_nginx()), "-t", "-e", "stderr", "-p", str(folder), "-c", "nginx.conf"]
        said = subprocess.run(command, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        assert "[warn]" not in said.stderr
