"""The service in a process of its own, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsys.serve.export import export_package
from recsys.serve.trained import probability
from scripts.bench_service import ask, load, made_up, serving
from scripts.serve import main as serve_main
from tests.serve.conftest import Run
from tests.serve.test_request_rows import criteo_rows


@pytest.fixture(scope="module")
def port(criteo_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    package = tmp_path_factory.mktemp("service") / "package"
    export_package(criteo_run.folder, package)
    with serving(package, ["--max-rows", "64", "--max-body-mib", "0.05"]) as port:
        yield port


def post(port: int, content: Any) -> tuple[int, Any]:
    status, body = ask(
        port, "POST", "/predict", content if isinstance(content, bytes) else json.dumps(content).encode()
    )
    return status, json.loads(body)


def test_health_ready_and_what_a_row_holds(port: int, criteo_run: Run) -> None:
    assert ask(port, "GET", "/health") == (200, '{"status":"alive"}')
    status, body = ask(port, "GET", "/ready")
    ready = json.loads(body)
    assert status == 200 and ready["status"] == "ready" and ready["limits"]["rows"] == 64
    model = json.loads((criteo_run.folder / "model.json").read_text())
    assert ready["model"]["weights_sha256"] == model["files"]["model.safetensors"]
    kinds = {field["name"]: field["kind"] for field in ready["fields"]}
    assert len(kinds) == 39 and kinds["I1"] == "number" and kinds["C1"] == "token"


def test_predictions_of_many_clients_are_those_of_the_evaluation(port: int, criteo_run: Run) -> None:
    rows = criteo_rows(criteo_run.test_lines)
    found: dict[int, list[float]] = {}

    def client(start: int) -> None:
        status, content = post(port, {"rows": rows[start : start + 5]})
        assert status == 200
        found[start] = content["probabilities"]

    threads = [threading.Thread(target=client, args=(start,)) for start in range(0, 50, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers = np.concatenate([found[start] for start in sorted(found)])
    np.testing.assert_allclose(answers, probability(criteo_run.logits), atol=1e-5)
    assert post(port, {"rows": []}) == (200, {"probabilities": []})


def test_refused_requests(port: int, criteo_run: Run) -> None:
    rows = criteo_rows(criteo_run.test_lines)
    rows[2] = rows[2] | {"C5": "no token"}
    status, content = post(port, {"rows": rows[:3]})
    assert status == 422
    message = "'no token' is no token of 1 to 8 hexadecimal digits"
    assert content == {"detail": [{"row": 2, "field": "C5", "message": message}]}
    for body, text in (
        (b"{", "the body is no JSON"),
        (b'{"rows": [{"I1": NaN}]}', "NaN is no JSON number"),
        (b"[]", 'the body must be {"rows": [...]}'),
        (b'{"rows": [], "more": 1}', 'the body must be {"rows": [...]}'),
    ):
        status, content = post(port, body)
        assert status == 422 and text in content["detail"]
    status, content = post(port, {"rows": [{}] * 65})
    assert status == 422 and content["detail"] == "65 rows, more than 64; send them in several requests"
    status, content = post(port, b" " * 60_000)
    assert status == 413 and content["detail"].startswith("the body is larger than 52428 bytes")
    assert ask(port, "GET", "/predict")[0] == 405


def test_load_and_metrics(port: int) -> None:
    fields = json.loads(ask(port, "GET", "/ready")[1])["fields"]
    before = metrics(port)
    found = load(port, made_up(fields, 3), clients=2, seconds=0.3)
    after = metrics(port)
    assert found["errors"] == 0 and found["requests_per_s"] > 0 and found["p50_ms"] <= found["p99_ms"]
    requests = after['recsys_requests_total{status="200"}'] - before.get('recsys_requests_total{status="200"}', 0)
    assert requests >= 2 and after["recsys_rows_total"] - before["recsys_rows_total"] == 3 * requests
    assert after["recsys_request_seconds_count"] - before["recsys_request_seconds_count"] == requests
    assert after["recsys_ready"] == 1 and after["recsys_waiting_requests"] == 0


def metrics(port: int) -> dict[str, float]:
    status, text = ask(port, "GET", "/metrics")
    assert status == 200
    lines = [line for line in text.splitlines() if line and line[0] != "#"]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_what_is_no_package_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve_main([str(tmp_path)]) == 1
    assert "package.json: cannot be read" in capsys.readouterr().err
