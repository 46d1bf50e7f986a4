"""Configurations of nginx: the files of this folder with their @{names} filled in, and the command that starts nginx with one.

A configuration is whole: it needs no file of the system's own nginx, and runs as the user who starts it, with its logs and
temporary files in its own folder.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from string import Template

from fedquilt.common.files import write_text
from fedquilt.errors import FedquiltError

CONFIG, LOGS, TEMPORARY = "nginx.conf", "logs", "temp"
ACCESS_LOG = f"{LOGS}/access.log"
OLDEST = (
    1,
    20,
)  # of nginx: before, it cannot be told where to say what is wrong until it has read its configuration (-e)
# Where distributions put nginx; an ordinary user's PATH may lack it.
SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin")


class _AtTemplate(Template):
    """nginx has variables with $ of its own."""

    delimiter = "@"


def filled_in(name: str, values: Mapping[str, object]) -> str:
    """The file of this folder called `name`, with its @{names} filled in."""
    # As root, nginx's workers would become another user, who cannot enter the folder.
    user = "user root;\n" if is_root() else ""
    return _AtTemplate(Path(__file__).with_name(name).read_text()).substitute(values, user=user)


def is_root() -> bool:
    """Whether this process is root's."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def write_config(folder: Path, text: str) -> None:
    """Write a configuration and the folders it names, for this user only."""
    for each in (folder, folder / LOGS, folder / TEMPORARY):
        each.mkdir(parents=True, exist_ok=True)
        each.chmod(0o700)
    write_text(folder / CONFIG, text)


def find_nginx() -> str | None:
    """The path of nginx, None where it is not installed or older than OLDEST."""
    found = shutil.which("nginx") or shutil.which("nginx", path=os.pathsep.join(SYSTEM_FOLDERS))
    return found if found is not None and _version(found) >= OLDEST else None


def _version(program: str) -> tuple[int, ...]:
    """The first two numbers of nginx's version; (0, 0) where it does not say."""
    try:
        found = subprocess.run([program, "-v"], capture_output=True, text=True, timeout=10)  # noqa: S603 - nginx, and no shell
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    numbers = re.search(r"/(\d+)\.(\d+)", found.stderr)
    return tuple(map(int, numbers.groups())) if numbers else (0, 0)


def start_command(folder: Path, program: str = "/usr/sbin/nginx", directives: str = "") -> list[str]:
    """The command that runs nginx in the foreground with the configuration in `folder`, and more directives."""
    return [program, "-e", "stderr", "-p", str(folder), "-c", CONFIG, "-g", f"daemon off;{directives}"]


def host_and_port(text: str, example: str) -> tuple[str, int]:
    """Split 'host:port'; the host is a name, an IPv4 address or an IPv6 address in brackets."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        valid = is_address(host)
    else:
        labels = host.split(".")
        valid = len(host) < 254 and all(
            label.isascii() and label.replace("-", "a").isalnum() and len(label) < 64 for label in labels
        )
    if not valid:
        raise FedquiltError(f"'{text}' is no address with a port; write it as in {example}.")
    return host, valid_port(port)


def address_and_port(text: str, example: str) -> tuple[str, int]:
    """Split 'address:port', where the address is one that can be listened on."""
    host, port = host_and_port(text, example)
    if not is_address(host):
        raise FedquiltError(f"'{host}' is no address of this machine; write it as in {example}.")
    return host, port


def valid_port(text: str | int) -> int:
    """A port as a number."""
    digits = str(text)
    if not (digits.isascii() and digits.isdigit() and len(digits) < 6 and 0 < int(digits) < 2**16):
        raise FedquiltError(f"'{text}' is no port; it has to be a number from 1 to 65535.")
    return int(digits)


def network(text: str) -> str:
    """An address or a network as nginx writes it."""
    try:
        return str(ipaddress.ip_network(text.strip()))
    except ValueError:
        raise FedquiltError(f"'{text}' is no address or network; write it as in 192.0.2.7 or 192.0.2.0/24.") from None


def existing_file(path: Path, what: str) -> str:
    """The absolute path of a file, in quotes; refused where nginx would read it as something else."""
    if not path.is_file():
        raise FedquiltError(f"{path} is not there; name the file with {what}.")
    text = str(path.absolute())
    if not text.isprintable() or set(text) & set('"\\$'):
        raise FedquiltError(f"nginx cannot read the path {text!r}; choose one without quotes, backslashes and $.")
    return f'"{text}"'


def is_address(host: str) -> bool:
    """Whether a host is an address rather than a name; an IPv6 address may be in brackets."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
