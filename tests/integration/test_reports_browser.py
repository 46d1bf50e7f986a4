"""The HTML report in a browser: what a reader can do with it."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedquilt.reports.page.build import write_page
from fedquilt.reports.page.chart_data import read_page_run
from fedquilt.reports.page.data import HeaderCell, Page, PageCell, PageTable
from support.page_runs import HOSTILE, write_run

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install 'fedquilt[dev]'")
from selenium.webdriver import ActionChains  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not CHROMIUM or not DRIVER, reason="needs chromium and chromedriver (Debian: chromium-driver)"
)

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)
CHARTS = ("convergence", "similarity", "clients", "views", "views-rounds", "upload", "download", "time", "partition")
FIRST, SECOND = "cora, disjoint, 4 clients", "pubmed, disjoint, 6 clients"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's page: two settings, three methods, one of them with an unfriendly name."""
    into = tmp_path_factory.mktemp("page")
    runs = []
    for setting, dataset, clients in ((FIRST, "cora", 4), (SECOND, "pubmed", 6)):
        for method, factors, rounds in (("fedpub", None, 30), ("fediih", 2, 30), (HOSTILE, None, 1)):
            folder = into / f"{dataset}-{len(runs)}"
            views = ("mlp", HOSTILE) if method == "fedpub" else ()
            write_run(folder, method, rounds=rounds, clients=clients, dataset=dataset, factors=factors, views=views)
            runs.append(read_page_run(folder, method, setting))
    headers = (HeaderCell("Method"), *(HeaderCell(f"column {i}") for i in range(20)))
    row = (PageCell(HOSTILE, tone="head"), *(PageCell("80.00 ± 1.00", "paper 79.00", "exceeded") for _ in range(20)))
    table = PageTable("A wide one", "", (headers,), (row,))
    write_page(Page(f"Study {HOSTILE}", "A lead.", ("A note.",), (table,), tuple(runs)), into / "page.html")
    return into / "page.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def reader(browser: Any, page: Path) -> Iterator[Any]:
    """The page just opened; nothing that a test does may leave an error in the console."""
    browser.get(page.as_uri())
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []


def fresh(reader: Any) -> None:
    """Wait until the browser has drawn what changed."""
    reader.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def colour(reader: Any, label: str) -> str:
    return reader.execute_script("return fq.look(arguments[0]).colour", label).lower()


def lines(reader: Any, label: str) -> int:
    """How many bold lines of a label's colour the convergence chart has."""
    strokes = reader.execute_script(
        "return [...document.querySelectorAll('#convergence-chart svg path')]"
        ".map((path) => [path.getAttribute('stroke') ?? '', path.getAttribute('stroke-width')])"
    )
    own = colour(reader, label)
    return sum(stroke.lower() == own and width == "2.25" for stroke, width in strokes)


def chip(reader: Any, label: str) -> Any:
    return next(c for c in reader.find_elements(By.CLASS_NAME, "chip") if c.get_attribute("data-label") == label)


def cells(reader: Any) -> list[str]:
    """The colours of the heatmap."""
    return reader.execute_script(
        "return [...document.querySelectorAll('#similarity-chart svg path')].map((path) => path.getAttribute('fill'))"
    )


def test_every_chart_has_marks_a_label_and_a_table(reader: Any) -> None:
    for name in CHARTS:
        chart = reader.find_element(By.ID, f"{name}-chart")
        assert len(chart.find_elements(By.CSS_SELECTOR, "svg path")) > 4, name
        assert chart.get_attribute("role") == "img"
        assert len(chart.get_attribute("aria-label")) > 40
    for details in reader.find_elements(By.CSS_SELECTOR, ".chart-section details"):
        assert not details.get_attribute("open")
        details.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
        fresh(reader)
        assert details.get_attribute("open")
        assert len(details.find_elements(By.CSS_SELECTOR, "tbody tr")) >= 1
    values = reader.find_elements(By.CSS_SELECTOR, "#convergence-table tbody tr:last-child td")
    curve = reader.execute_script("return fq.runs()[0].curve")
    assert values[0].text == f"{curve['test'][-1]:.2f} ({curve['val'][-1]:.2f})"


