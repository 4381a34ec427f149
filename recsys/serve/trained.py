"""A saved model, ready to predict."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recsys.config.wire import build_autocast, build_device, build_model
from recsys.errors import ConfigError, DataError, NonFiniteError
from recsys.models.recommender import OVER, Recommender
from recsys.report.record import RunRecord
from recsys.schedule.infer import infer
from recsys.serve.batches import EncodedRows
from recsys.serve.model_files import FEATURES_JSON, WEIGHTS, read_model_json
from recsys.serve.row_encoder import RowEncoder, read_encoder
from recsys.train.prediction import PLAIN, Prediction

Array = NDArray[Any]


@dataclass(frozen=True)
class TrainedModel:
    """A run's model and the encoding of its rows.

    Attributes:
        model: in evaluation mode.
        encoder: from raw rows to its features.
        config: of the run, with the cuts of this side.
        source: kind of the files that it was trained on; None where rows had ids to begin with.
        device: where it computes.
        autocast: of ``trainer.precision``.
        prediction: makes the final logit, as it was fitted after training.
    """

    model: Recommender
    encoder: RowEncoder
    config: dict[str, Any]
    source: str | None
    device: torch.device
    autocast: Callable[[], Any] | None
    prediction: Prediction = PLAIN

    @staticmethod
    def load(folder: Path, side: str = "erase", device: str = "cpu", *, encoded: bool = False) -> TrainedModel:
        """Load the model of a run's folder.

        Args:
            folder: of the run.
            side: ``erase`` (the experiment's model) or ``baseline``.
            device: ``auto``, ``cpu`` or ``cuda``.
            encoded: whether rows will come encoded already.

        Raises:
            ConfigError: there is no such side.
            DataError: no model was saved, or a file is damaged.
        """
        # torchrec calls a function that torch 2.13 advises against.
        logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)
        content = read_model_json(folder)
        if side not in content["sides"]:
            raise ConfigError(f"{folder}: holds no model {side!r}; there are: {', '.join(content['sides'])}")
        config = copy.deepcopy(RunRecord(folder).config)
        config["model"], config["name"] = content["sides"][side]["model"], content["sides"][side]["name"]
        encoder = read_encoder(folder, content["source"], encoded=encoded)
        where = build_device(device)
        model = build_model(config, encoder.spec, where)
        _load_weights(model, folder / WEIGHTS[side])
        autocast = build_autocast(config, where)
        prediction = Prediction.from_plain(content["sides"][side]["prediction"])
        return TrainedModel(model.eval(), encoder, config, content["source"], where, autocast, prediction)

    @property
    def batch_size(self) -> int:
        """That of training: evaluation used it, and other sizes round differently in the last bits."""
        return int(self.config["trainer"]["batch_size"])

    def logits(self, rows: EncodedRows, batch_size: int) -> dict[str, Array]:
        """Logits float32 ``(B,)``: the final ones (under ``over``) and those of each local head, by part name.

        Raises:
            NonFiniteError: one is NaN or infinite.
        """
        modules = dict(self.model.parts.items())
        found: dict[str, list[Array]] = {name: [] for name in (OVER, *self.model.heads)}
        for batch in rows.batches(batch_size):
            logits = infer(self.model.graph, modules, batch.to(self.device), self.autocast).logits
            logits[OVER] = self.prediction.combine(logits)
            for name, pieces in found.items():
                pieces.append(logits[name].float().cpu().numpy())
        result = {n: np.concatenate(p) if p else np.zeros(0, np.float32) for n, p in found.items()}
        if bad := [name for name, values in result.items() if not np.isfinite(values).all()]:
            raise NonFiniteError(f"{bad[0]}: a logit is NaN or infinite; the trained model is broken, train it again")
        return result


def probability(logits: Array) -> NDArray[np.float32]:
    """Sigmoid, worked out in float64."""
    return np.exp(-np.logaddexp(0.0, -logits.astype(np.float64))).astype(np.float32)


def _load_weights(model: Recommender, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        model.load_state_dict(load_file(path))
    except (SafetensorError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path}: does not fit the model of config.yaml and {FEATURES_JSON} ({reason:.400}); use the code that "
            "it was trained with"
        ) from error
