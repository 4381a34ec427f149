from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import recsys.versions
from recsys.versions import Found, explain, mending_line, problem, read_environment, require_supported, triple_for

ROOT = Path(recsys.versions.__file__).parent.parent


def found(
    torch: str | None = "2.13.0+cpu",
    torch_build: recsys.versions.Build | None = "cpu",
    torchrec: str | None = "1.8.0",
    fbgemm: str | None = "1.8.0",
    fbgemm_builds: tuple[recsys.versions.Build, ...] = ("cpu",),
) -> Found:
    return Found(torch, torch_build, torchrec, fbgemm, fbgemm_builds)


@pytest.mark.parametrize(
    "environment",
    [
        found(),
        found(torch="2.13.0", torch_build="cuda", fbgemm_builds=("cuda",)),
        found(torch="2.13.1+cu130", torch_build="cuda", fbgemm_builds=("cuda",)),
        found(torch="2.11.0+cu130", torch_build="cuda", torchrec="1.6.1", fbgemm="1.6.0", fbgemm_builds=("cuda",)),
        found(fbgemm="unknown", fbgemm_builds=()),
        found(torch="unknown", torch_build="cuda", torchrec="1.6.1", fbgemm="unknown", fbgemm_builds=()),
    ],
    ids=str,
)
def test_what_fits(environment: Found) -> None:
    assert problem(environment) is None


@pytest.mark.parametrize(
    ("environment", "trouble"),
    [
        (Found(), "not installed: torch, torchrec, fbgemm-gpu"),
        (found(fbgemm=None, fbgemm_builds=()), "not installed: fbgemm-gpu"),
        (found(torch="2.12.0+cpu"), "not made for each other"),
        (found(torch="2.11.0+cpu"), "not made for each other"),
        (found(torchrec="1.6.1"), "not made for each other"),
        (found(torch="2.1.0+cpu"), "not made for each other"),
        (found(torch="2.13.0", torch_build="cuda"), "torch is a cuda build, and fbgemm-gpu-cpu goes with a cpu build"),
        (found(fbgemm_builds=("cuda",)), "torch is a cpu build, and fbgemm-gpu goes with a cuda build"),
        (found(fbgemm_builds=("cpu", "cuda")), "both installed"),
    ],
    ids=str,
)
def test_what_does_not_fit(environment: Found, trouble: str) -> None:
    assert trouble in (problem(environment) or "")


def test_this_environment_fits() -> None:
    assert problem(read_environment()) is None
    require_supported()


def test_the_triple_of_a_torch_release() -> None:
    assert str(triple_for("2.11.0+cu130")) == "torch 2.11.0, torchrec 1.6.1, fbgemm-gpu 1.6.0"
    assert triple_for("2.12.0") is None
    assert triple_for(None) is None


def test_the_message_says_found_wanted_and_the_mending_line() -> None:
    environment = found(torch="2.12.0+cpu")
    message = explain(environment, problem(environment) or "")
    assert "found:  torch 2.12.0+cpu (cpu build), torchrec 1.8.0, fbgemm-gpu-cpu 1.8.0" in message
    assert "wanted: (torch 2.13.0, torchrec 1.8.0, fbgemm-gpu 1.8.0)" in message
    assert f"mend:   {mending_line()}" in message


def test_the_mending_line_names_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/somewhere/.venv")
    assert mending_line() == f'"{sys.executable}" "{ROOT}/scripts/install.py" --here'
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert mending_line() == f'make -C "{ROOT}" install'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of made-up packages that goes before the real ones."""
    for name, version in (("torch", "2.13.0"), ("torchrec", "1.8.0"), ("fbgemm_gpu", "1.8.0")):
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('undefined symbol: _ZN5torch')\n")
    (tmp_path / "torch" / "version.py").write_text("from typing import Optional\ncuda: Optional[str] = '13.0'\n")
    return tmp_path


def run_isolated(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run without this environment's packages: only the made-up ones and the standard library."""
    lines = f"import sys; sys.path[:0] = [{str(site)!r}, {str(ROOT)!r}]; {code}"
    return subprocess.run([sys.executable, "-I", "-S", "-c", lines], capture_output=True, text=True, check=False)


def test_a_cuda_build_without_a_local_version_is_recognised(site: Path) -> None:
    run = run_isolated(site, "from recsys.versions import read_environment; print(read_environment())")
    assert run.stdout == "torch 2.13.0 (cuda build), torchrec 1.8.0, fbgemm-gpu 1.8.0\n", run.stderr


def test_a_cpu_build_without_a_local_version_is_recognised(site: Path) -> None:
    (site / "torch" / "version.py").write_text("cuda: Optional[str] = None\n")
    run = run_isolated(site, "import recsys")
    assert "UserError: torch is a cpu build, and fbgemm-gpu goes with a cuda build" in run.stderr


def test_packages_without_metadata_are_taken_on_trust(site: Path) -> None:
    (site / "fbgemm_gpu-1.8.0.dist-info" / "METADATA").unlink()
    (site / "fbgemm_gpu-1.8.0.dist-info").rmdir()
    run = run_isolated(site, "from recsys.versions import read_environment; print(read_environment())")
    assert run.stdout == "torch 2.13.0 (cuda build), torchrec 1.8.0, fbgemm-gpu unknown\n", run.stderr


def test_importing_recsys_tells_a_mismatch_before_the_loader_does(site: Path) -> None:
    (site / "torchrec-1.8.0.dist-info" / "METADATA").write_text("Name: torchrec\nVersion: 1.5.0\n")
    run = run_isolated(site, "import recsys.types")
    assert run.returncode == 1
    assert "UserError: these releases of torch, torchrec and fbgemm-gpu were not made for each other" in run.stderr
    assert "torchrec 1.5.0" in run.stderr
    assert "undefined symbol" not in run.stderr
