"""The files of a report."""

from __future__ import annotations

from pathlib import Path

from fedquilt.studies.gather import gather
from fedquilt.studies.plan import plan_study
from fedquilt.studies.report import write_report


def test_a_report_is_written_in_all_its_forms_without_absolute_paths(ran_study: Path, tmp_path: Path) -> None:
    plan = plan_study("tiny.yaml")
    summary = gather(plan, Path("studies"))
    written = write_report(summary, plan.command, tmp_path / "out")
    assert [path.name for path in written] == ["report.md", "report.csv", "report.tex", "report.html"]
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert str(ran_study) not in text, path
        assert "FED-PUB" in text
    assert "    fedquilt study run tiny.yaml\n" in written[0].read_text()
    assert "methods that are not in fedquilt yet (tomorrows)" in written[0].read_text()
    again = write_report(summary, plan.command, tmp_path / "again")
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]
