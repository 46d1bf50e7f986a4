"""Files with hashes that verify them: facts as JSON, and named tensors with facts about them.

A seal finds accidents and careless edits. There is no key in it: who can write to a folder can also write new seals.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.common.files import plain, replacing
from fedquilt.common.json_text import read_json
from fedquilt.common.machine_limits import find_limit
from fedquilt.common.private_files import OWNER_FILE, write_private_json

if TYPE_CHECKING:
    import torch


LARGE = 2**28  # bytes; a larger file of tensors is memory-mapped instead of read


class DamagedError(Exception):
    """The pair is missing, incomplete or altered; the message says which."""


def write_pair(stem: Path, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
    """Write `<stem>.safetensors`, then `<stem>.json`, each atomically; the JSON file seals the pair.

    The JSON file comes second, so a process killed in between leaves a pair that does not verify. Both hold models, so only
    their owner may read them.
    """
    from safetensors.torch import save_file

    facts = plain(facts)
    with replacing(tensor_path(stem), OWNER_FILE) as temporary:
        save_file(_separate(tensors), temporary)
        tensors_sha256 = file_sha256(Path(temporary))
    seal = {"facts": facts, "tensors_sha256": tensors_sha256, "facts_sha256": facts_sha256(facts)}
    write_private_json(facts_path(stem), seal)


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts to a JSON file of their own, atomically, with the hash that verifies them."""
    facts = plain(facts)
    write_private_json(path, {"facts": facts, "facts_sha256": facts_sha256(facts)})


def read_facts(path: Path) -> dict[str, Any]:
    """The facts that `write_facts` wrote, or `DamagedError`."""
    return _read_seal(path)["facts"]


def read_pair(stem: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors (on the CPU) and the facts that `write_pair` wrote, or `DamagedError`."""
    from safetensors import SafetensorError
    from safetensors.torch import load, load_file

    seal = _read_seal(facts_path(stem))
    facts, tensors_sha256 = seal["facts"], seal.get("tensors_sha256")
    if not isinstance(tensors_sha256, str):
        raise DamagedError(f"{facts_path(stem).name} has no hash of the tensors")
    path = tensor_path(stem)
    try:
        # Read once, so that the verified bytes are the bytes used; a large file is memory-mapped instead.
        large = path.stat().st_size > LARGE
        data = b"" if large else path.read_bytes()
        digest = file_sha256(path) if large else hashlib.sha256(data).hexdigest()
    except OSError as error:
        _check_is_damage(error)
        raise DamagedError(f"{path.name} cannot be read ({error.strerror})") from error
    if digest != tensors_sha256:
        raise DamagedError(f"{path.name} is not the file that {facts_path(stem).name} describes")
    try:
        return load_file(path) if large else load(data), facts
    except SafetensorError as error:
        raise DamagedError(f"{path.name} is not a safetensors file") from error


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tensor_path(stem: Path) -> Path:
    """Where the tensors of a pair are."""
    return stem.with_name(stem.name + ".safetensors")


def facts_path(stem: Path) -> Path:
    """Where the facts of a pair are."""
    return stem.with_name(stem.name + ".json")


def facts_sha256(facts: Any) -> str:
    """SHA-256 of the canonical JSON: sorted keys, no spaces, UTF-8."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _check_is_damage(error: OSError) -> None:
    """Raise an error that says nothing about the file again: taken for damage, a sound checkpoint would be passed over."""
    limit = find_limit(error)
    if limit is not None and limit.kind in ("memory", "files", "access"):
        raise error


def _read_seal(path: Path) -> dict[str, Any]:
    """The content of a sealed JSON file whose facts verify."""
    try:
        seal = read_json(path)
    except OSError as error:
        _check_is_damage(error)
        raise DamagedError(f"{path.name} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DamagedError(f"{path.name} is not whole") from error
    if not isinstance(seal, dict) or not isinstance(seal.get("facts"), dict):
        raise DamagedError(f"{path.name} has no facts")
    try:
        digest = facts_sha256(seal["facts"])
    except ValueError as error:
        raise DamagedError(f"{path.name} holds a number that is not finite") from error
    if digest != seal.get("facts_sha256"):
        raise DamagedError(f"the facts in {path.name} were altered")
    return seal


def _separate(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors on the CPU, contiguous and none sharing memory with another, as safetensors asks."""
    seen: set[int] = set()
    separate: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        # The first `contiguous` copies only what needs it; a tensor that shares its storage is cloned.
        own = tensor.detach().cpu().contiguous()
        storage = own.untyped_storage().data_ptr()
        if storage in seen:
            own = own.clone()
        seen.add(storage)
        separate[name] = own
    return separate
