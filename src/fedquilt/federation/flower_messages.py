"""Requests and replies as Flower's messages: a short JSON header, and one blob of tensors.

The blob is what `fedquilt.messages.wire` writes. So the bytes that cross are those that the ledger counts, and a few hundred
bytes of names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedquilt.common.json_text import parse_json

HEADER_LIMIT = 2**16
_HEADER, _BODY = "header", "body"


def pack(header: Mapping[str, Any], body: bytes = b"") -> RecordDict:
    """The content of a Flower message."""
    text = json.dumps(header, separators=(",", ":"), allow_nan=True)
    records = RecordDict({_HEADER: ConfigRecord({"json": text})})
    if body:
        records[_BODY] = ArrayRecord({"0": Array(dtype="uint8", shape=(len(body),), stype="safetensors", data=body)})
    return records


def unpack(content: RecordDict) -> tuple[dict[str, Any], bytes]:
    """The header and the blob. Raises ValueError on anything that `pack` did not write; nothing is unpickled."""
    if set(content.keys()) - {_HEADER, _BODY}:
        raise ValueError("it has records that no message has")
    configs, arrays = content.config_records, content.array_records
    text = configs[_HEADER].get("json") if _HEADER in configs else None
    if not isinstance(text, str) or len(text) > HEADER_LIMIT:
        raise ValueError("it has no header, or one that is too long")
    header = parse_json(text)
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    if _BODY not in arrays:
        return header, b""
    if set(arrays[_BODY].keys()) != {"0"}:
        raise ValueError("it has more than one blob")
    return header, arrays[_BODY]["0"].data
