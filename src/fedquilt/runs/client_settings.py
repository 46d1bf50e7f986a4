"""Settings of single clients: from texts such as "3:lr=0.005", from a csv file with a column `client`, or from Python."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedquilt.common.printable import shown
from fedquilt.common.read_limit import read_bounded
from fedquilt.errors import FedquiltError

ClientSettings = dict[str, dict[str, Any]]
"""By the client's number, as text, the settings that it has in place of the others'."""
_LARGEST = 50 * 2**20
_CLIENT = "client"


def parse_client_settings(texts: Sequence[str]) -> ClientSettings:
    """The settings in texts such as "3:lr=0.005" and "clients.csv"; of two for the same client and setting the later counts."""
    out: ClientSettings = {}
    for text in texts:
        if text.endswith(".csv"):
            _merge(out, read_client_table(Path(text)))
            continue
        client, colon, assignment = text.partition(":")
        name, equals, value = assignment.partition("=")
        if not colon or not equals or not name.strip() or not client.strip().isdecimal():
            raise FedquiltError(
                f"--set-client {text} is neither client:name=value, such as --set-client 3:lr=0.005, nor a csv file."
            )
        _merge(out, {client.strip(): {name.strip(): _value(value)}})
    return out


def read_client_table(path: Path) -> ClientSettings:
    """The settings in a csv file: a column `client`, and one for each setting; an empty cell leaves the usual value."""
    try:
        text = read_bounded(path, _LARGEST).decode("utf-8-sig")
    except OSError as error:
        raise FedquiltError(f"The clients' settings in {path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # too large, or no UTF-8
        raise FedquiltError(f"The clients' settings in {path} cannot be read: {error}.") from None
    first = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text), delimiter=";" if ";" in first else ",", skipinitialspace=True)
    names = [name.strip() for name in rows.fieldnames or []]
    if _CLIENT not in names or len(set(names)) < len(names) or len(names) < 2:
        raise FedquiltError(
            f"{path} needs a column 'client' and one for each setting, such as: client,lr,weight_decay."
        )
    rows.fieldnames = names
    out: ClientSettings = {}
    for row in rows:
        where, client = f"{path}, line {rows.line_num}", str(row.pop(_CLIENT) or "").strip()
        if not client.isdecimal():
            raise FedquiltError(f"{where}: '{client}' is no client's number; clients are numbered from 0 on.")
        if client in out:
            raise FedquiltError(f"{where}: client {client} is there twice; give each client one row.")
        if None in row:
            raise FedquiltError(f"{where}: the row has more cells than the header.")
        out[client] = {name: _value(cell) for name, cell in row.items() if cell is not None and cell.strip()}
    return {client: given for client, given in out.items() if given}


def as_client_settings(value: Any) -> Any:
    """A value of the option as it is stored: numbers become text, a path the content of its file."""
    if isinstance(value, str | os.PathLike):
        return read_client_table(Path(value))
    if isinstance(value, Mapping):
        return {str(client): dict(given) if isinstance(given, Mapping) else given for client, given in value.items()}
    return value


def check_numbers(settings: ClientSettings, clients: int) -> None:
    """Refuse settings of a client that the run does not have."""
    for client in settings:
        if not client.isdecimal() or int(client) >= clients:
            raise FedquiltError(
                f"There is no client {shown(client)} to set something for; the run's clients are numbered 0 to {clients - 1}."
            )


def _merge(out: ClientSettings, more: ClientSettings) -> None:
    for client, given in more.items():
        out.setdefault(str(int(client)), {}).update(given)


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()
