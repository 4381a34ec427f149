"""What the documents promise: commands compose, make targets exist, links and paths lead somewhere, examples work."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hydra
import pytest
from omegaconf import DictConfig, OmegaConf

from recsys.config.cli import CONFIGS, check_overrides, register_resolvers, to_plain
from scripts import prepare

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "data" / "README.md"])
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# What the walk-throughs of CONTRIBUTING add; these are tried with the files shown there.
_EXAMPLES = re.compile(r"=(fm|cross6)\b")
_MAKE_VARIABLES = {"PYTHON", "DEVICE", "NPROC", "ARGS", "RUNS", "OUT"}


def blocks(text: str, language: str = "") -> list[str]:
    """Fenced blocks of a language, at any indentation, dedented."""
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(body) for _, its_language, body in found if its_language == language]


def commands(text: str) -> Iterator[list[str]]:
    """Words of every ``python ...`` and ``make ...`` line in a block, and of every such piece between backticks."""
    scripts = [block.replace("\\\n", " ") for language in ("", "bash", "sh") for block in blocks(text, language)]
    lines = [line for script in scripts for line in script.splitlines()]
    lines += re.findall(r"`((?:python|make) [^`]+)`", text)
    for line in lines:
        if line.startswith(("python ", "make ")):
            yield shlex.split(line, comments=True)


def all_commands(program: str) -> list[tuple[str, ...]]:
    found = {tuple(words) for path in DOCUMENTS for words in commands(path.read_text(encoding="utf-8"))}
    return sorted(words for words in found if words[0] == program)


def train_arguments() -> list[tuple[str, ...]]:
    """Arguments of every ``train.py`` line, also those that go through ``make``."""
    direct = [words[2:] for words in all_commands("python") if words[1] == "train.py"]
    through_make = [
        tuple(shlex.split(word.removeprefix("ARGS=")))
        for words in all_commands("make")
        if words[1] in ("train", "demo")
        for word in words[2:]
        if word.startswith("ARGS=") and word != "ARGS=..."
    ]
    return sorted({*direct, *through_make})


def test_there_is_something_to_check() -> None:
    assert {path.stem for path in DOCUMENTS} >= {"README", "CONTRIBUTING", "CHANGELOG", "concepts", "LOG"}
    assert len(train_arguments()) > 20 and len(all_commands("make")) > 5


@pytest.mark.parametrize("arguments", train_arguments(), ids=" ".join)
def test_train_commands_compose(arguments: tuple[str, ...], tmp_path: Path) -> None:
    flags = {"-m", "--help"} & set(arguments)
    overrides = [word for word in arguments if word not in flags]
    if _EXAMPLES.search(" ".join(overrides)):
        compose_with_examples(overrides, tmp_path)
    else:
        check_overrides(overrides, sweep="-m" in flags)


@pytest.mark.parametrize("words", all_commands("make"), ids=" ".join)
def test_make_targets_exist(words: tuple[str, ...]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    target, *variables = words[1:]
    assert target in re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    assert {v.partition("=")[0] for v in variables} <= _MAKE_VARIABLES


@pytest.mark.parametrize("words", [w for w in all_commands("python") if w[1] != "train.py"], ids=" ".join)
def test_scripts_exist(words: tuple[str, ...]) -> None:
    name, arguments = (words[2].replace(".", "/") + ".py", words[3:]) if words[1] == "-m" else (words[1], words[2:])
    path = ROOT / name
    assert path.is_file()
    # Options as the script itself, or the module of shared ones, spells them.
    options = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    known = path.read_text(encoding="utf-8") + (ROOT / "scripts" / "options.py").read_text(encoding="utf-8")
    assert [option for option in options if f'"{option}"' not in known] == []


PREPARE = [words[2:] for words in all_commands("python") if words[1] == "scripts/prepare.py" and "=" in words[-1]]


@pytest.mark.parametrize("overrides", PREPARE, ids=" ".join)
def test_prepare_commands_compose(overrides: tuple[str, ...]) -> None:
    assert prepare.compose(list(overrides))["source"]["kind"]


def anchors(path: Path) -> set[str]:
    """Anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_pictures_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    broken = [link for link in links if not re.match(r"[a-z]+:", link) and not leads_somewhere(path, link)]
    assert not broken, f"{path.relative_to(ROOT)}: these lead nowhere: {broken}"


