"""Find a Chromium for the tests of the report's page, and install Debian's where there is none.

    python scripts/browser.py      (make browser; make test and make check do it by themselves)

Says nothing where a browser is there. RECSYS_CHROMIUM names one that is not on PATH. Where none can be installed it
says what to do and goes on: the tests that need it then fail, with the same words. Uses the standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "RECSYS_CHROMIUM"
HOW = (
    f"no Chromium found: looked for {', '.join(NAMES)} on PATH and for the file that {VARIABLE} names. The tests of "
    "the report's page need one; on Debian and Ubuntu: sudo apt-get install chromium"
)


class NoBrowserError(Exception):
    """There is no browser; the message says what to do."""


def find_browser() -> str:
    """Path of a Chromium.

    Raises:
        NoBrowserError: there is none.
    """
    named = os.environ.get(VARIABLE)
    found = [shutil.which(named)] if named else [shutil.which(name) for name in NAMES]
    path = next((path for path in found if path is not None), None)
    if path is None:
        raise NoBrowserError(HOW)
    return path


def install_browser() -> bool:
    """Install Debian's package if this is such a system and the right to is there; tell whether it succeeded."""
    if shutil.which("apt-get") is None:
        return False
    prefix: list[str] = []
    if os.geteuid() != 0:
        # -n: a password prompt in the middle of `make test` would look like a hang.
        if shutil.which("sudo") is None or subprocess.run(["sudo", "-n", "true"], check=False).returncode != 0:
            return False
        prefix = ["sudo", "-n"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *_PACKAGES]):
        print("$", *prefix, *command, flush=True)
        if subprocess.run([*prefix, *command], env=environment, check=False).returncode != 0:
            return False
    return True


_PACKAGES = ("--no-install-recommends", "chromium", "fonts-dejavu-core")


def main() -> None:
    """Install a browser where there is none."""
    try:
        find_browser()
    except NoBrowserError as error:
        if os.environ.get(VARIABLE) or not install_browser():
            print(f"note: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
