"""A whole preparation: checks, passes, manifest."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from recsys.errors import DataError
from recsys.prepare import manifest, reduce, target_mean
from recsys.prepare.count import CountJob, count
from recsys.prepare.encoding import vocabulary_path
from recsys.prepare.engine import Pool, open_pool, run_tasks
from recsys.prepare.estimate import needs
from recsys.prepare.faults import QuarantinedRow
from recsys.prepare.fit import FitJob, Fitted, fit
from recsys.prepare.inputs import Digest, InputFile, check_unchanged, digest, resolve
from recsys.prepare.parts import Part, PartJob, Slice, cut_parts, part_name, write_part
from recsys.prepare.progress import Silent
from recsys.prepare.settings import FORMAT_VERSION, SPLITS, Settings, check_settings
from recsys.prepare.split import Place, Rule, make_rule, places_of
from recsys.prepare.stage import Chunk, StageJob, refuse, stage
from recsys.prepare.text import zstd_has_checksum
from recsys.prepare.units import make_units
from recsys.prepare.work import LOCK, WORK, atomic, cannot_write, locked, write_json

# Raise it when results that a cut-off run keeps look otherwise than those of earlier versions.
_WORK_VERSION = 2
_OURS = {LOCK, WORK, *SPLITS, "vocab", "features.json", manifest.QUARANTINE}


def prepare(settings: Settings, progress: Silent | None = None) -> dict[str, Any]:
    """Prepare the data, or do nothing if the folder holds just these rows already.

    Args:
        settings: what to do.
        progress: told how far it is.

    Returns:
        the manifest.

    Raises:
        ConfigError: a setting that cannot be carried out.
        DataError: input that cannot be used, or an output folder that cannot be written; what is done is kept.
    """
    check_settings(settings)
    files = resolve(settings.source, settings.inputs)
    if settings.engine.name == "dask":
        # The cluster's workers have working folders of their own.
        files = [replace(file, path=str(Path(file.path).absolute())) for file in files]
    output = Path(settings.output).expanduser().absolute()
    progress = progress or Silent()
    with locked(output):
        _check_folder(output)
        progress.say(needs(settings, files))
        try:
            with open_pool(settings.engine) as pool:
                return _Run(settings, files, output, pool, progress).run()
        except OSError as error:
            raise cannot_write(output, error) from error


def _check_folder(output: Path) -> None:
    names = {path.name for path in output.iterdir()} - {LOCK}
    if manifest.MANIFEST in names:
        return
    if strange := sorted(names - _OURS):
        raise DataError(f"{output}: holds {strange[0]!r}, which is not of a preparation; choose an empty folder")
    if names and WORK not in names:
        raise DataError(f"{output}: holds {sorted(names)[0]!r} but no {manifest.MANIFEST}; choose an empty folder")


class _Run:
    """The passes of one preparation, in order."""

    def __init__(self, settings: Settings, files: list[InputFile], output: Path, pool: Pool, progress: Silent) -> None:
        self.settings = settings
        self.files = files
        self.output = output
        self.pool = pool
        self.progress = progress
        self.work = output / WORK
        self.digests: list[Digest] = []
        self.chunks: list[Chunk] = []
        self.quarantined: list[QuarantinedRow] = []

    def run(self) -> dict[str, Any]:
        """Do what is not done yet."""
        self.digests = digests = self._digests()
        identity = {
            "version": FORMAT_VERSION,
            "files": [[d.sha256, f.split] for d, f in zip(digests, self.files, strict=True)],
            **self.settings.identity(),
        }
        fingerprint = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        if (self.output / manifest.MANIFEST).exists():
            return self._finished(fingerprint)
        self._claim_work(fingerprint)
        self._stage()
        places, num_shared = places_of(self.chunks, self.files)
        rule = make_rule(self.settings, num_shared, len(self.files) - 1, self._time_cut)
        figures = self._count(places, rule)
        reduce.check_splits(self.settings, figures)
        fitted = self._fit()
        encoding = reduce.encoding_of(self.settings.schema, figures, fitted)
        parts = self._parts(places, rule, figures, encoding)
        encoding.write(self.output)
        check_unchanged(self.files)
        content = self._manifest(fingerprint, digests, figures, fitted, parts)
        write_json(self.output / manifest.MANIFEST, content)
        shutil.rmtree(self.work)
        return manifest.read(self.output)

    def _follow(self, what: str, task: Any, jobs: list[Any], folder: str = "") -> Any:
        done = (lambda i: self.work / folder / f"{i}.done") if folder else None
        return self.progress.follow(what, run_tasks(self.pool, task, jobs, done), len(jobs))

    def _digests(self) -> list[Digest]:
        expected = self.settings.expected if isinstance(self.settings.inputs, dict) else {}
        jobs = [(file.path, bool(expected)) for file in self.files]
        digests: list[Digest] = list(self._follow("hash the input", _digest, jobs))
        for file, found in zip(self.files, digests, strict=True):
            name = SPLITS[file.split or 0]
            if name in expected and found.md5 != expected[name].md5:
                raise DataError(
                    f"{file.path}: its MD5 is {found.md5}, but the published {name} file's is {expected[name].md5}; "
                    "get a new copy, or leave the check out with expected=null"
                )
        reduce.check_copies(self.files, digests)
        return digests

    def _finished(self, fingerprint: str) -> dict[str, Any]:
        content = manifest.read(self.output)
        if content["fingerprint"] != fingerprint:
            raise DataError(
                f"{self.output}: holds data prepared from other files or settings; choose another output or delete it"
            )
        self.progress.say(f"{self.output}: these rows are prepared already; nothing to do")
        return content

    def _claim_work(self, fingerprint: str) -> None:
        """Keep the work of an earlier run that was cut off, if it was on the same task."""
        chunk_bytes = self.settings.engine.chunk_bytes
        key = {"version": _WORK_VERSION, "fingerprint": fingerprint, "chunk_bytes": chunk_bytes}
        path = self.work / "key.json"
        if path.exists() and json.loads(path.read_text()) == key:
            self.progress.say(f"{self.output}: going on with what an earlier run has done")
            return
        for name in (WORK, *SPLITS, "vocab"):
            if (self.output / name).exists():
                shutil.rmtree(self.output / name)
        write_json(path, key)

    def _stage(self) -> None:
        settings = self.settings
        chunk_bytes = settings.engine.chunk_bytes
        units = make_units(settings.source, self.files, settings.schema, chunk_bytes, settings.max_rows)
        if not units:
            raise DataError(f"{self.files[0].path}: there is no row in the input; name files with rows")
        reduce.check_shared_copies(self.files, self.digests, {unit.file for unit in units})
        limit = settings.bad_rows_limit if settings.bad_rows == "quarantine" else -1
        jobs = [
            StageJob(settings.source, unit, settings.schema, chunk_bytes, str(self.work), f"u{i:06d}", limit)
            for i, unit in enumerate(units)
        ]
        for staged in self._follow("read and check", stage, jobs, "stage"):
            self.chunks += staged.chunks
            self.quarantined += staged.quarantined
            if len(self.quarantined) > max(limit, 0):
                refuse(self.quarantined, limit)
        rows_in = sum(chunk.num_input for chunk in self.chunks)
        rows_out = sum(chunk.num_rows for chunk in self.chunks)
        assert rows_in == rows_out + len(self.quarantined), "rows were lost"
        reduce.check_clocks(settings.schema, self.files, self.chunks)

    def _time_cut(self, at_least: int) -> int:
        return reduce.time_cut(self.pool, str(self.work), self.chunks, self.files, at_least)

    def _count(self, places: list[Place], rule: Rule) -> reduce.Figures:
        pairs = zip(self.chunks, places, strict=True)
        jobs = [CountJob(str(self.work), chunk, place, rule, self.settings.schema) for chunk, place in pairs]
        return reduce.add_up(self._follow("count the values", count, jobs, "count"))

    def _fit(self) -> list[Fitted]:
        columns = self.settings.schema.categorical
        tallied = [i for i, column in enumerate(columns) if column.adds_dense]
        at = {i: len(columns) + j for j, i in enumerate(tallied)}
        for i, column in enumerate(columns):
            written = [vocabulary_path(self.output, column.name)] if column.min_count is not None else []
            written += [target_mean.path_of(self.output, column.name)] if column.adds_dense else []
            if not all(path.exists() for path in written):
                (self.work / "fit" / f"{i}.done").unlink(missing_ok=True)
        jobs = [
            FitJob(str(self.work), str(self.output), column, i, tuple(self.chunks), at.get(i))
            for i, column in enumerate(columns)
        ]
        return list(self._follow("number the values", fit, jobs, "fit"))

    def _parts(
        self, places: list[Place], rule: Rule, figures: reduce.Figures, encoding: Any
    ) -> dict[str, list[tuple[str, Part]]]:
        ids_at = reduce.id_offsets(self.chunks)
        jobs: list[PartJob] = []
        names: list[tuple[int, str]] = []
        for split in range(len(SPLITS)):
            rows_of = [rows[split] for rows in figures.rows_of_chunks]
            for number, pieces in enumerate(cut_parts(rows_of, self.settings.rows_per_part)):
                name = part_name(split, number)
                slices = tuple(Slice(self.chunks[c], places[c], a, b, ids_at[c]) for c, a, b in pieces)
                names.append((split, name))
                jobs.append(
                    PartJob(
                        str(self.work),
                        str(self.output / name),
                        split,
                        rule,
                        encoding,
                        slices,
                        sum(b - a for _, a, b in pieces),
                        self.settings.rows_per_group,
                        self.settings.compression,
                    )
                )
        self._sweep([name for _, name in names])
        written: dict[str, list[tuple[str, Part]]] = {name: [] for name in SPLITS}
        results = self._follow("write the parts", write_part, jobs, "parts")
        for (split, name), part in zip(names, results, strict=True):
            written[SPLITS[split]].append((name, part))
        rows_out = sum(part.rows for parts in written.values() for _, part in parts)
        assert rows_out == sum(chunk.num_rows for chunk in self.chunks), "rows were lost on the way to the parts"
        return written

    def _sweep(self, names: list[str]) -> None:
        """Do again what was done but is gone, and remove drafts that a killed run left."""
        for number, name in enumerate(names):
            if not (self.output / name).exists():
                (self.work / "parts" / f"{number}.done").unlink(missing_ok=True)
        for folder in (*SPLITS, "vocab"):
            for draft in (self.output / folder).glob(".*.tmp"):
                draft.unlink()

    def _manifest(
        self,
        fingerprint: str,
        digests: list[Digest],
        figures: reduce.Figures,
        fitted: list[Fitted],
        parts: dict[str, list[tuple[str, Part]]],
    ) -> dict[str, Any]:
        extra = ["features.json", *sorted(str(p.relative_to(self.output)) for p in (self.output / "vocab").glob("*"))]
        if self.quarantined:
            with atomic(self.output / manifest.QUARANTINE) as draft:
                draft.write_text("".join(f"{row.to_json()}\n" for row in self.quarantined), encoding="utf-8")
            extra.append(manifest.QUARANTINE)
        splits = {
            name: {"files": [_entry(n, p) for n, p in parts[name]], "rows": sum(p.rows for _, p in parts[name])}
            for name in SPLITS
        }
        sources = [
            {
                "name": Path(file.path).name,
                "bytes": file.num_bytes,
                "sha256": found.sha256,
                "rows": sum(chunk.num_input for chunk in self.chunks if chunk.file == i),
                "split": SPLITS[file.split] if file.split is not None else None,
            }
            for i, (file, found) in enumerate(zip(self.files, digests, strict=True))
        ]
        reduce.check_rows(self.settings, self.files, sources)
        notes = reduce.notes_of(self.settings.schema, figures, fitted, [p for ps in parts.values() for _, p in ps])
        unchecked = [f.path for f in self.files if f.path.endswith(".zst") and not zstd_has_checksum(Path(f.path))]
        for path in unchecked:
            self.progress.say(f"{path}: has no checksum, so damage in it would go unnoticed; `zstd --check` writes one")
        return {
            "version": FORMAT_VERSION,
            "fingerprint": fingerprint,
            "splits": splits,
            "files": [manifest.file_entry(self.output, name) for name in extra],
            "source": {"kind": self.settings.source, "files": sources},
            "settings": self.settings.identity(),
            "notes": notes
            | {"quarantined": len(self.quarantined), "without_checksum": [Path(path).name for path in unchecked]},
        }


def _digest(job: tuple[str, bool]) -> Digest:
    return digest(*job)


def _entry(name: str, part: Part) -> dict[str, Any]:
    return {"name": name, **{k: v for k, v in asdict(part).items() if k in ("rows", "bytes", "sha256")}}
