"""One job a folder."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from recsys.errors import ConfigError

_NAME = ".lock"


class FolderLock:
    """Holds a folder for this process; a context manager.

    The operating system lets go of the lock when the process ends in whatever way, so none is ever stale.

    Raises:
        ConfigError: another process holds the folder, or it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = self._acquire()
        except BlockingIOError as error:
            raise ConfigError(
                f"{folder}: another job is at work in this folder ({_holder(self._path)}); wait for it, stop it, or "
                "choose another folder with hydra.run.dir=FOLDER or checkpoint.folder=FOLDER"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"{folder}: cannot be written ({error.strerror}); choose another folder with hydra.run.dir=FOLDER"
            ) from error

    def _acquire(self) -> int:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Whoever held it before may have removed the file between the two calls.
                if os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                    os.truncate(descriptor, 0)
                    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
                    return descriptor
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def release(self) -> None:
        """Let go of the folder."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def _holder(path: Path) -> str:
    try:
        return path.read_text()[:100] or "unknown"
    except OSError:
        return "unknown"
