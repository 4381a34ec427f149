"""Create .venv and install what the project needs: the CPU build, or the CUDA build beside an NVIDIA driver.

Runs on a bare Python 3.11 to 3.13 (``make install`` calls it), so it uses the standard library only.
``install_plan`` decides, everything else carries out.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = ".installed"
"""In the environment's folder; holds the device asked for, so that a later run goes on with it."""

SUPPORTED_PYTHONS = ((3, 11), (3, 12), (3, 13))
MACHINES = ("x86_64", "aarch64")
CUDA_MACHINES = ("x86_64",)
"""fbgemm-gpu has no CUDA wheel for aarch64, fbgemm-gpu-cpu has one."""
MIN_GLIBC = (2, 28)
"""torch and fbgemm-gpu are manylinux_2_28 wheels."""
CUDA_MAJOR = 13
"""PyPI's torch 2.11 and 2.13 and fbgemm-gpu 1.6 and 1.8 are built with CUDA 13.0 (they load libcudart.so.13)."""
MIN_DRIVER = 580
"""NVIDIA's table of minor version compatibility: CUDA 13.x runs on driver 580 or newer."""
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


class InstallError(Exception):
    """Nothing can be installed here; the message says what was found and what to do."""


@dataclass(frozen=True)
class Host:
    """What decides the install line.

    Attributes:
        system: ``platform.system()``.
        machine: ``platform.machine()``; the 32-bit name where the interpreter is a 32-bit one.
        python: major and minor version of the interpreter.
        driver: version of the NVIDIA driver; None where there is none that answers.
        glibc: version of the C library; None where it is another one (musl).
        torch: version of the torch already installed.
        torch_build: ``cpu`` or ``cuda``; None without torch.
        fbgemm_builds: the builds of fbgemm-gpu already installed.
    """

    system: str
    machine: str
    python: tuple[int, int]
    driver: str | None = None
    glibc: tuple[int, int] | None = MIN_GLIBC
    torch: str | None = None
    torch_build: str | None = None
    fbgemm_builds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """Arguments of one pip command; where the first attempt fails the next one is tried."""

    attempts: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Plan:
    """What to install: ``build`` is ``cpu`` or ``cuda``."""

    build: str
    steps: tuple[Step, ...]


def install_plan(host: Host, device: str = "auto", requirements: tuple[str, ...] = ()) -> Plan:
    """Work out the pip commands for a machine. Pure: reads nothing, installs nothing.

    Args:
        host: the machine and its interpreter.
        device: ``cpu``, ``cuda``, or ``auto`` (CUDA where an NVIDIA driver answers).
        requirements: what to install beside torch, torchrec and fbgemm-gpu.

    Raises:
        InstallError: nothing fits; the message names what was found and the choices left.
    """
    check_host(host)
    build = choose_build(host, device)
    versions = load_versions()
    kept = versions.triple_for(host.torch) if host.torch_build == build else None
    triple = kept or versions.SUPPORTED[0]
    fbgemm = f"{versions.FBGEMM_PACKAGE[build]}=={triple.fbgemm}"
    steps = [
        _removal(host, build),
        None if kept else _torch_step(triple.torch, build),
        Step((("install", fbgemm, *requirements),)),
        # Without its dependencies: torchrec asks for fbgemm-gpu by that name, which is the CUDA build.
        Step((("install", "--no-deps", f"torchrec=={triple.torchrec}"),)),
    ]
    return Plan(build, tuple(step for step in steps if step is not None))


def _removal(host: Host, build: str) -> Step | None:
    """What of another build must go first: pip takes 2.13.0+cpu for 2.13.0, and fbgemm's two builds share files."""
    unwanted = ["torch"] if host.torch_build not in (None, build) else []
    if any(found != build for found in host.fbgemm_builds):
        unwanted += [load_versions().FBGEMM_PACKAGE[found] for found in host.fbgemm_builds]
    return Step((("uninstall", "--yes", *unwanted),)) if unwanted else None


def _torch_step(version: str, build: str) -> Step:
    if build == "cuda":
        return Step((("install", f"torch=={version}"),))
    # By name: plain "torch" is a CUDA build on most machines, gigabytes for which fbgemm-gpu-cpu is not made.
    by_name = f"torch=={version}+cpu"
    return Step((("install", by_name), ("install", "--extra-index-url", PYTORCH_CPU_INDEX, by_name)))


def check_host(host: Host) -> None:
    """Raise InstallError where no wheels of torch and fbgemm-gpu exist for the platform or the Python."""
    if host.system != "Linux" or host.machine not in MACHINES:
        raise InstallError(
            f"unsupported platform: this is {host.system} on {host.machine}, and fbgemm-gpu has wheels for 64-bit "
            f"Linux only ({' or '.join(MACHINES)}). Use such a machine, a container or WSL 2."
        )
    if host.glibc is None or host.glibc < MIN_GLIBC:
        libc = "another C library" if host.glibc is None else f"glibc {_dotted(host.glibc)}"
        raise InstallError(
            f"unsupported platform: torch and fbgemm-gpu need glibc {_dotted(MIN_GLIBC)} or newer, this Linux has "
            f"{libc}. Use a newer, glibc-based distribution or container."
        )
    if host.python not in SUPPORTED_PYTHONS:
        raise InstallError(
            f"unsupported Python: this is {_dotted(host.python)}, wanted is one of "
            f"{', '.join(map(_dotted, SUPPORTED_PYTHONS))}. Name another one: make install PYTHON=python3.12"
        )


