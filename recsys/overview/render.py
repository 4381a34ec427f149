"""The page as one HTML file that needs nothing else, and as Markdown with SVG pictures beside it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys.overview.page import Page
from recsys.overview.tables import Table
from recsys.report.atomic import write_atomic

if TYPE_CHECKING:
    from jinja2 import Environment

HTML = "report.html"
MARKDOWN = "report.md"
PICTURES = "charts"
_HERE = Path(__file__).parent / "template"
_SVG_WIDTH = 680  # pixels; Markdown's pictures do not follow the window


def write_page(folder: Path, page: Page) -> Path:
    """Write ``report.html``, ``report.md`` and the latter's ``charts/*.svg``; gives the HTML file's path."""
    drawings = [drawing for section in page.sections for drawing in section.drawings]
    for drawing in drawings:
        write_atomic(folder / PICTURES / f"{drawing.name}.svg", svg(drawing.spec))
    write_atomic(folder / MARKDOWN, markdown(page))
    write_atomic(folder / HTML, html(page))
    return folder / HTML


def html(page: Page) -> str:
    """The HTML file's text: styles, scripts and data inside it, nothing fetched."""
    specs = {d.name: d.spec for section in page.sections for d in section.drawings}
    return _environment().get_template("page.html.j2").render(
        page=page,
        specs=_inside_script(json.dumps(specs, allow_nan=False)),
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        script=(_HERE / "page.js").read_text(encoding="utf-8"),
        vega=_inside_script(_vega()),
    )  # fmt: skip


def markdown(page: Page) -> str:
    """The Markdown file's text."""
    parts = [f"# {page.title}", *(f"- {name}: **{figure}** ({note})" for name, (figure, note) in page.cards.items())]
    text = "\n".join([parts[0], "", *parts[1:]])
    blocks = [text]
    for section in page.sections:
        blocks += [f"## {section.title}", *section.text]
        blocks += [f"![{d.alt}]({PICTURES}/{d.name}.svg)" for d in section.drawings]
        blocks += [_markdown_table(table) for table in section.shown]
        for summary, table in section.folded.items():
            blocks += [f"### {summary}", _markdown_table(table)]
    return "\n\n".join(blocks) + "\n"


def svg(spec: dict[str, Any]) -> str:
    """A chart as a picture of fixed width on white."""
    import vl_convert

    fixed = {**spec, "width": _SVG_WIDTH, "background": "white"}
    return str(vl_convert.vegalite_to_svg(fixed))


@cache
def _vega() -> str:
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _inside_script(text: str) -> str:
    """Text that stands between script tags and cannot end them early; the same to JavaScript and to JSON."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\u0021--")


def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _markdown_table(table: Table) -> str:
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
