from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from fedquilt.reports.page import build
from fedquilt.reports.page.build import page_html
from fedquilt.reports.page.chart_data import read_page_run
from fedquilt.reports.page.data import HeaderCell, Page, PageCell, PageFacts, PageTable
from fedquilt.reports.page.run_pages import page_of_run
from fedquilt.reports.read_run import read_run
from support.page_document import Elements
from support.page_runs import HOSTILE, write_run


def test_nothing_that_someone_named_becomes_markup(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", more={"settings": {HOSTILE: HOSTILE}, "data": HOSTILE})
    run = read_page_run(folder, HOSTILE, HOSTILE)
    run = dataclasses.replace(run, upload={HOSTILE: 1.0}, timings={HOSTILE: 1.0})
    table = PageTable(HOSTILE, HOSTILE, ((HeaderCell(HOSTILE),),), ((PageCell(HOSTILE, HOSTILE, "best"),),))
    facts = PageFacts(HOSTILE, ((HOSTILE, HOSTILE),), HOSTILE)
    page = Page(HOSTILE, HOSTILE, (HOSTILE,), (table,), (run,), (facts,))
    text = page_html(page)
    document = Elements(text)
    assert document.all("img") == []
    assert len(document.all("script")) == 3
    assert json.loads(document.data)["runs"][0]["label"] == HOSTILE
    assert HOSTILE in document.seen
    assert text.count("</script>") == 3


def test_the_page_asks_nobody_for_anything(tmp_path: Path) -> None:
    page = page_of_run(read_run(write_run(tmp_path / "run")))
    document = Elements(page_html(page))
    policy = next(meta for meta in document.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert (policy["content"] or "").startswith("default-src 'none';")
    sources = [attributes.get(name) for _, attributes in document.tags for name in ("src", "href")]
    assert all(source.startswith(("#", "data:")) for source in sources if source)
    assert len(page_html(Page("no runs"))) < 100_000  # without runs there are no charts, and no library for them


def test_every_script_is_in_the_page_and_none_can_end_it_early() -> None:
    assets = Path(build.__file__).parent / "assets"
    assert {path.stem for path in (assets / "js").glob("*.js")} == set(build._SCRIPTS)
    for path in [*(assets / "js").glob("*.js"), assets / "echarts.min.js"]:
        assert not re.search(r"</script|<!--", path.read_text(encoding="utf-8"), re.IGNORECASE), path
    assert "</style" not in (assets / "page.css").read_text(encoding="utf-8")
    for name in ("LICENSE", "NOTICE", "LICENSE-d3"):
        assert (assets / f"echarts.{name}").is_file()