def choose_build(host: Host, device: str) -> str:
    """Resolve ``auto``; raise InstallError where a GPU was found or asked for and cannot be used."""
    if device == "cpu" or (device == "auto" and host.driver is None):
        return "cpu"
    cpu_instead = "install the CPU build: make install DEVICE=cpu"
    found = f"NVIDIA driver {host.driver} found" if host.driver else "the CUDA build was asked for"
    if host.machine not in CUDA_MACHINES:
        raise InstallError(
            f"{found}, but fbgemm-gpu has no CUDA wheel for {host.machine}. Either use a machine "
            f"with an {' or '.join(CUDA_MACHINES)} processor, or {cpu_instead}"
        )
    if host.driver is not None and int(host.driver.split(".")[0]) < MIN_DRIVER:
        raise InstallError(
            f"{found}, too old: the CUDA {CUDA_MAJOR} builds of torch and fbgemm-gpu need driver "
            f"{MIN_DRIVER} or newer. Either update the driver, or {cpu_instead}"
        )
    return "cuda"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def load_versions() -> ModuleType:
    """recsys/versions.py by path: importing the package would check what is yet to be installed."""
    name = "recsys_versions"
    if name not in sys.modules:
        spec = util.spec_from_file_location(name, ROOT / "recsys" / "versions.py")
        assert spec is not None and spec.loader is not None
        module = util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def read_requirements(pyproject: Path = ROOT / "pyproject.toml", dev: bool = True) -> tuple[str, ...]:
    """The project's dependencies, with the development tools if ``dev``."""
    import tomllib  # late: absent before Python 3.11, which check_host tells in plain words

    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    return (*project["dependencies"], *(project["optional-dependencies"]["dev"] if dev else ()))


def read_driver() -> str | None:
    """Version of the NVIDIA driver, asked of nvidia-smi: in a container only that shows whether a GPU is usable."""
    command = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path="/usr/lib/wsl/lib")
    if command is None:
        return None
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        answer = str(error)
    match = re.match(r"\d+(\.\d+)+$", answer.strip().splitlines()[0] if answer.strip() else "")
    if match is None:
        print(f"nvidia-smi is here but names no driver ({answer.strip() or 'no answer'}): taken as no GPU", flush=True)
        return None
    return match.group()


def read_host() -> Host:
    """Describe this machine and the environment of the running interpreter."""
    bits_64 = sys.maxsize > 2**32
    libc, libc_version = platform.libc_ver()
    glibc = re.match(r"(\d+)\.(\d+)", libc_version) if libc == "glibc" else None
    found = load_versions().read_environment()
    return Host(
        system=platform.system(),
        machine=platform.machine() if bits_64 else f"{platform.machine()} with a 32-bit Python",
        python=(sys.version_info.major, sys.version_info.minor),
        driver=read_driver(),
        glibc=(int(glibc.group(1)), int(glibc.group(2))) if glibc else None,
        torch=found.torch,
        torch_build=found.torch_build,
        fbgemm_builds=found.fbgemm_builds,
    )


def run_pip(arguments: tuple[str, ...]) -> bool:
    """Run one pip command in the running interpreter's environment; tell whether it succeeded."""
    command = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    if arguments[0] == "install":
        command.append("--no-compile")  # Python compiles what is imported; the rest is a third of the time
    print("$", shlex.join(command), flush=True)
    return subprocess.run(command, env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}, check=False).returncode == 0


def carry_out(plan: Plan) -> None:
    """Run the steps; raise InstallError where every attempt of one failed, or where the result does not fit."""
    for step in plan.steps:
        for number, arguments in enumerate(step.attempts, start=1):
            if run_pip(arguments):
                break
            if number < len(step.attempts):
                print("not to be had like that; trying the next source", flush=True)
        else:
            raise InstallError(f"pip failed at: pip {shlex.join(step.attempts[-1])} (its message is above)")
    versions = load_versions()
    found = versions.read_environment()
    trouble = versions.problem(found)
    if trouble is not None:
        raise InstallError(versions.explain(found, trouble))


def recorded_device() -> str:
    """The device asked for when the running environment was made; ``auto`` where none was."""
    stamp = Path(sys.prefix) / STAMP
    return stamp.read_text().strip() if stamp.exists() else "auto"


def enter_venv() -> None:
    """Create .venv with the running interpreter where there is no working one, and go on inside it."""
    inside = VENV / "bin" / "python"
    works = inside.exists() and subprocess.run([inside, "-m", "pip", "-V"], capture_output=True, check=False)
    if not works or works.returncode != 0:
        print(f"creating {VENV} with Python {platform.python_version()}", flush=True)
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=False)
        if made.returncode != 0:
            raise InstallError("python could not create .venv; on Debian and Ubuntu: apt install python3-venv")
    sys.stdout.flush()
    os.execv(inside, [str(inside), str(Path(__file__).resolve()), *sys.argv[1:], "--here"])


def main() -> None:
    """Parse the command line and install."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), help="default: as last time, else auto")
    parser.add_argument("--runtime-only", action="store_true", help="leave the development tools out")
    parser.add_argument("--here", action="store_true", help="into the running interpreter's environment, not .venv")
    parser.add_argument("--dry-run", action="store_true", help="print the pip commands, install nothing")
    arguments = parser.parse_args()
    try:
        host = read_host()
        check_host(host)
        if not arguments.here and not arguments.dry_run:
            enter_venv()
        device = arguments.device or recorded_device()
        plan = install_plan(host, device, read_requirements(dev=not arguments.runtime_only))
        if arguments.dry_run:
            for step in plan.steps:
                print("\n  or: ".join(shlex.join(("pip", *attempt)) for attempt in step.attempts))
            return
        carry_out(plan)
        (Path(sys.prefix) / STAMP).write_text(f"{device}\n")
    except InstallError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
