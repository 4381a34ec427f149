"""Which torch, torchrec and fbgemm-gpu work together, told from package metadata alone.

The three only load in matching versions, elsewhere the dynamic loader ends with "undefined symbol"; and fbgemm-gpu
comes as a CPU and as a CUDA build, to go with the same build of torch. TorchRec and FBGEMM share their version number
and each of their releases is built for one release of PyTorch (FBGEMM's release notes, "compatibility table").

Standard library only and importable by path: ``scripts/install.py`` and ``scripts/doctor.py`` read this file where
nothing is installed, or where the wrong things are.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Literal

Build = Literal["cpu", "cuda"]

UNKNOWN = "unknown"
"""The version of a package that can be imported but carries no metadata: taken on trust."""

FBGEMM_PACKAGE: dict[Build, str] = {"cpu": "fbgemm-gpu-cpu", "cuda": "fbgemm-gpu"}

INSTALLER = Path(__file__).resolve().parent.parent / "scripts" / "install.py"


@dataclass(frozen=True)
class Triple:
    """Releases of torch, torchrec and fbgemm-gpu made for each other. Another patch release of each will do, too."""

    torch: str
    torchrec: str
    fbgemm: str

    def __str__(self) -> str:
        return f"torch {self.torch}, torchrec {self.torchrec}, fbgemm-gpu {self.fbgemm}"


SUPPORTED = (Triple("2.13.0", "1.8.0", "1.8.0"), Triple("2.11.0", "1.6.1", "1.6.0"))
"""The first one is what gets installed; the others are left alone where they are found."""


@dataclass(frozen=True)
class Found:
    """What an environment holds; a version is None where the package is absent.

    Attributes:
        torch: version with its local part, such as ``2.13.0+cpu``.
        torch_build: whether torch was built with CUDA; None without torch.
        fbgemm_builds: the builds of fbgemm-gpu installed; two have overwritten each other's files.
    """

    torch: str | None = None
    torch_build: Build | None = None
    torchrec: str | None = None
    fbgemm: str | None = None
    fbgemm_builds: tuple[Build, ...] = ()

    def __str__(self) -> str:
        torch = f"torch {self.torch or 'none'}" + (f" ({self.torch_build} build)" if self.torch_build else "")
        names = " and ".join(FBGEMM_PACKAGE[build] for build in self.fbgemm_builds) or "fbgemm-gpu"
        return f"{torch}, torchrec {self.torchrec or 'none'}, {names} {self.fbgemm or 'none'}"


def read_environment() -> Found:
    """Look the triple up without importing any of it (a few milliseconds)."""
    torch = _version("torch", module="torch")
    builds = tuple(build for build, package in FBGEMM_PACKAGE.items() if _version(package) is not None)
    fbgemm = _version(FBGEMM_PACKAGE[builds[-1]]) if builds else _version("fbgemm-gpu", module="fbgemm_gpu")
    return Found(
        torch=torch,
        torch_build=None if torch is None else _torch_build(torch),
        torchrec=_version("torchrec", module="torchrec"),
        fbgemm=fbgemm,
        fbgemm_builds=builds,
    )


def triple_for(torch: str | None) -> Triple | None:
    """The supported triple of a torch release, if there is one."""
    return next((triple for triple in SUPPORTED if same_release(torch, triple.torch)), None)


def same_release(have: str | None, want: str) -> bool:
    """Whether two versions share major and minor number; an unknown version is taken on trust."""
    return have == UNKNOWN or (have is not None and have.split(".")[:2] == want.split(".")[:2])


def problem(found: Found) -> str | None:
    """Say what keeps the packages found from loading together; None where nothing does."""
    missing = [
        name
        for name, version in (("torch", found.torch), ("torchrec", found.torchrec), ("fbgemm-gpu", found.fbgemm))
        if version is None
    ]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if len(found.fbgemm_builds) > 1:
        return "fbgemm-gpu and fbgemm-gpu-cpu are both installed and have overwritten each other's files"
    if not any(_fits(found, triple) for triple in SUPPORTED):
        return "these releases of torch, torchrec and fbgemm-gpu were not made for each other"
    if found.fbgemm_builds and found.torch_build not in (None, *found.fbgemm_builds):
        return (
            f"torch is a {found.torch_build} build, and {FBGEMM_PACKAGE[found.fbgemm_builds[0]]} "
            f"goes with a {found.fbgemm_builds[0]} build"
        )
    return None


def explain(found: Found, trouble: str) -> str:
    """One message: what is wrong, what was found, what is wanted, and the line that mends it."""
    wanted = " or ".join(f"({triple})" for triple in SUPPORTED)
    return f"{trouble}\n  found:  {found}\n  wanted: {wanted}\n  mend:   {mending_line()}"


def mending_line() -> str:
    """The shell line that installs a working triple: into the running virtual environment, else into .venv."""
    in_venv = sys.prefix != sys.base_prefix
    return f'"{sys.executable}" "{INSTALLER}" --here' if in_venv else f'make -C "{INSTALLER.parent.parent}" install'


def require_supported() -> None:
    """Raise where the installed triple cannot work, in place of the loader's "undefined symbol".

    Raises:
        UserError: names what was found, what is wanted and the line that mends it.
    """
    found = read_environment()
    trouble = problem(found)
    if trouble is not None:
        from recsys.errors import UserError  # late: this file is also read by path, without the package

        raise UserError(explain(found, trouble))


def _version(package: str, module: str | None = None) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return UNKNOWN if module is not None and util.find_spec(module) is not None else None


def _torch_build(version: str) -> Build:
    """PyPI's CUDA build carries no ``+cu130``, so the version alone does not tell; torch/version.py does."""
    if version.endswith("+cpu"):
        return "cpu"
    spec = util.find_spec("torch")
    version_file = Path(spec.origin).parent / "version.py" if spec is not None and spec.origin else None
    if version_file is None or not version_file.is_file():
        return "cuda"
    return "cpu" if re.search(r"^cuda\b.*=\s*None\s*$", version_file.read_text(), re.MULTILINE) else "cuda"


def _fits(found: Found, triple: Triple) -> bool:
    pairs = ((found.torch, triple.torch), (found.torchrec, triple.torchrec), (found.fbgemm, triple.fbgemm))
    return all(same_release(have, want) for have, want in pairs)
