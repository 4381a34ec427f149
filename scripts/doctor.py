"""Tell whether the installed torch, torchrec and fbgemm-gpu fit together, and the line that mends it if not.

``make doctor`` runs this. Like scripts/install.py it needs the standard library only, so that it runs in a broken
environment, too. Ends with status 1 when something is wrong.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/doctor.py` puts scripts/ there

from scripts import install

PROBE = """
import torch
import fbgemm_gpu
torch.ops.fbgemm.asynchronous_complete_cumsum(torch.ones(2, dtype=torch.int64))
import torchrec
"""
"""Loads all three and runs an operator: some of fbgemm's loading errors only show when one is called."""

LOADER_ERRORS = {
    "undefined symbol": "fbgemm-gpu was built for another torch",
    "libnvidia-ml": "the CUDA build of fbgemm-gpu needs the NVIDIA driver, and there is none",
    "libcudart": "fbgemm-gpu was built with another CUDA than torch",
    "asynchronous_complete_cumsum": "fbgemm-gpu's operators do not load on this torch",
    "ModuleNotFoundError": "a package is missing",
}
"""A piece of a loader's message, and what it means."""


@dataclass(frozen=True)
class Finding:
    """A line of the table; ``ok`` is None where there is nothing to judge."""

    name: str
    found: str
    wanted: str
    ok: bool | None

    def __str__(self) -> str:
        verdict = {True: "ok", False: "WRONG", None: "-"}[self.ok]
        return f"{self.name:<16} {self.found:<28} {self.wanted:<34} {verdict}"


def examine_host(host: install.Host) -> list[Finding]:
    """Judge the interpreter, the platform, and the driver where there is one."""
    platform_ok, driver_ok, build_ok = True, None, None
    try:
        install.check_host(host)
    except install.InstallError as error:
        platform_ok = str(error).startswith("unsupported Python")  # that is the line above it
    if host.driver is not None and host.torch_build != "cpu":
        driver_ok = int(host.driver.split(".")[0]) >= install.MIN_DRIVER
    if host.torch_build is not None and (host.torch_build == "cuda" or host.driver is None):
        build_ok = (host.torch_build == "cuda") == (host.driver is not None)
    return [
        Finding("python", platform.python_version(), "3.11 to 3.13", host.python in install.SUPPORTED_PYTHONS),
        Finding("platform", f"{host.system} {host.machine}", "64-bit Linux, glibc 2.28 or newer", platform_ok),
        Finding("NVIDIA driver", host.driver or "none", f"none, or {install.MIN_DRIVER} or newer", driver_ok),
        Finding("torch build", host.torch_build or "none", "cuda with a driver, else cpu", build_ok),
    ]


def examine_packages() -> list[Finding]:
    """Judge the triple's versions, and the project's other requirements."""
    versions = install.load_versions()
    found = versions.read_environment()
    wanted = versions.triple_for(found.torch) or versions.SUPPORTED[0]
    fbgemm = "+".join(versions.FBGEMM_PACKAGE[build] for build in found.fbgemm_builds) or "fbgemm-gpu"
    triple = [
        Finding(name, have or "none", want, versions.same_release(have, want))
        for name, have, want in (
            ("torch", found.torch, wanted.torch),
            ("torchrec", found.torchrec, wanted.torchrec),
            (fbgemm, found.fbgemm, wanted.fbgemm),
        )
    ]
    return triple + [Finding("other packages", text, "as in pyproject.toml", False) for text in unmet_requirements()]


def unmet_requirements() -> list[str]:
    """The project's run-time requirements that are missing or of another version, each with what was found."""
    try:
        from packaging.requirements import Requirement
    except ModuleNotFoundError:
        return ["packaging: none"]
    unmet = []
    for requirement in map(Requirement, install.read_requirements(dev=False)):
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            unmet.append(f"{requirement.name}: none")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            unmet.append(f"{requirement.name}: {version}, not {requirement.specifier}")
    return unmet


def load_for_real() -> str | None:
    """Import the triple in a process of its own; None where that works, else the reason in plain words."""
    run = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    return None if run.returncode == 0 else plain_words(run.stderr)


def plain_words(traceback: str) -> str:
    """The error of a failed import in one line: what it means, then what the loader said."""
    lines = [line for line in traceback.splitlines() if re.match(r"[\w.]+(Error|Exception): ", line)]
    for said in lines:  # of a chain of errors the first known one is the cause
        meaning = next((words for piece, words in LOADER_ERRORS.items() if piece in said), None)
        if meaning is not None:
            return f"{meaning} ({said if len(said) < 200 else said[:200] + '...'})"
    return lines[-1] if lines else "the process died without a message"


def main() -> None:
    """Print the table; end with status 1 if anything in it is wrong."""
    host = install.read_host()
    findings = examine_host(host)
    trouble = None
    if all(finding.ok is not False for finding in findings[:2]):
        findings += examine_packages()
        versions = install.load_versions()
        trouble = versions.problem(versions.read_environment()) or load_for_real()
    print(f"{'':<16} {'found':<28} {'wanted':<34}", *findings, sep="\n")
    if trouble is not None:
        print(f"\nThey do not load together: {trouble}")
    if trouble is None and all(finding.ok is not False for finding in findings):
        print("\nAll is well: torch, fbgemm-gpu and torchrec load together.")
        return
    print(f"\nThis mends it:\n  {mending(host)}")
    sys.exit(1)


def mending(host: install.Host) -> str:
    """The exact line to type; where installing cannot help, what has to change first."""
    device = install.recorded_device()
    line = str(install.load_versions().mending_line())
    if device == "cuda" and host.driver is None:
        return f"a machine with an NVIDIA driver; or, for the CPU build:\n  {line} --device cpu"
    try:
        install.install_plan(host, device)
    except install.InstallError as error:
        return str(error)
    return line


if __name__ == "__main__":
    main()
