"""The site.yaml files of a rehearsal; tests/cli/test_rehearse.py has whole rehearsals."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.local import rehearse as module
from fedquilt.federation.local.rehearse import rehearse, site_files


@pytest.mark.parametrize(("nginx", "lines"), [("/usr/sbin/nginx", 1), (None, 2)])
def test_a_rehearsal_without_the_proxy_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nginx: str | None, lines: int
) -> None:
    class Double:
        def __init__(self, *_: object, **__: object) -> None:
            self.nginx = nginx

        def run(self, *_: object) -> dict[str, object]:
            return {}

        def __enter__(self) -> Double:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(module, "Rehearsal", Double)
    monkeypatch.setattr(module, "prepared", lambda *_: nullcontext(([], {})))
    said: list[str] = []
    assert rehearse([], {}, tmp_path, said.append) == {}
    assert len(said) == lines
    assert ("is not installed: sites connect to the SuperLink itself" in said[0]) == (nginx is None)


def test_files_are_listed_or_found_by_a_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "site.yaml").touch()
    assert site_files("*/site.yaml") == [Path("a/site.yaml"), Path("b/site.yaml")]
    assert site_files("b/site.yaml, a/site.yaml") == [Path("b/site.yaml"), Path("a/site.yaml")]
    for text, says in (
        ("a/site.yaml,", "--sites has an empty name in it"),
        ("c/*.yaml", r"No file is called as in 'c/\*\.yaml'"),
        ("a", "a is a folder; name its site.yaml, such as a/site.yaml"),
    ):
        with pytest.raises(FedquiltError, match=says):
            site_files(text)
