"""What a preparation will need, said before it begins."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from recsys.prepare.engine import num_workers
from recsys.prepare.inputs import InputFile
from recsys.prepare.settings import Settings

# Measured on Criteo's rows: bytes per byte of plain text.
_WORK_PER_TEXT = 0.45
_OUTPUT_PER_TEXT = 0.55
_TEXT_PER_FILE = {".gz": 3.0, ".zst": 3.5, ".parquet": 2.5}
# A worker: interpreter and libraries, and the columns of a chunk in several forms.
_WORKER_BYTES = 260 << 20
_PER_CHUNK_BYTE = 6
# A distinct value while a vocabulary is merged.
_PER_VALUE = 120


def needs(settings: Settings, files: Sequence[InputFile]) -> str:
    """One line: size of the input, room on the disk, memory."""
    read = sum(file.num_bytes for file in files)
    text = sum(file.num_bytes * _TEXT_PER_FILE.get(Path(file.path).suffix, 1.0) for file in files)
    disk = (_WORK_PER_TEXT + _OUTPUT_PER_TEXT) * text
    free = shutil.disk_usage(settings.output).free
    workers = num_workers(settings.engine) if settings.engine.name == "local" else 1
    memory = workers * (_WORKER_BYTES + _PER_CHUNK_BYTE * settings.engine.chunk_bytes)
    each = " a worker" if settings.engine.name == "dask" else f" for {workers} worker{'s' * (workers > 1)}"
    line = (
        f"{len(files)} input file{'s' * (len(files) > 1)} of {_size(read)}; needs about {_size(disk)} of disk in "
        f"{settings.output} ({_size(free)} are free; {_size(_OUTPUT_PER_TEXT * text)} of it stay) and "
        f"{_size(memory)} of memory{each}, and {_PER_VALUE} bytes for each distinct value of the largest vocabulary"
    )
    return line if disk < free else f"{line}. This may not fit on the disk"


def _size(num_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}" if unit in ("B", "KiB", "MiB") else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} TiB"
