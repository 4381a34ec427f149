"""train.py under torchrun: two agents of one process each, which is two nodes on one machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from recsys.config import cli
from recsys.distributed import launch
from tests.reference.tiny_run import TINY

ROOT = Path(__file__).parents[2]
SMALL = ("+experiment=erase6", *(f"~model.archs.{name}" for name in ("mlp", "wukong", "attention", "masknet")))
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def start(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_nodes_make_one_run_folder_and_only_rank_0_speaks(tmp_path: Path) -> None:
    port = free_port()
    agents = []
    for node in range(2):
        here = tmp_path / f"node{node}"
        here.mkdir()
        torchrun = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d"]
        torchrun += [f"--rdzv_endpoint=localhost:{port}", "--rdzv_id=two", f"--rdzv_conf=is_host={node == 0}"]
        quiet = [a for a in TINY if a != "trainer.quiet=true"]
        cache = f"trainer.cache_dir={tmp_path / 'cache'}"
        agents.append(start([*torchrun, str(ROOT / "train.py"), *SMALL, *quiet, cache, "sharding=row_wise"], here))
    texts = [agent.communicate(timeout=200) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], texts
    reports = list(tmp_path.rglob("report.json"))
    assert len(reports) == 1, "one folder for the whole job"
    run = reports[0].parent
    assert json.loads(reports[0].read_text())["environment"]["processes"] == 2
    plan = json.loads((run / "sharding_plan.json").read_text())
    assert {t["kind"] for t in plan["tables"]} == {"row_wise"}
    assert len(plan["rank_bytes"]) == 2 and all(size > 0 for size in plan["rank_bytes"])
    speaking = [out for out, _ in texts if "written to" in out]
    assert len(speaking) == 1 and "sharding plan" in speaking[0]
    silent = next(node for node in range(2) if "written to" not in texts[node][0])
    assert texts[silent][0] == "" and "rows/s" not in texts[silent][1]
    assert list((tmp_path / f"node{silent}").iterdir()) == [], "other ranks make no folder"


def test_a_sweep_under_torchrun_is_refused_with_the_way_to_do_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "is_launched", lambda: True)
    monkeypatch.setattr(launch, "label_messages", lambda: None)
    monkeypatch.setattr(launch, "agreed", lambda name, value: value)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(sys, "argv", ["train.py", "-m", "+experiment=erase6", "seed=0,1"])
    with pytest.raises(SystemExit) as stopped:
        cli.main(lambda cfg, folder: None)
    assert stopped.value.code == 1
    assert "[rank 0] error: -m under torchrun" in (text := capsys.readouterr().err) and "trainer.processes=N" in text
