"""An exported package: a folder that predicts without this project's code.

Holds the dense graph (``dense.pt2`` by ``torch.export``, on request also compiled ahead of time), the tables in one
(``embeddings.safetensors``), feature spec and vocabularies, ``load.py``, and ``package.json`` with all checksums.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recsys.errors import ConfigError, UserError
from recsys.features import FeatureSpec
from recsys.models.recommender import OVER, Recommender
from recsys.report.atomic import write_atomic
from recsys.serve import loader
from recsys.serve.batches import EncodedRows
from recsys.serve.dense_graph import DenseGraph
from recsys.serve.model_files import FEATURES_JSON, WEIGHTS, check_files, read_json, read_model_json, sha256
from recsys.serve.quantize import TOLERANCE, check_precision, quantize
from recsys.serve.trained import TrainedModel, probability
from recsys.train.prediction import PLAIN, Prediction

PACKAGE_JSON = "package.json"
DENSE, COMPILED, EMBEDDINGS, LOADER = "dense.pt2", "dense_compiled.pt2", "embeddings.safetensors", "load.py"
VERSION = 1
_CHECK_ROWS = 2048


class AgreementError(UserError):
    """An exported package gives other probabilities than the trainer."""


@dataclass(frozen=True)
class Exported:
    """What an export wrote.

    Attributes:
        folder: the package.
        model: what it was made of.
        agreement: greatest difference of a probability from the trainer's over random rows, by way of computing.
        num_bytes: of each file.
        trained_bytes: of the run's weights.
    """

    folder: Path
    model: TrainedModel
    agreement: dict[str, float]
    num_bytes: dict[str, int]
    trained_bytes: int


def export_package(
    run: Path,
    output: Path,
    *,
    side: str = "erase",
    embeddings: str = "fp32",
    compiled: bool = False,
    tolerance: float | None = None,
) -> Exported:
    """Export the model of a run and compare it with the trainer's predictions on random rows.

    Args:
        run: folder of the run.
        output: folder to make.
        side: ``erase`` (the experiment's model) or ``baseline``.
        embeddings: ``fp32``, ``fp16`` or ``int8``.
        compiled: also compile the dense graph ahead of time (AOTInductor); the result needs a CPU like this one.
        tolerance: of a probability; None is that of :data:`recsys.serve.quantize.TOLERANCE`.

    Raises:
        ConfigError: the folder is not empty, a wrong word, or there is no C++ compiler.
        DataError: no model was saved, or a file is damaged.
        AgreementError: the package differs from the trainer by more than the tolerance; nothing is left behind.
    """
    check_precision(embeddings)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"--out {output}: is there already; name a new folder")
    if compiled and not (shutil.which("g++") or shutil.which("clang++")):
        raise ConfigError("--compiled: AOTInductor needs a C++ compiler, and there is neither g++ nor clang++ here")
    source = read_model_json(run)
    trained = TrainedModel.load(run, side, "cpu")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as name:
        draft = Path(name) / "package"
        draft.mkdir()
        _write_parts(draft, trained, embeddings, compiled)
        encoding = [file for file in source["files"] if file == FEATURES_JSON or file.startswith("vocab/")]
        for file in encoding:
            write_atomic(draft / file, (run / file).read_bytes())
        write_atomic(draft / LOADER, Path(loader.__file__).read_bytes())
        info = _info(trained, run, side, embeddings, tolerance)
        _write_info(draft, info)
        info["agreement"] = agreement = _compare(trained, draft, compiled)
        if (worst := max(agreement.values())) > info["tolerance"]:
            raise AgreementError(
                f"--embeddings {embeddings}: a probability differs from the trainer's by {worst:.2g}, more than "
                f"{info['tolerance']:.2g}; use a wider precision, or allow it with --tolerance"
            )
        _write_info(draft, info)
        if output.exists():
            output.rmdir()
        draft.rename(output)
    sizes = {str(p.relative_to(output)): p.stat().st_size for p in sorted(output.rglob("*")) if p.is_file()}
    return Exported(output, trained, agreement, sizes, (run / WEIGHTS[side]).stat().st_size)


def _write_parts(folder: Path, trained: TrainedModel, embeddings: str, compiled: bool) -> None:
    from safetensors.torch import save_file

    tables = [piece.weight for piece in trained.model.sparse_arch.pieces()]
    save_file(quantize(torch.cat(tables), embeddings), folder / EMBEDDINGS)
    program = export_dense(trained.model, trained.prediction)
    with _without_future_warnings():
        torch.export.save(program, folder / DENSE)
        if compiled:
            torch._inductor.aoti_compile_and_package(program, package_path=str(folder / COMPILED))


@contextmanager
def _without_future_warnings() -> Iterator[None]:
    """torch.export of 2.13 copies its own tree specs in a way that it has deprecated itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        yield


def export_dense(model: Recommender, prediction: Prediction = PLAIN) -> torch.export.ExportedProgram:
    """The dense graph for any number of rows."""
    spec = model.spec
    example = (torch.zeros(2, len(spec.dense)), torch.zeros(2, len(spec.sparse), model.sparse_arch.width))
    batch = torch.export.Dim("batch", min=1)
    with torch.no_grad(), _without_future_warnings():
        return torch.export.export(
            DenseGraph(model, prediction).eval(), example, dynamic_shapes=({0: batch}, {0: batch})
        )


def _info(trained: TrainedModel, run: Path, side: str, embeddings: str, tolerance: float | None) -> dict[str, Any]:
    spec = trained.encoder.spec
    return {
        "version": VERSION,
        "name": trained.config["name"],
        "side": side,
        "source": trained.source,
        "weights_sha256": sha256(run / WEIGHTS[side]),
        "embeddings": embeddings,
        "embedding_dim": trained.model.sparse_arch.width,
        "dense": list(spec.dense),
        "sparse": spec.sparse_names,
        "cardinalities": [f.cardinality for f in spec.sparse],
        "max_lengths": [f.max_length for f in spec.sparse],
        "tolerance": TOLERANCE[embeddings] if tolerance is None else tolerance,
        "torch": torch.__version__,
    }


def _write_info(folder: Path, info: dict[str, Any]) -> None:
    files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != PACKAGE_JSON)
    content = info | {"files": {name: sha256(folder / name) for name in files}}
    write_atomic(folder / PACKAGE_JSON, json.dumps(content, indent=1) + "\n")