def test_nothing_is_asked_of_the_network(reader: Any, page: Path) -> None:
    reader.get_log("performance")  # what the browser did before
    reader.refresh()
    Select(reader.find_element(By.ID, "setting")).select_by_visible_text(SECOND)
    messages = [json.loads(entry["message"])["message"] for entry in reader.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert page.as_uri() in asked
    assert all(url.startswith(("file:", "data:")) for url in asked)


def test_a_button_takes_a_method_away_and_brings_it_back(reader: Any) -> None:
    button = chip(reader, "fedpub")
    assert (lines(reader, "fedpub"), button.get_attribute("aria-pressed")) == (1, "true")
    button.send_keys(Keys.SPACE)
    assert (lines(reader, "fedpub"), button.get_attribute("aria-pressed")) == (0, "false")
    assert lines(reader, "fediih") == 1
    assert "fedpub" not in reader.find_element(By.ID, "time-chart").get_attribute("aria-label")
    button.send_keys(Keys.SPACE)
    assert (lines(reader, "fedpub"), button.get_attribute("aria-pressed")) == (1, "true")
    reader.find_element(By.ID, "methods-none").click()
    assert [lines(reader, label) for label in ("fedpub", "fediih", HOSTILE)] == [0, 0, 0]
    reader.find_element(By.ID, "methods-all").click()
    assert [lines(reader, label) for label in ("fedpub", "fediih", HOSTILE)] == [1, 1, 1]


def test_the_slider_moves_through_the_rounds_by_keyboard(reader: Any) -> None:
    slider, said = (reader.find_element(By.ID, name) for name in ("similarity-round", "similarity-when"))
    assert said.text == "round 29 (best)"
    before = cells(reader)
    slider.send_keys(Keys.ARROW_LEFT)
    assert said.text == "round 9"
    assert slider.get_attribute("aria-valuetext") == "round 9"
    assert cells(reader) != before
    slider.send_keys(Keys.ARROW_RIGHT)
    assert cells(reader) == before


def test_a_factor_a_seed_an_order_and_a_scale_can_be_chosen(reader: Any) -> None:
    assert not reader.find_element(By.ID, "similarity-factor").is_displayed()
    seen = [cells(reader)]
    for name, value in (("run", "fediih"), ("factor", "1"), ("seed", "1"), ("order", "alike"), ("scale", "all")):
        Select(reader.find_element(By.ID, f"similarity-{name}")).select_by_value(value)
        seen.append(cells(reader))
    reader.find_element(By.CSS_SELECTOR, "#similarity summary").send_keys(Keys.ENTER)
    fresh(reader)
    assert all(one != other for one, other in itertools.pairwise(seen))
    order = [
        cell.get_attribute("textContent")
        for cell in reader.find_elements(By.CSS_SELECTOR, "#similarity-table tbody th")
    ]
    assert sorted(order) == ["0", "1", "2", "3"]


def test_the_views_of_a_seed_can_be_chosen(reader: Any) -> None:
    def bars() -> list[str]:
        paths = "document.querySelectorAll('#views-chart svg path')"
        return reader.execute_script(f"return [...{paths}].map((path) => path.getAttribute('d'))")

    assert not reader.find_element(By.ID, "views-run").is_displayed()
    legend = reader.find_elements(By.CSS_SELECTOR, "#views-legend li")
    assert [one.get_attribute("textContent") for one in legend] == ["mlp", HOSTILE]
    assert reader.find_element(By.ID, "views-when").text == "The bars show the mixtures after the last round."
    before = bars()
    Select(reader.find_element(By.ID, "views-seed")).select_by_value("1")
    assert bars() != before


def test_a_setting_is_chosen_for_all_charts(reader: Any) -> None:
    Select(reader.find_element(By.ID, "setting")).select_by_visible_text(SECOND)
    assert {name.text for name in reader.find_elements(By.CLASS_NAME, "setting-name")} == {SECOND}
    assert "nodes of 6 clients" in reader.find_element(By.ID, "partition-chart").get_attribute("aria-label")
    assert "between 6 clients" in reader.find_element(By.ID, "similarity-chart").get_attribute("aria-label")
    assert "pubmed" in reader.find_element(By.ID, "run-facts").text


def test_dark_and_light(reader: Any) -> None:
    def looks() -> tuple[str, str]:
        paper = reader.execute_script("return getComputedStyle(document.body).backgroundColor")
        return paper, reader.find_element(By.ID, "theme").get_attribute("aria-pressed")

    light = looks()
    assert light == ("rgb(255, 255, 255)", "false")
    reader.find_element(By.ID, "theme").click()
    assert looks() == ("rgb(20, 23, 27)", "true")
    reader.find_element(By.ID, "theme").click()
    assert looks() == light
    emulate = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    reader.execute_cdp_cmd("Emulation.setEmulatedMedia", emulate)
    reader.refresh()
    assert looks() == ("rgb(20, 23, 27)", "true")
    reader.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_phone_never_scrolls_sideways(reader: Any) -> None:
    phone = {"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": True}
    reader.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        fresh(reader)
        reader.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        fresh(reader)
        assert reader.execute_script("return document.documentElement.scrollWidth") == 360
        widths = reader.execute_script(
            "return [...document.querySelectorAll('.chart svg')].map((svg) => svg.getBoundingClientRect().right)"
        )
        assert widths
        assert max(widths) <= 360
    finally:
        reader.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_tooltips_hold_text_not_markup(reader: Any) -> None:
    reader.execute_script(
        "document.getElementById('time-chart').scrollIntoView({block: 'center', behavior: 'instant'})"
    )
    reader.execute_script(
        "echarts.getInstanceByDom(document.getElementById('time-chart'))"
        ".dispatchAction({type: 'showTip', seriesIndex: 0, dataIndex: 2})"
    )
    tip = reader.find_element(By.CSS_SELECTOR, "#time-chart .tip")
    assert tip.get_attribute("textContent").startswith(f"{HOSTILE}: 20 ms a round")
    assert reader.find_elements(By.TAG_NAME, "img") == []


def test_a_keyboard_reaches_everything_and_sees_where_it_is(reader: Any) -> None:
    reader.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert reader.switch_to.active_element.get_attribute("class") == "skip"
    seen = set()
    for _ in range(120):
        name, outline = reader.execute_script(
            "const one = document.activeElement;"
            "return [one.id || one.dataset.label || one.localName, getComputedStyle(one).outlineStyle]"
        )
        if name == "body":
            break
        seen.add(name)
        assert outline != "none", name
        ActionChains(reader).send_keys(Keys.TAB).perform()
    assert {
        "theme",
        "setting",
        "fedpub",
        "zoom",
        "similarity-run",
        "similarity-round",
        "clients-seed",
        "summary",
    } <= seen
    unlabelled = reader.execute_script(
        "return [...document.querySelectorAll('input, select')].filter((one) => !one.labels.length).map((one) => one.id)"
    )
    assert unlabelled == []


def test_print_is_light_expanded_and_without_controls(reader: Any) -> None:
    reader.find_element(By.ID, "theme").click()
    reader.execute_script("dispatchEvent(new Event('beforeprint'))")
    reader.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert reader.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not reader.find_element(By.ID, "controls").is_displayed()
        assert not reader.find_element(By.ID, "similarity-round").is_displayed()
        assert all(table.is_displayed() for table in reader.find_elements(By.CSS_SELECTOR, "details table"))
        assert reader.find_element(By.ID, "convergence-legend").is_displayed()
    finally:
        reader.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        reader.execute_script("dispatchEvent(new Event('afterprint'))")
    assert not any(one.get_attribute("open") for one in reader.find_elements(By.TAG_NAME, "details"))
