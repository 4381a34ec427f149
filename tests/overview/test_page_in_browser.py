"""The page in a real browser. Without a Chromium these tests fail, they never skip (see scripts/browser.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from recsys.overview.charts import Drawing
from recsys.overview.gather import gather
from recsys.overview.page import Page, make_page
from recsys.overview.render import html
from scripts.browser import find_browser

# Marks are what a chart draws of its data; axes and legends are there in an empty one, too.
_CHARTS = """() => [...document.querySelectorAll('.chart')].map(chart => ({
    name: chart.id.replace('chart-', ''),
    state: chart.dataset.state,
    marks: [...chart.querySelectorAll('svg .role-mark path, svg .role-mark line')]
        .filter(mark => mark.getAttribute('d') || mark.getAttribute('x2')).length,
    width: chart.querySelector('svg')?.getBoundingClientRect().width ?? 0,
    text: chart.textContent,
}))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser())
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(desk: Path) -> Page:
    return make_page(gather([desk]), 0.02)


class Visit:
    """A page in a window of this size, with everything that the console and the network saw."""

    def __init__(self, browser: Browser, path: Path, width: int, scheme: Any) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        self.trouble: list[str] = []
        self.fetched: list[str] = []
        self.page.on("console", lambda message: self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("request", lambda request: self.fetched.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_function("document.documentElement.dataset.ready")

    def charts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.page.evaluate(_CHARTS)
        return found

    def width(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth"))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_chart_is_drawn_and_nothing_overflows(
    browser: Browser, page: Page, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(html(page), encoding="utf-8")
    visit = Visit(browser, path, width, scheme)
    assert not visit.trouble
    assert visit.fetched == [path.as_uri()]
    assert visit.width() <= width
    charts = visit.charts()
    assert [chart["name"] for chart in charts] == [d.name for section in page.sections for d in section.drawings]
    for chart in charts:
        assert chart["state"] == "drawn" and chart["marks"] > 0, chart
        assert 200 < chart["width"] <= width, chart
    visit.page.close()


def test_charts_follow_the_system_from_light_to_dark(browser: Browser, page: Page, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html(page), encoding="utf-8")
    visit = Visit(browser, path, 1280, "light")
    colour = "getComputedStyle(document.querySelector('#chart-pareto-0 .role-axis-label text')).fill"
    light = visit.page.evaluate(colour)
    visit.page.emulate_media(color_scheme="dark")
    visit.page.wait_for_function(f"{colour} !== '{light}'")
    assert all(chart["state"] == "drawn" for chart in visit.charts()) and not visit.trouble


def test_heads_of_the_chosen_model_and_values_under_the_pointer(browser: Browser, page: Page, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html(page), encoding="utf-8")
    visit = Visit(browser, path, 390, "light")
    select = visit.page.locator("#chart-head-curves select")
    assert select.locator("option").all_inner_texts() == ["erase6 detach=[mlp]", "erase6 detach=[mlp,cross]"]
    lines = visit.page.locator("#chart-head-curves .mark-line.role-mark path")
    assert lines.count() == 2
    select.select_option("erase6 detach=[mlp,cross]")
    visit.page.wait_for_function(
        "document.querySelectorAll('#chart-head-curves .mark-line.role-mark path').length === 3"
    )
    visit.page.locator("#chart-pareto-0 .mark-symbol.role-mark path").first.hover()
    visit.page.wait_for_selector("#vg-tooltip-element.visible")
    assert "test NE" in visit.page.locator("#vg-tooltip-element").inner_text()


def test_a_chart_that_cannot_be_drawn_is_seen(browser: Browser, page: Page, tmp_path: Path) -> None:
    """The check above is worth something only if a broken and an empty chart do not pass it."""
    values: list[Any] = [{"a": 1}]
    broken = Drawing("broken", {"data": {"values": values}, "mark": "no such mark", "encoding": {}}, "broken")
    x = {"field": "a", "type": "quantitative"}
    empty = Drawing("empty", {"data": {"values": []}, "mark": "point", "encoding": {"x": x}}, "empty")
    section = replace(page.sections[0], drawings=[broken, empty])
    path = tmp_path / "report.html"
    path.write_text(html(replace(page, sections=[section])), encoding="utf-8")
    visit = Visit(browser, path, 1280, "light")
    first, second = visit.charts()
    assert first["state"] == "failed" and "could not be drawn" in first["text"] and visit.trouble
    assert second["marks"] == 0
