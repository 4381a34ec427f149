"""The checkpoints of a run: one folder a model, and the results of models that are finished."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any, Self

from recsys.checkpoint.lock import FolderLock
from recsys.checkpoint.peers import Alone, GroupPeers, Peers, agree
from recsys.checkpoint.read import Checkpoint
from recsys.checkpoint.saver import CheckpointConfig, Saver
from recsys.checkpoint.store import Store
from recsys.checkpoint.strict_json import take
from recsys.config.changes import check_changes
from recsys.config.fingerprint import config_with_effect
from recsys.config.resume import ResumePlan, note_latest, plan_resume
from recsys.config.wire import Config
from recsys.errors import ConfigError
from recsys.train.checkpointing import Checkpointing

BASELINE, EXPERIMENT = "baseline", "experiment"
_TRIAL = "trial.json"


class RunSaves:
    """Holds a run's folder for this job and says where each model's checkpoints are; a context manager.

    Below ``checkpoint.folder`` every model has a folder named after its role: checkpoints ``step_*`` while it
    trains, ``trial.json`` when it is done.

    Args:
        cfg: the experiment's configuration.
        folder: the run's folder.
        auto_resume: go on from checkpoints that are there, whatever the configuration says.

    Raises:
        ConfigError: another job works in the folder; it cannot be written; it holds checkpoints that this run would
            mix with its own; or there is nothing to resume.
    """

    def __init__(self, cfg: Config, folder: Path, *, auto_resume: bool = False) -> None:
        self.config = checkpoint_config(cfg)
        self._folder = folder
        self._plan = plan_resume(cfg, folder)
        if auto_resume and not self._plan.must:
            self._plan = ResumePlan(self._plan.root, self._plan.source, resumes=True)
        self._peers, self._background = current_peers(), current_peers()
        self._locks = contextlib.ExitStack()

    def __enter__(self) -> Self:
        problem = ""
        if self._peers.rank == 0:
            try:
                for place in dict.fromkeys((self._folder, self._plan.root.parent)):
                    self._locks.enter_context(FolderLock(place))
                self._check_root()
            except ConfigError as error:
                self._locks.close()
                if self._peers.size == 1:
                    raise
                problem = str(error)
        agree(self._peers, problem)
        return self

    def __exit__(self, *error: object) -> None:
        self._locks.close()

    def _check_root(self) -> None:
        root = self._plan.root
        models = [p for p in root.iterdir() if p.is_dir()] if root.is_dir() else []
        saved = [p for p in models if Store(p).checkpoints() or (p / _TRIAL).exists()]
        if self._plan.must and not saved:
            raise ConfigError(
                f"resume: there is no checkpoint in {root}; leave +resume out to start from the beginning"
            )
        if saved and not self._plan.resumes:
            raise ConfigError(
                f"{root}: holds checkpoints of an earlier run; go on with it by +resume=latest, or choose another "
                "folder with hydra.run.dir=FOLDER or checkpoint.folder=FOLDER"
            )

    def trial_path(self, role: str) -> Path:
        """Where the result of a finished model is."""
        return self._plan.root / role / _TRIAL

    def finished_trial(self, role: str) -> Path | None:
        """The result of a model that an earlier process finished, where this one goes on from there."""
        source = self._plan.source
        places = [self.trial_path(role)] if self._plan.resumes else []
        # A branch off the experiment takes its baseline along.
        if source is not None and source.parent.name != role:
            places.append(source.parent.parent / role / _TRIAL)
        return next((p for p in places if p.exists()), None)

    def checkpointing(self, role: str, cfg: Config, data_fingerprint: str, config_hash: str) -> Checkpointing:
        """What the training loop of a model needs to be saved and resumed.

        Raises:
            ConfigError: the checkpoint to resume was made with another configuration or other rows.
            CheckpointError: it is damaged, and so is every one before it.
        """
        store = Store(self._plan.root / role)
        if self._peers.rank == 0:
            store.remove_left_overs()
        facts = {
            "role": role,
            "config": config_with_effect(cfg),
            "data_fingerprint": data_fingerprint,
            "fingerprint": config_hash,
        }
        resume = self._newest(role, store)
        if resume is not None:
            self._check_same(resume, facts)
        saver = Saver(store, self.config, self._background, on_saved=lambda: note_latest(self._folder))
        return Checkpointing(saver, self._peers, facts, resume, saves_best=self.config.keep_best > 0)

    def _newest(self, role: str, store: Store) -> Checkpoint | None:
        source = self._plan.source
        if source is not None and source.parent.name == role:
            checkpoint = Checkpoint(source)
            checkpoint.verify()
            return checkpoint
        return store.newest_sound(self._peers) if self._plan.resumes else None

    def _check_same(self, resume: Checkpoint, facts: dict[str, Any]) -> None:
        place = str(resume.folder / "state.json")
        raw = resume.state()
        before, now = dict(take(raw, "config", dict, place)), dict(facts["config"])
        rows = take(raw, "data_fingerprint", str, place)
        # Tensors are read by another plan than the one they were written by, or that is refused where they are.
        before.pop("sharding", None)
        now.pop("sharding", None)
        if rows == facts["data_fingerprint"]:
            # The same rows from another place are the same rows.
            before.pop("data", None)
            now.pop("data", None)
        else:
            before["data"] = {**before.get("data", {}), "rows": _short(rows)}
            now["data"] = {**now["data"], "rows": _short(facts["data_fingerprint"])}
        changed = check_changes(before, now, self.config.allow_changes, str(resume.folder))
        if self._peers.rank == 0:
            for line in changed:
                print(f"changed since the checkpoint: {line}", flush=True)
            if not changed and raw.get("fingerprint") != facts["fingerprint"]:
                print(
                    f"{resume.folder}: was made by other code, library versions or threads; the rest of the run may "
                    "differ in rounding",
                    flush=True,
                )

    def finish(self) -> None:
        """The run is complete: leave no trace of saving where nothing was saved."""
        root = self._plan.root
        if self._peers.rank or not root.is_dir():
            return
        for folder in root.iterdir():
            if folder.is_dir() and not Store(folder).checkpoints():
                for suffix in (".json", ".npz", ".safetensors"):
                    (folder / _TRIAL).with_suffix(suffix).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    folder.rmdir()
        with contextlib.suppress(OSError):
            root.rmdir()


def checkpoint_config(cfg: Config) -> CheckpointConfig:
    """The group ``checkpoint``.

    Raises:
        ConfigError: a value that no run could use.
    """
    raw = dict(cfg["checkpoint"])
    allowed = raw.pop("allow_changes")
    return CheckpointConfig(**raw, allow_changes=(allowed,) if isinstance(allowed, str) else tuple(allowed))


def current_peers() -> Peers:
    """The ranks of this job, with a group of their own."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return GroupPeers(dist.new_group(backend="gloo"))
    return Alone()


def _short(fingerprint: str) -> str:
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:12]
