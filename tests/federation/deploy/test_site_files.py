from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.deploy.site_files import CONTAINER, UNIT, Service

SITE = "name: st-anna\ngraph: graph/\nstate: my state\n"


@pytest.fixture
def service(tmp_path: Path) -> Service:
    folder = tmp_path / "of 100% Anna"
    folder.mkdir()
    for name, text in {"site.yaml": SITE, "ca.crt": "certificate", "node-key": "key"}.items():
        (folder / name).write_text(text)
    return Service(folder / "site.yaml", "coordinator.example:8000", folder / "ca.crt", folder / "node-key")


def values(unit: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit, re.MULTILINE)


def test_the_unit_starts_a_supernode_of_this_site_after_checking_it(service: Service) -> None:
    unit = service.unit()
    folder = str(service.site.parent)
    command = [word.replace("%%", "%") for word in shlex.split(values(unit, "ExecStart")[0])]
    assert command[0].endswith("/flower-supernode")
    assert command[1:] == [
        *("--superlink", "coordinator.example:8000", "--root-certificates", f"{folder}/ca.crt"),
        *("--auth-supernode-private-key", f"{folder}/node-key", "--node-config", f'site="{folder}/site.yaml"'),
    ]
    check = [word.replace("%%", "%") for word in shlex.split(values(unit, "ExecStartPre")[0])]
    assert check[1:] == ["-m", "fedquilt", "site", "check", f"{folder}/site.yaml"]
    assert values(unit, "ReadWritePaths") == [f'"{folder}/my state"'.replace("%", "%%")]
    assert values(unit, "PrivateDevices") == ["yes"]
    assert values(unit, "Restart") == ["always"]
    service.site.write_text(SITE + "device: cuda\n")
    assert values(service.unit(), "PrivateDevices") == ["no"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit_and_finds_a_wrong_one(service: Service, tmp_path: Path) -> None:
    (unit, _) = service.write(tmp_path / "out")

    def verify() -> tuple[int, str]:
        found = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60
        )
        return found.returncode, "\n".join(line for line in found.stderr.splitlines() if UNIT in line)

    assert verify() == (0, "")
    unit.write_text(unit.read_text().replace("RestartSec=10", "RestartSec=soon"))
    assert "Failed to parse" in verify()[1]


def test_the_container_installs_this_version_and_is_not_root(service: Service, tmp_path: Path) -> None:
    from fedquilt import __version__

    (_, path) = service.write(tmp_path / "out")
    assert path.name == CONTAINER
    text = path.read_text()
    assert "@{" not in text
    assert f"COPY fedquilt-{__version__}-py3-none-any.whl" in text
    joined = text.replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "ARG", "COPY", "RUN", "ENV", "USER", "WORKDIR", "VOLUME", "ENTRYPOINT", "CMD"}
    assert {line.split()[0] for line in lines} == known
    assert "USER 10001" in lines
    command = next(line for line in lines if line.startswith("CMD"))
    assert '"--superlink", "coordinator.example:8000"' in command
    assert r'"site=\"/site/site.yaml\""' in command


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"coordinator": "nowhere"}, "no address with a port"),
        ({"user": "a b"}, "no name of a user"),
        ({"authority": Path("missing.crt")}, "name the file with --authority"),
        ({"node_key": Path("missing")}, "name the file with --node-key"),
    ],
)
def test_what_cannot_work_is_refused(service: Service, tmp_path: Path, change: dict, says: str) -> None:
    wrong = Service(**{**vars(service), **change})
    with pytest.raises(FedquiltError, match=says):
        wrong.write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_path_that_systemd_would_read_as_something_else_is_refused(service: Service) -> None:
    folder = service.site.parent.with_name("it's")
    shutil.copytree(service.site.parent, folder)
    with pytest.raises(FedquiltError, match="systemd cannot read"):
        Service(folder / "site.yaml", service.coordinator, service.authority, service.node_key).unit()
