from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from scripts import install
from scripts.install import Host, InstallError, Step, install_plan

LAPTOP = Host("Linux", "x86_64", (3, 11))
GPU_BOX = dataclasses.replace(LAPTOP, driver="580.95.05")


def lines(host: Host, device: str = "auto") -> list[str]:
    """The plan as pip commands, alternatives joined by a bar."""
    steps = install_plan(host, device, ("numpy>=2",)).steps
    return [" | ".join(" ".join(attempt) for attempt in step.attempts) for step in steps]


CPU_LINES = [
    "install torch==2.13.0+cpu | install --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu",
    "install fbgemm-gpu-cpu==1.8.0 numpy>=2",
    "install --no-deps torchrec==1.8.0",
]
CUDA_LINES = [
    "install torch==2.13.0",
    "install fbgemm-gpu==1.8.0 numpy>=2",
    "install --no-deps torchrec==1.8.0",
]


@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13)])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_without_a_driver_the_cpu_build_by_name(machine: str, python: tuple[int, int]) -> None:
    assert lines(Host("Linux", machine, python)) == CPU_LINES


@pytest.mark.parametrize("driver", ["580.65.06", "595.10"])
def test_with_a_driver_the_cuda_build(driver: str) -> None:
    assert lines(dataclasses.replace(LAPTOP, driver=driver)) == CUDA_LINES


def test_the_device_can_be_chosen() -> None:
    assert lines(GPU_BOX, "cpu") == CPU_LINES
    assert lines(LAPTOP, "cuda") == CUDA_LINES


def test_a_driver_too_old_leaves_two_choices() -> None:
    old = dataclasses.replace(LAPTOP, driver="535.183.01")
    message = "NVIDIA driver 535.183.01 found, too old: .* need driver 580 or newer. Either update the driver, or .*"
    with pytest.raises(InstallError, match=message + re.escape("make install DEVICE=cpu")):
        install_plan(old)
    assert lines(old, "cpu") == CPU_LINES


def test_a_gpu_beside_an_arm_processor() -> None:
    arm = dataclasses.replace(GPU_BOX, machine="aarch64")
    with pytest.raises(InstallError, match="no CUDA wheel for aarch64.*make install DEVICE=cpu"):
        install_plan(arm)
    assert lines(arm, "cpu") == CPU_LINES


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (Host("Darwin", "arm64", (3, 12)), "unsupported platform: this is Darwin on arm64"),
        (Host("Windows", "AMD64", (3, 12)), "unsupported platform: this is Windows on AMD64.*WSL 2"),
        (Host("Linux", "i686", (3, 12)), "unsupported platform: this is Linux on i686"),
        (Host("Linux", "x86_64 with a 32-bit Python", (3, 12)), "unsupported platform: .* with a 32-bit Python"),
        (Host("Linux", "x86_64", (3, 12), glibc=(2, 17)), "need glibc 2.28 or newer, this Linux has glibc 2.17"),
        (Host("Linux", "x86_64", (3, 12), glibc=None), "this Linux has another C library"),
        (Host("Linux", "x86_64", (3, 10)), "this is 3.10, wanted is one of 3.11, 3.12, 3.13.*PYTHON="),
        (Host("Linux", "x86_64", (3, 14)), "this is 3.14, wanted is one of 3.11, 3.12, 3.13.*PYTHON="),
    ],
)
def test_what_is_not_supported_is_said_plainly(host: Host, message: str) -> None:
    with pytest.raises(InstallError, match=message):
        install_plan(host)


def test_a_torch_of_a_supported_triple_stays() -> None:
    older = dataclasses.replace(GPU_BOX, torch="2.11.0+cu130", torch_build="cuda")
    assert lines(older) == ["install fbgemm-gpu==1.6.0 numpy>=2", "install --no-deps torchrec==1.6.1"]
    newest = dataclasses.replace(LAPTOP, torch="2.13.0+cpu", torch_build="cpu", fbgemm_builds=("cpu",))
    assert lines(newest) == CPU_LINES[1:]


def test_a_torch_of_no_supported_triple_is_replaced() -> None:
    assert lines(dataclasses.replace(LAPTOP, torch="2.12.0+cpu", torch_build="cpu")) == CPU_LINES


def test_changing_the_build_removes_the_other_one_first() -> None:
    cpu_beside_gpu = dataclasses.replace(GPU_BOX, torch="2.13.0+cpu", torch_build="cpu", fbgemm_builds=("cpu",))
    assert lines(cpu_beside_gpu) == ["uninstall --yes torch fbgemm-gpu-cpu", *CUDA_LINES]


def test_two_builds_of_fbgemm_both_go() -> None:
    mixed = dataclasses.replace(LAPTOP, torch="2.13.0+cpu", torch_build="cpu", fbgemm_builds=("cpu", "cuda"))
    assert lines(mixed) == ["uninstall --yes fbgemm-gpu-cpu fbgemm-gpu", *CPU_LINES[1:]]


@pytest.fixture
def pip_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Stands in for pip: records the commands; one that names an unreachable thing fails."""
    calls: list[tuple[str, ...]] = []

    def run_pip(arguments: tuple[str, ...]) -> bool:
        calls.append(arguments)
        return "unreachable" not in arguments

    monkeypatch.setattr(install, "run_pip", run_pip)
    return calls


def test_the_next_source_is_tried_where_one_fails(
    pip_calls: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    install.carry_out(install.Plan("cpu", (Step((("unreachable",), ("here",), ("unneeded",))), Step((("next",),)))))
    assert pip_calls == [("unreachable",), ("here",), ("next",)]
    assert capsys.readouterr().out.count("trying the next source") == 1


def test_it_ends_where_every_source_fails(pip_calls: list[tuple[str, ...]]) -> None:
    with pytest.raises(InstallError, match="pip failed at: pip unreachable"):
        install.carry_out(install.Plan("cpu", (Step((("unreachable",),)), Step((("next",),)))))
    assert pip_calls == [("unreachable",)]


def test_requirements_come_from_pyproject(tmp_path: Path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text('[project]\ndependencies = ["a>=1"]\noptional-dependencies.dev = ["b"]\n')
    assert install.read_requirements(pyproject) == ("a>=1", "b")
    assert install.read_requirements(pyproject, dev=False) == ("a>=1",)


def fake_nvidia_smi(folder: Path, script: str) -> None:
    command = folder / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "driver"),
    [
        ("echo 580.95.05; echo 580.95.05", "580.95.05"),
        ("echo NVIDIA-SMI has failed because it could not talk to the driver; exit 9", None),
        ("exit 1", None),
    ],
)
def test_the_driver_is_asked_of_nvidia_smi(
    script: str, driver: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_nvidia_smi(tmp_path, script)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert install.read_driver() == driver
    assert ("names no driver" in capsys.readouterr().out) == (driver is None)
