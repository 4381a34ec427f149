"""The page needs nothing but itself, says what the runs say, and Markdown shows the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from recsys.overview.charts import pareto, pareto_front
from recsys.overview.gather import gather
from recsys.overview.page import Page, make_page
from recsys.overview.render import html, markdown, write_page
from tests.overview.conftest import trace_file, write_made_up_run


@pytest.fixture(scope="module")
def page(desk: Path) -> Page:
    return make_page(gather([desk]), 0.02)


def test_every_part_of_the_page_is_there(page: Page) -> None:
    drawings = {section.name: [d.name for d in section.drawings] for section in page.sections}
    assert drawings == {
        "pareto": ["pareto-0", "pareto-1"],
        "gaps": ["gaps"],
        "figures": [],
        "learning": ["learning-curves"],
        "heads": ["head-curves"],
        "calibration": ["calibration"],
        "config": [],
        "timeline": ["timeline-0-0", "bench-bench-proxy"],
        "environment": [],
    }
    by_name = {section.name: section for section in page.sections}
    assert by_name["config"].shown[0].rows == [
        ("erase6 detach=[mlp]", "['mlp']"),
        ("erase6 detach=[mlp,cross]", "['mlp', 'cross']"),
    ]
    assert ("abc") in by_name["environment"].shown[0].rows[0]
    assert page.cards["runs"] == ("4", "3 models, baselines included")


def test_nothing_is_fetched(page: Page) -> None:
    text = html(page)
    assert len(text) < 4e6
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", own) and "@import" not in own and "url(" not in own
    assert "default-src 'none'" in own


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    name = "</script><img src=x>"
    write_made_up_run(tmp_path / "run", name=name, seed=0, noise=0.4, detach=["mlp"])
    text = html(make_page(gather([tmp_path]), 0.02))
    assert name not in text and "&lt;/script&gt;&lt;img" in text
    inside = re.search(r'<script type="application/json" id="specs">(.*?)</script>', text, re.DOTALL)
    assert inside is not None and name in json.dumps(json.loads(inside[1]))


def test_markdown_shows_the_same(desk: Path, page: Page, tmp_path: Path) -> None:
    write_page(tmp_path, page)
    text = (tmp_path / "report.md").read_text()
    assert text == markdown(page)
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert len(pictures) == sum(len(section.drawings) for section in page.sections)
    for picture in pictures:
        assert (tmp_path / picture).read_text().startswith("<svg") and len((tmp_path / picture).read_text()) > 2000
    assert "| erase6 detach=[mlp,cross] | 2 |" in text


def test_missing_parts_are_said_with_their_remedy(tmp_path: Path) -> None:
    write_made_up_run(tmp_path / "run", name="dlrm", seed=0, noise=0.4, detach=[], with_predictions=False)
    text = markdown(make_page(gather([tmp_path]), 0.02))
    assert "python -m scripts.trace_ops RUN_FOLDER" in text and "python -m scripts.trace_schedule" in text
    assert "No run here has local heads" in text and "Without predictions in their folder" in text
    assert "1 of 1 runs hold no predictions" in text


def test_a_trace_alone_is_a_page(tmp_path: Path) -> None:
    page = make_page(gather([trace_file(tmp_path / "trace")]), 0.02)
    assert page.title == "Schedules" and "trace, sequential: 0.031 ms a step" in json.dumps(
        [d.spec for s in page.sections for d in s.drawings]
    )


def test_speed_is_the_baselines_where_all_took_turns_with_one() -> None:
    points: list[dict[str, Any]] = [
        {"model": "a", "ne": 0.8, "sd": None, "rows_per_s": 900.0, "speedup": 1.2, "runs": 1},
        {"model": "b", "ne": 0.9, "sd": None, "rows_per_s": 1000.0, "speedup": 1.1, "runs": 1},
    ]
    assert "times the baseline" in json.dumps(pareto(points, ["a", "b"], "p").spec)
    points[1]["speedup"] = None
    assert "train rows/s" in json.dumps(pareto(points, ["a", "b"], "p").spec["layer"][0]["encoding"]["x"])


def test_pareto_front_keeps_what_nothing_beats_in_both() -> None:
    points = [{"speed": s, "ne": n} for s, n in ((1, 0.5), (2, 0.6), (2, 0.7), (3, 0.65), (1.5, 0.66))]
    assert [(p["speed"], p["ne"]) for p in pareto_front(points)] == [(1, 0.5), (2, 0.6), (3, 0.65)]
