"""A whole preparation against a slow one; the same bytes however the work is cut; killed, locked, full, refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys.errors import ConfigError, DataError
from recsys.features import FeatureSpec
from recsys.prepare import manifest, run
from recsys.prepare.encoding import Encoding
from recsys.prepare.settings import Engine, Split
from recsys.prepare.work import LOCK, WORK, locked
from scripts.make_fixtures import fixture_text
from tests.reference.clicks import (
    IN_PROCESS,
    click_schema,
    click_table,
    folder_bytes,
    read_split,
    run_prepare,
    slow_dense,
    slow_ids,
    write_clicks,
)

ROOT = Path(__file__).resolve().parents[2]
NUM_ROWS = 500


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    return write_clicks(tmp_path / "clicks.parquet", NUM_ROWS, row_group_size=170)


def test_every_column_is_what_a_slow_preparation_gives(tmp_path: Path, clicks: Path) -> None:
    run_prepare("parquet", str(clicks), tmp_path / "out", click_schema())
    rows = click_table(NUM_ROWS).to_pylist()
    train = rows[:400]
    for split, part in (("train", train), ("valid", rows[400:450]), ("test", rows[450:])):
        table = read_split(tmp_path / "out", split)
        assert table["label"].to_pylist() == [float(r["click"]) for r in part]
        assert table["weight"].to_pylist() == [r["w"] for r in part]
        assert table["time"].to_pylist() == [r["at"] for r in part]
        assert table["group"].to_pylist() == [r["user"] for r in part]
        assert table["age_missing"].to_pylist() == [float(r["age"] is None) for r in part]
        for name, column, min_count in (("user_id", "user", 3), ("shop", "shop", 2)):
            expected = slow_ids([r[column] for r in train], [r[column] for r in part], min_count)
            assert table[name].to_pylist() == expected
        for name, log in (("price", True), ("age", False)):
            expected_dense = slow_dense([r[name] for r in train], [r[name] for r in part], log)
            np.testing.assert_allclose(table[name].to_numpy(), expected_dense, rtol=1e-6, atol=1e-6)
        tags = [tag for r in train for tag in r["tags"] or []]
        expected_tags = [slow_ids(tags, [None] if r["tags"] is None else r["tags"], 1) for r in part]
        assert table["tags"].to_pylist() == expected_tags
    assert sorted(read_split(tmp_path / "out", "train")["row"].to_pylist()) == list(range(400))


def test_spec_can_be_read_and_covers_every_id(tmp_path: Path, clicks: Path) -> None:
    run_prepare("parquet", str(clicks), tmp_path / "out", click_schema())
    spec = FeatureSpec.read(tmp_path / "out/features.json")
    assert spec.dense == ("price", "age", "age_missing")
    assert [f.name for f in spec.sparse] == ["user_id", "shop", "tags"]
    assert [f.max_length for f in spec.sparse] == [1, 1, 3]
    for feature in spec.sparse[:2]:
        ids = read_split(tmp_path / "out", "test")[feature.name].to_numpy()
        assert ids.min() >= 0 and ids.max() < feature.cardinality


@pytest.fixture(scope="module")
def dask_address() -> Iterator[str]:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def criteo_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("criteo") / "train.txt"
    path.write_text(fixture_text(NUM_ROWS, seed=5))
    return path


def criteo_schema() -> Any:
    from recsys.prepare.schema import read_schema

    return read_schema(ROOT / "data/schemas/criteo.yaml").with_min_count(2)


@pytest.fixture(scope="module")
def plain_result(criteo_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    output = tmp_path_factory.mktemp("plain")
    run_prepare("criteo_kaggle", str(criteo_file), output, criteo_schema(), split=Split("random"))
    return folder_bytes(output)


@pytest.mark.parametrize("chunk_bytes", [9_001, 40_000])
def test_bytes_do_not_depend_on_the_chunks(
    tmp_path: Path, criteo_file: Path, plain_result: dict[str, bytes], chunk_bytes: int
) -> None:
    engine = Engine(workers=1, chunk_mib=chunk_bytes / 2**20)
    run_prepare("criteo_kaggle", str(criteo_file), tmp_path, criteo_schema(), split=Split("random"), engine=engine)
    assert folder_bytes(tmp_path) == plain_result


def test_bytes_do_not_depend_on_the_workers(tmp_path: Path, criteo_file: Path, plain_result: dict[str, bytes]) -> None:
    engine = Engine(workers=2, chunk_mib=0.03)
    run_prepare("criteo_kaggle", str(criteo_file), tmp_path, criteo_schema(), split=Split("random"), engine=engine)
    assert folder_bytes(tmp_path) == plain_result


def test_bytes_do_not_depend_on_the_engine(
    tmp_path: Path,
    criteo_file: Path,
    plain_result: dict[str, bytes],
    dask_address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine("dask", address=dask_address, chunk_mib=0.03)
    monkeypatch.chdir(criteo_file.parent)  # the workers stay where they are
    run_prepare("criteo_kaggle", criteo_file.name, tmp_path, criteo_schema(), split=Split("random"), engine=engine)
    assert folder_bytes(tmp_path) == plain_result


def test_an_error_on_the_cluster_is_the_same_error(tmp_path: Path, dask_address: str) -> None:
    path = tmp_path / "train.txt"
    lines = fixture_text(NUM_ROWS, seed=5).splitlines()
    lines[307] = "2" + lines[307][1:]
    lines[441] = ""
    path.write_text("\n".join(lines))
    engine = Engine("dask", address=dask_address, chunk_mib=0.01)
    with pytest.raises(DataError, match="line 308: column label: '2'"):
        run_prepare("criteo_kaggle", str(path), tmp_path / "out", criteo_schema(), engine=engine)


def test_no_scheduler(tmp_path: Path, clicks: Path) -> None:
    engine = Engine("dask")
    with pytest.raises(ConfigError, match=r"engine\.address is not set"):
        run_prepare("parquet", str(clicks), tmp_path / "out", click_schema(), engine=engine)


@pytest.mark.parametrize("step", ["stage", "count", "fit", "write_part"])
def test_goes_on_after_a_stop(tmp_path: Path, clicks: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    whole = tmp_path / "whole"
    engine = Engine(workers=1, chunk_mib=0.01)
    run_prepare("parquet", str(clicks), whole, click_schema(), engine=engine)
    calls = dict.fromkeys(("stage", "count", "fit", "write_part"), 0)
    real = {name: getattr(run, name) for name in calls}

    def counting(name: str, stop_at: int | None) -> Any:
        def task(job: Any) -> Any:
            calls[name] += 1
            if calls[name] == stop_at:
                raise KeyboardInterrupt
            return real[name](job)

        return task

    for name in calls:
        monkeypatch.setattr(run, name, counting(name, 2 if name == step else None))
    with pytest.raises(KeyboardInterrupt):
        run_prepare("parquet", str(clicks), tmp_path / "cut", click_schema(), engine=engine)
    assert not (tmp_path / "cut" / manifest.MANIFEST).exists()
    before = dict(calls)
    for name in calls:
        monkeypatch.setattr(run, name, counting(name, None))
    run_prepare("parquet", str(clicks), tmp_path / "cut", click_schema(), engine=engine)
    assert folder_bytes(tmp_path / "cut") == folder_bytes(whole)
    assert calls[step] > before[step]
    steps = list(calls)
    assert all(calls[name] == before[name] for name in steps[: steps.index(step)]), "an earlier pass was done again"


def test_what_was_deleted_in_between_is_written_again(
    tmp_path: Path, clicks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "check_unchanged", stop)
        with pytest.raises(KeyboardInterrupt):
            run_prepare("parquet", str(clicks), tmp_path / "out", click_schema())
    (tmp_path / "out/train/part-00001.parquet").unlink()
    (tmp_path / "out/vocab/shop.parquet").unlink()
    drafts = [tmp_path / "out/vocab/.shop.parquet.host-1.tmp", tmp_path / "out/test/.part-00000.parquet.host-1.tmp"]
    for draft in drafts:
        draft.write_bytes(b"half")
    run_prepare("parquet", str(clicks), tmp_path / "out", click_schema())
    run_prepare("parquet", str(clicks), tmp_path / "fresh", click_schema())
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "fresh")
    assert not any(draft.exists() for draft in drafts)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_killed_and_started_again(tmp_path: Path) -> None:
    source = tmp_path / "train.txt"
    source.write_text(fixture_text(1_000, seed=2))
    command = [sys.executable, "scripts/prepare.py", "source=criteo_kaggle", f"input={source}", "engine.chunk_mib=0.03"]
    output = tmp_path / "out"
    killed = [*command, "engine.workers=2", f"output={output}"]
    process = subprocess.Popen(killed, cwd=ROOT, stderr=subprocess.DEVNULL)
    while not list(output.glob(f"{WORK}/stage/2.done")) and process.poll() is None:
        time.sleep(0.01)
    workers = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(workers) >= 2
    assert (output / LOCK).exists() and not (output / manifest.MANIFEST).exists()
    one = [*command, "engine.workers=1"]
    again = subprocess.run([*one, f"output={output}"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "going on with what an earlier run has done" in again.stderr
    assert not any(is_running(pid) for pid in workers), "workers outlived the process that was killed"
    subprocess.run([*one, f"output={tmp_path / 'whole'}"], cwd=ROOT, capture_output=True, check=True)
    assert folder_bytes(output) == folder_bytes(tmp_path / "whole")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_work_of_other_settings_is_not_used(tmp_path: Path, clicks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_part", stop)
        with pytest.raises(KeyboardInterrupt):
            run_prepare("parquet", str(clicks), tmp_path / "out", click_schema().with_min_count(5))
    run_prepare("parquet", str(clicks), tmp_path / "out", click_schema())
    run_prepare("parquet", str(clicks), tmp_path / "fresh", click_schema())
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "fresh")


def test_done_already(tmp_path: Path, clicks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_prepare("parquet", str(clicks), tmp_path / "out", click_schema())
    monkeypatch.setattr(run, "stage", None)
    assert run_prepare("parquet", str(clicks), tmp_path / "out", click_schema()) == first
    with pytest.raises(DataError, match="prepared from other files or settings; choose another output"):
        run_prepare("parquet", str(clicks), tmp_path / "out", click_schema().with_min_count(7))


def test_foreign_folder_is_left_alone(tmp_path: Path, clicks: Path) -> None:
    for name in ("thesis.tex", "train"):
        output = tmp_path / name
        output.mkdir()
        (output / name).write_text("mine")
        with pytest.raises(DataError, match="choose an empty folder"):
            run_prepare("parquet", str(clicks), output, click_schema())
        assert (output / name).read_text() == "mine"


def test_two_at_once(tmp_path: Path, clicks: Path) -> None:
    output = tmp_path / "out"
    with locked(output), pytest.raises(DataError, match=rf"process {os.getpid()} on .* is preparing into this folder"):
        run_prepare("parquet", str(clicks), output, click_schema())
    run_prepare("parquet", str(clicks), output, click_schema())
    assert not (output / LOCK).exists()


def test_lock_of_a_dead_process_is_no_lock(tmp_path: Path, clicks: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / LOCK).write_text("process 1 on nowhere")
    run_prepare("parquet", str(clicks), output, click_schema())
    assert not (output / LOCK).exists()


def test_unwritable_folder(clicks: Path) -> None:
    with pytest.raises(DataError, match=r"^/proc/nothing: cannot be written .*; set output to a writable folder"):
        run_prepare("parquet", str(clicks), Path("/proc/nothing"), click_schema())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small tmpfs")
def test_disk_full(tmp_path: Path, clicks: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mount.stderr.decode()}")
    try:
        with pytest.raises(DataError, match="the disk is full .*start again, what is done is kept"):
            run_prepare("parquet", str(clicks), small / "out", click_schema())
        assert not (small / "out" / manifest.MANIFEST).exists()
        subprocess.run(["mount", "-o", "remount,size=16m", str(small)], check=True)
        run_prepare("parquet", str(clicks), small / "out", click_schema())
        manifest.verify(small / "out")
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_quarantine(tmp_path: Path) -> None:
    lines = fixture_text(300, seed=1).splitlines()
    bad = {3: "", 77: "2" + lines[77][1:], 78: lines[78] + "\t", 199: lines[199].replace("\t", "\tx", 1)}
    for i, line in bad.items():
        lines[i] = line
    path = tmp_path / "train.txt"
    path.write_text("\n".join(lines) + "\n")
    more: dict[str, Any] = {"bad_rows": "quarantine", "bad_rows_limit": 4}
    for chunk_mib in (0.004, 16.0):
        engine = Engine(workers=1, chunk_mib=chunk_mib)
        output = tmp_path / f"out{chunk_mib}"
        content = run_prepare("criteo_kaggle", str(path), output, criteo_schema(), engine=engine, **more)
        assert content["notes"]["quarantined"] == 4
        rows = [n for s in ("train", "valid", "test") for n in read_split(output, s)["row"].to_pylist()]
        assert sorted(rows) == [i for i in range(300) if i not in bad]
        side = [json.loads(line) for line in (output / manifest.QUARANTINE).read_text().splitlines()]
        assert [(row["place"], row["text"]) for row in side] == [(f"{path}, line {i + 1}", bad[i]) for i in bad]
    assert folder_bytes(tmp_path / "out0.004") == folder_bytes(tmp_path / "out16.0")
    more["bad_rows_limit"] = 3
    with pytest.raises(
        DataError, match=r"line 200: more than bad_rows.limit=3 bad rows;.*the first is .*line 4: is blank"
    ):
        run_prepare("criteo_kaggle", str(path), tmp_path / "limit", criteo_schema(), **more)


def test_scoring_encodes_as_the_splits_were_encoded(tmp_path: Path, clicks: Path) -> None:
    run_prepare("parquet", str(clicks), tmp_path / "out", click_schema())
    encoded = Encoding.read(tmp_path / "out").encode_table(click_table(NUM_ROWS).slice(450).drop_columns(["click"]))
    test = read_split(tmp_path / "out", "test")
    assert set(encoded) == {"price", "age", "age_missing", "user_id", "shop", "tags"}
    for name, array in encoded.items():
        assert array.to_pylist() == test[name].to_pylist(), name


def test_encodings_see_train_rows_only(tmp_path: Path, clicks: Path) -> None:
    rows = click_table(NUM_ROWS).to_pylist()
    other = click_table(NUM_ROWS, seed=9).to_pylist()
    changed = pa.Table.from_pylist(rows[:400] + other[400:], click_table(1).schema)
    pq.write_table(changed, tmp_path / "changed.parquet")
    run_prepare("parquet", str(clicks), tmp_path / "a", click_schema())
    run_prepare("parquet", str(tmp_path / "changed.parquet"), tmp_path / "b", click_schema())
    a, b = folder_bytes(tmp_path / "a"), folder_bytes(tmp_path / "b")
    names = [n for n in a if n.startswith(("train/", "vocab/")) or n == "features.json"]
    assert len(names) > 5 and all(a[n] == b[n] for n in names)
    assert a["test/part-00000.parquet"] != b["test/part-00000.parquet"]


def test_input_that_changes_while_it_is_read(tmp_path: Path, clicks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Any = vars(run)["write_part"]

    def touch(job: Any) -> Any:
        os.utime(clicks, (1, 1))
        return real(job)

    monkeypatch.setattr(run, "write_part", touch)
    with pytest.raises(DataError, match="changed while it was read"):
        run_prepare("parquet", str(clicks), tmp_path / "out", click_schema(), engine=IN_PROCESS)


def test_one_label_only(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("".join("0" + line[1:] for line in fixture_text(60, 1).splitlines(keepends=True)))
    with pytest.raises(DataError, match="every train row has label 0, so there is nothing to learn"):
        run_prepare("criteo_kaggle", str(path), tmp_path / "out", criteo_schema())


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_a_weight_must_be_above_zero(tmp_path: Path, weight: float) -> None:
    table = click_table(50)
    weights = table["w"].to_pylist()
    weights[7] = weight
    path = tmp_path / "clicks.parquet"
    pq.write_table(table.set_column(table.column_names.index("w"), "w", pa.array(weights)), path)
    with pytest.raises(DataError, match=rf"clicks\.parquet.*column w.*{weight}.*is not a weight above 0"):
        run_prepare("parquet", str(path), tmp_path / "out", click_schema())
