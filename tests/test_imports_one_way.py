"""The house's rules that can be read off the source: imports go one way, files stay small, torch comes late."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "recsys"
MODULES = sorted(PACKAGE.rglob("*.py"))

# From the ground up. A room may import from the floors below its own and, as long as no circle comes of it, from
# rooms of its own floor.
FLOORS = (
    ("errors", "features", "seeding", "types", "versions"),
    ("archs", "checkpoint", "data", "metrics", "optim", "schedule", "sparse"),
    ("prepare",),
    ("models",),
    ("distributed",),
    ("report", "track", "train"),
    ("config",),
    ("saves", "serve"),
    ("trial",),
    ("chains", "compare", "overview", "run"),
    ("advise", "sweep"),
)
# The engine orders work of any kind: it may know that a user errs, but no recommender.
KNOWN_TO = {"schedule": {"errors", "schedule"}}

MAX_LINES = 400


def room_of(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def floor_of(room: str) -> int:
    for floor, rooms in enumerate(FLOORS):
        if room in rooms:
            return floor
    raise AssertionError(f"recsys/{room} has no floor yet: give it one in {Path(__file__).name}")


def imported_rooms(module: Path) -> set[str]:
    """Rooms of recsys that a file imports from, also late and for annotations only."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: write the import in full"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("recsys.")}


HOUSE = [module for module in MODULES if module != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("module", HOUSE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_from_below(module: Path) -> None:
    room = room_of(module)
    for other in imported_rooms(module) - {room}:
        assert floor_of(other) <= floor_of(room), f"{room} must not import {other}"
        assert other in KNOWN_TO.get(room, {other}), f"{room} must not know {other}"


def test_no_circle_of_rooms() -> None:
    needs: dict[str, set[str]] = {}
    for module in HOUSE:
        needs.setdefault(room_of(module), set()).update(imported_rooms(module) - {room_of(module)})
    while free := {room for room in needs if not needs[room] & needs.keys()}:
        for room in free:
            del needs[room]
    assert not needs, f"these rooms import each other in a circle: {sorted(needs)}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_small(module: Path) -> None:
    assert len(module.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_importing_recsys_loads_nothing_heavy() -> None:
    code = "import sys, recsys; print(sorted({'torch', 'torchrec', 'numpy', 'pandas', 'hydra'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
