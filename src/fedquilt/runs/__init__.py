"""The run folder: config, metrics, checkpoints, models and the result, safe against a kill at any moment."""

from fedquilt.common.files import read_npz, write_bytes, write_json, write_npz, write_text
from fedquilt.runs.checkpoint import Checkpoint
from fedquilt.runs.folder import RunFolder, SeedFolder
from fedquilt.runs.result import build_result

__all__ = [
    "Checkpoint",
    "RunFolder",
    "SeedFolder",
    "build_result",
    "read_npz",
    "write_bytes",
    "write_json",
    "write_npz",
    "write_text",
]
