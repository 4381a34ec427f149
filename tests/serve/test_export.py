"""An exported package predicts as the trainer does, without its code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from recsys.errors import ConfigError, DataError
from recsys.models.recommender import OVER
from recsys.serve.export import (
    AgreementError,
    export_package,
    load_package,
    predict_with,
    random_rows,
    read_package,
)
from recsys.serve.latency import measure_latency
from recsys.serve.quantize import TOLERANCE, quantize
from recsys.serve.trained import TrainedModel, probability
from tests.serve.conftest import Run


@pytest.fixture(scope="module")
def packages(synthetic_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packages")
    for precision in TOLERANCE:
        export_package(synthetic_run.folder, root / precision, embeddings=precision)
    return root


@pytest.mark.parametrize("precision", TOLERANCE)
def test_agreement(synthetic_run: Run, packages: Path, precision: str) -> None:
    """Rows with lists, empty ones too, in batches of several sizes down to one row."""
    trained = TrainedModel.load(synthetic_run.folder)
    rows = random_rows(trained.encoder.spec, 100, seed=3)
    wanted = probability(trained.logits(rows, 64)[OVER])
    model = load_package(packages / precision)
    for batch_size in (1, 33, 100):
        np.testing.assert_allclose(predict_with(model, rows, batch_size), wanted, atol=TOLERANCE[precision])
    info = read_package(packages / precision)
    assert 0 < info["agreement"]["exported"] <= TOLERANCE[precision] == info["tolerance"]
    assert wanted.std() > 0.01
    size = (packages / precision / "embeddings.safetensors").stat().st_size
    cells = sum(info["cardinalities"]) * info["embedding_dim"]
    assert size > cells * {"fp32": 4, "fp16": 2, "int8": 1}[precision]
    assert size < 1000 + cells * {"fp32": 4, "fp16": 2, "int8": 1 + 8 / info["embedding_dim"]}[precision]


SCRIPT = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from load import Model
given = np.load(sys.argv[2])
found = Model(sys.argv[1])(given["dense"], given["ids"], given["lengths"])
strange = sorted({name.partition(".")[0] for name in sys.modules} & {"recsys", "torchrec", "fbgemm_gpu", "pyarrow"})
assert not strange, strange
np.save(sys.argv[3], found)
"""


def test_a_package_needs_nothing_of_ours(synthetic_run: Run, packages: Path, tmp_path: Path) -> None:
    trained = TrainedModel.load(synthetic_run.folder)
    rows = random_rows(trained.encoder.spec, 10, seed=4)
    ids, lengths = rows.flat(0, 10)
    np.savez(tmp_path / "given.npz", dense=rows.dense_BN, ids=ids, lengths=lengths)
    words = [str(packages / "fp32"), str(tmp_path / "given.npz"), str(tmp_path / "found.npy")]
    subprocess.run([sys.executable, "-P", "-c", SCRIPT, *words], cwd=tmp_path, check=True, timeout=200)
    wanted = probability(trained.logits(rows, 64)[OVER])
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), wanted, atol=1e-6)
    assert len((packages / "fp32/load.py").read_text().splitlines()) <= 50


def test_ids_without_a_row_are_refused(packages: Path) -> None:
    model = load_package(packages / "fp32")
    sizes = np.array(model.info["cardinalities"])
    dense = np.zeros((1, len(model.info["dense"])), np.float32)
    assert model(dense, sizes - 1).shape == (1,)
    for wrong in (sizes, np.full_like(sizes, -1)):
        ids = np.zeros_like(sizes)
        ids[3] = wrong[3]
        with pytest.raises(AssertionError, match="an id has no row"):
            model(dense, ids)


def test_int8_is_off_by_half_a_step_at_the_most() -> None:
    table = torch.randn(50, 8) * torch.logspace(-6, 3, 50)[:, None]
    table[7] = 0.25
    parts = quantize(table, "int8")
    assert parts["weight"].dtype == torch.uint8
    back = parts["weight"].float() * parts["scale"] + parts["bias"]
    assert bool(((back - table).abs() <= parts["scale"] * 0.501).all())
    torch.testing.assert_close(back[7], table[7], rtol=0, atol=0)


def test_a_package_beyond_the_tolerance_is_not_written(synthetic_run: Run, tmp_path: Path) -> None:
    with pytest.raises(AgreementError, match=r"--embeddings int8: a probability differs from the trainer's by"):
        export_package(synthetic_run.folder, tmp_path / "out", embeddings="int8", tolerance=1e-9)
    assert not list(tmp_path.iterdir())


def test_mistakes(synthetic_run: Run, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="--embeddings int4: valid are fp32, fp16, int8"):
        export_package(synthetic_run.folder, tmp_path / "out", embeddings="int4")
    with pytest.raises(ConfigError, match="is there already; name a new folder"):
        export_package(synthetic_run.folder, packages / "fp32")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=r"AOTInductor needs a C\+\+ compiler"):
        export_package(synthetic_run.folder, tmp_path / "out", compiled=True)


def test_damage_is_told(synthetic_run: Run, tmp_path: Path) -> None:
    export_package(synthetic_run.folder, tmp_path / "out")
    path = tmp_path / "out/embeddings.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"embeddings\.safetensors: is not what was written"):
        read_package(tmp_path / "out")
    with pytest.raises(DataError, match=r"package\.json: cannot be read"):
        read_package(tmp_path)


def test_latency_is_measured_for_each_way_and_batch(synthetic_run: Run, packages: Path) -> None:
    threads = torch.get_num_threads()
    found = measure_latency(TrainedModel.load(synthetic_run.folder), packages / "fp32", batches=(1, 8), calls=8)
    assert [(f.way, f.batch, f.calls) for f in found] == [
        *(("eager", 1, 8), ("exported", 1, 8), ("eager", 8, 8), ("exported", 8, 8))
    ]
    assert all(0 < f.p50_ms <= f.p99_ms for f in found) and torch.get_num_threads() == threads


def test_what_a_package_tells_of_itself(synthetic_run: Run, packages: Path) -> None:
    info = json.loads((packages / "fp16/package.json").read_text())
    run_files = json.loads((synthetic_run.folder / "model.json").read_text())["files"]
    assert info["weights_sha256"] == run_files["model.safetensors"] and info["embeddings"] == "fp16"
    assert set(info["files"]) == {"dense.pt2", "embeddings.safetensors", "features.json", "load.py"}
