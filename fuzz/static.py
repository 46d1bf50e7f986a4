"""`python -m fuzz.static FOLDER`: what must not be in the source at all, whatever a comment beside it says.

Ruff's S rules find most of these too, but a `noqa` silences them; nothing silences this.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

# Modules that run code which is in what they read.
MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "telnetlib"}
# Calls that run code or a shell, or that read what can run code.
CALLS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "pty.spawn"),
    *("torch.load", "torch.save", "torch.hub.load", "pandas.read_pickle", "numpy.fromregex"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.FullLoader", "yaml.UnsafeLoader"),
    *("tempfile.mktemp", "ssl._create_unverified_context", "subprocess.getoutput", "subprocess.getstatusoutput"),
}
ALIASES = {"np": "numpy", "pd": "pandas", "sp": "subprocess"}
# Arguments that switch a protection off.
ARGUMENTS = {"shell": True, "allow_pickle": True, "weights_only": False, "verify": False, "check_hostname": False}
# The exceptions: an unpickler that makes nothing but arrays, for the files of Planetoid that PyTorch Geometric unpickles next;
# and plug-ins, files of Python that their user named (SECURITY.md).
EXCEPTIONS = {
    ("datasets/raw_checks.py", "import of pickle"),
    ("common/plugin_files.py", "exec()"),
    ("common/plugin_files.py", "compile()"),
}
NEEDS_FALSE = {"numpy.load": "allow_pickle"}


def forbidden(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a module that have what must not be there, each with what that is."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in _imported(node):
                if name.split(".")[0] in MODULES or name in CALLS:
                    yield node.lineno, f"import of {name}"
        elif isinstance(node, ast.Attribute) and (name := _dotted(node)) in CALLS:
            yield node.lineno, name
        elif isinstance(node, ast.Call):
            yield from _call(node)


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]


def _call(node: ast.Call) -> Iterator[tuple[int, str]]:
    name = _dotted(node.func)
    if isinstance(node.func, ast.Name) and name in CALLS:
        yield node.lineno, f"{name}()"
    given = {word.arg: word.value for word in node.keywords if word.arg}
    for word, value in given.items():
        if word in ARGUMENTS and isinstance(value, ast.Constant) and value.value is ARGUMENTS[word]:
            yield node.lineno, f"{word}={ARGUMENTS[word]}"
    needed = NEEDS_FALSE.get(name)
    if needed and not (isinstance(given.get(needed), ast.Constant) and given[needed].value is False):  # type: ignore[attr-defined]
        yield node.lineno, f"{name}() without {needed}=False"


def _dotted(node: ast.expr) -> str:
    """A name such as os.system; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([ALIASES.get(node.id, node.id), *reversed(parts)])


def main(folders: list[str]) -> int:
    """Print what is found in the modules of some folders; 1 where something is."""
    paths = [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]
    if not paths:
        print(f"fuzz.static: there are no modules in {', '.join(folders) or 'no folder'}")
        return 2
    found = [
        (path, line, what)
        for path in paths
        for line, what in forbidden(path.read_text(encoding="utf-8"))
        if not any(path.as_posix().endswith(f"/{module}") and what == excepted for module, excepted in EXCEPTIONS)
    ]
    for path, line, what in found:
        print(f"{path}:{line}: {what}")
    print(f"fuzz.static: {len(paths)} modules, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