def leads_somewhere(path: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    return target.exists() and (not anchor or anchor in anchors(target))


def tour() -> str:
    return CONTRIBUTING.partition("## A tour of the house")[2].partition("\n## ")[0]


def test_everything_in_the_tour_exists() -> None:
    names = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.py)`", tour())
    assert len(names) > 40
    missing = [name for name in names if not (ROOT / name).exists()]
    assert not missing, f"the tour of CONTRIBUTING.md names what is not there: {missing}"


def test_the_tour_passes_every_room() -> None:
    rooms = [p for p in (ROOT / "recsys").iterdir() if p.name[0] not in "_." and (p.is_dir() or p.suffix == ".py")]
    names = [f"`recsys/{room.name}{'/' if room.is_dir() else ''}`" for room in rooms]
    assert rooms and not [name for name in names if name not in tour()]


def yaml_of(start: str) -> str:
    (found,) = [block for block in blocks(CONTRIBUTING, "yaml") if block.startswith(start)]
    return found


def compose_with_examples(overrides: list[str], folder: Path) -> DictConfig:
    """Compose with the yaml files of CONTRIBUTING's walk-throughs in place."""
    for name, start in (("arch/fm", "# Sum of products"), ("experiment/cross6", "# @package _global_")):
        path = folder / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml_of(start))
    register_resolvers()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        cfg = hydra.compose("config", [*overrides, f"hydra.searchpath=[file://{folder}]"])
    to_plain(cfg)
    return cfg


def test_the_example_experiment_detaches_what_it_says(tmp_path: Path) -> None:
    cfg = compose_with_examples(["+experiment=cross6"], tmp_path)
    assert cfg.name == "cross6" and cfg.model.detach == ["cross"] and len(cfg.model.archs) == 6


def test_the_example_sub_arch_works(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from recsys.archs.base import SubArch, TokenShape

    module = ModuleType("recsys.archs.fm")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    (source,) = [block for block in blocks(CONTRIBUTING, "python") if "class FMArch" in block]
    exec(compile(source, "CONTRIBUTING.md", "exec"), module.__dict__)
    arch = hydra.utils.instantiate(OmegaConf.create(yaml_of("# Sum of products")))(TokenShape(3, 4), out_features=5)
    assert isinstance(arch, SubArch)
    x = torch.arange(24.0).view(2, 3, 4)
    pairs = x[:, 0] * x[:, 1] + x[:, 0] * x[:, 2] + x[:, 1] * x[:, 2]
    weight, bias = arch.parameters()
    torch.testing.assert_close(arch(x), pairs @ weight.T + bias)


def test_the_grids_are_what_the_program_renders() -> None:
    from recsys.models.recommender import MAIN_PATH, build_graph
    from recsys.schedule import builders
    from tests.reference.toy import SIX, cuts_for

    graph = build_graph(SIX, cuts_for(SIX), has_dense=True)
    lanes = builders.lane_per_part(graph, MAIN_PATH)
    programs = (builders.erase(graph, lanes, early_update=True), builders.sequential(graph))
    grids = [block for block in blocks((ROOT / "docs" / "concepts.md").read_text()) if block.startswith("lane 0 |")]
    assert [joined(grid) for grid in grids] == [program.render() for program in programs]


def joined(grid: str) -> str:
    """A grid that was cut into several below each other, as one again."""
    pieces = [piece.splitlines() for piece in grid.strip().split("\n\n")]
    lanes = zip(*pieces, strict=True)
    return "\n".join(" ".join([first, *(row.partition(" | ")[2] for row in rest)]) for first, *rest in lanes)
