"""A site's unit of systemd and its container file: the files of this folder with their @{names} filled in."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template

from fedquilt.common.files import write_text
from fedquilt.common.version import VERSION
from fedquilt.errors import FedquiltError
from fedquilt.federation.nginx.config_files import host_and_port
from fedquilt.federation.site.config import read_site

UNIT, CONTAINER = "fedquilt-site.service", "Containerfile"
EXAMPLE = "coordinator.example:8000"
FLOWER_HOME = "flower"  # in the state folder: what Flower itself keeps


class _AtTemplate(Template):
    """systemd and shells have variables with $ of their own."""

    delimiter = "@"


@dataclass(frozen=True)
class Service:
    """What keeps a site running.

    Attributes:
        site: its site.yaml.
        coordinator: where SuperNodes connect, such as coordinator.example:8000.
        authority: the certificate that signed the coordinator's.
        node_key: the site's private key.
        user: the user that the unit runs as.
    """

    site: Path
    coordinator: str
    authority: Path
    node_key: Path
    user: str = "fedquilt"

    def unit(self) -> str:
        """The unit of systemd; what cannot work is refused with a sentence."""
        settings = read_site(self.site)
        if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", self.user):
            raise FedquiltError(f"'{self.user}' is no name of a user; write it as in --user fedquilt.")
        state = Path(settings.state).absolute()
        site = self.site.absolute()
        return _filled_in(
            UNIT,
            description=f"fedquilt site {_text(settings.name)}",
            user=self.user,
            folder=_text(str(site.parent)),
            flower_home=_text(str(state / FLOWER_HOME)),
            python=_quoted(Path(sys.executable)),
            supernode=_quoted(supernode()),
            site=_quoted(site),
            coordinator=self._coordinator(),
            authority=_quoted(_existing(self.authority, "--authority")),
            node_key=_quoted(_existing(self.node_key, "--node-key")),
            node_config=f'"site=\\"{_text(str(site))}\\""',
            state=_quoted(state),
            # A private /dev has no GPU.
            private_devices="yes" if settings.device == "cpu" else "no",
        )

    def container(self) -> str:
        """The container file."""
        return _filled_in(
            CONTAINER,
            version=VERSION,
            python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
            coordinator=self._coordinator(),
        )

    def write(self, folder: Path) -> list[Path]:
        """Write both files to a folder."""
        texts = {UNIT: self.unit(), CONTAINER: self.container()}
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
        return [folder / name for name in texts]

    def _coordinator(self) -> str:
        host, port = host_and_port(self.coordinator, EXAMPLE)
        return f"{host}:{port}"


def supernode() -> Path:
    """The SuperNode beside this Python."""
    program = Path(sys.executable).with_name("flower-supernode")
    if not program.is_file():
        raise FedquiltError(
            "Flower is not installed beside this Python; install it with: pip install 'fedquilt[flower]'."
        )
    return program


def _filled_in(name: str, **values: str) -> str:
    return _AtTemplate(Path(__file__).with_name(name).read_text(encoding="utf-8")).substitute(values)


def _existing(path: Path, option: str) -> Path:
    if not path.is_file():
        raise FedquiltError(f"{path} is not there; name the file with {option}.")
    return path.absolute()


def _text(text: str) -> str:
    """Text that systemd reads as it is: % is doubled; what would end a string or begin a variable is refused."""
    if not text.isprintable() or set(text) & set("\"'\\$"):
        raise FedquiltError(f"systemd cannot read {text!r}; choose a name without quotes, backslashes and $.")
    return text.replace("%", "%%")


def _quoted(path: Path) -> str:
    return f'"{_text(str(path))}"'