def read_package(folder: Path) -> dict[str, Any]:
    """What ``package.json`` says, every file compared with its checksum.

    Raises:
        DataError: this is no exported package, or a file is missing or damaged.
    """
    content = read_json(folder / PACKAGE_JSON, VERSION)
    check_files(folder, content["files"])
    return content


def load_package(folder: Path, *, compiled: bool = False) -> Any:
    """The package's own ``load.Model``, from its own file."""
    spec = importlib.util.spec_from_file_location("recsys_exported_model", folder / LOADER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model(folder, compiled=compiled)


def random_rows(spec: FeatureSpec, num_rows: int, seed: int = 0) -> EncodedRows:
    """Rows of every id and length alike, standard normal dense values."""
    draw = np.random.default_rng(seed)
    ids, offsets = [], []
    for feature in spec.sparse:
        one_hot = feature.max_length == 1
        lengths = np.ones(num_rows, np.int64) if one_hot else draw.integers(0, feature.max_length + 1, num_rows)
        offsets.append(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
        ids.append(draw.integers(0, feature.cardinality, int(lengths.sum())).astype(np.int32))
    dense = draw.standard_normal((num_rows, len(spec.dense))).astype(np.float32)
    return EncodedRows(spec, dense, ids, offsets)


def predict_with(model: Any, rows: EncodedRows, batch_size: int) -> NDArray[np.float32]:
    """Probabilities of a package."""
    pieces = []
    for start in range(0, rows.num_rows, batch_size):
        stop = min(start + batch_size, rows.num_rows)
        pieces.append(model(rows.dense_BN[start:stop], *rows.flat(start, stop)))
    return np.concatenate(pieces)


def _compare(trained: TrainedModel, folder: Path, compiled: bool) -> dict[str, float]:
    rows = random_rows(trained.encoder.spec, _CHECK_ROWS)
    wanted = probability(trained.logits(rows, trained.batch_size)[OVER])
    result = {}
    for way, is_compiled in (("exported", False), *((("compiled", True),) if compiled else ())):
        model = load_package(folder, compiled=is_compiled)
        # Batches of another size than that of the export, and a single row at the end.
        found = np.concatenate([predict_with(model, rows, 341)])
        result[way] = float(np.abs(found - wanted).max())
    return result
