"""The HTTP service around an exported package: ``/predict``, ``/health``, ``/ready``, ``/metrics``."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from recsys.errors import ConfigError
from recsys.serve.micro_batch import MicroBatcher
from recsys.serve.predictor import Predictor

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Limits:
    """What the service takes.

    Attributes:
        rows: of a request.
        body_bytes: of a request.
        batch_rows: of requests that are predicted together; 1 predicts each by itself.
    """

    rows: int = 1024
    body_bytes: int = 8 << 20
    batch_rows: int = 256

    def __post_init__(self) -> None:
        if min(self.rows, self.body_bytes, self.batch_rows) < 1:
            raise ConfigError("--max-rows, --max-body-mib and --batch-rows must be above 0")


class Meters:
    """What ``/metrics`` tells, in Prometheus' text format."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        self.requests = Counter("recsys_requests", "Requests to /predict by HTTP status", ["status"], registry=own)
        self.rows = Counter("recsys_rows", "Rows predicted", registry=own)
        self.seconds = Histogram(
            "recsys_request_seconds", "Time of a request to /predict", buckets=_SECONDS, registry=own
        )
        self.batch_rows = Histogram("recsys_batch_rows", "Rows predicted together", buckets=_ROWS, registry=own)
        self.waiting = Gauge("recsys_waiting_requests", "Requests that wait for the model", registry=own)
        self.ready = Gauge("recsys_ready", "1 once the model is loaded", registry=own)


class RequestError(Exception):
    """A request that is refused: HTTP status and what ``detail`` says."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(str(detail))
        self.status = status
        self.detail = detail


@dataclass
class _State:
    limits: Limits
    meters: Meters
    predictor: Predictor | None = None
    batcher: MicroBatcher | None = None
    failure: str | None = None


def create_app(package: Path, limits: Limits | None = None, *, compiled: bool | None = None) -> FastAPI:
    """The application. The model is loaded while it answers ``/health`` already; ``/ready`` tells when it is there.

    Args:
        package: an exported folder.
        limits: what it takes.
        compiled: as in :class:`recsys.serve.predictor.Predictor`.
    """
    state = _State(limits or Limits(), Meters())

    def load() -> Predictor:
        return Predictor(package, compiled=compiled)

    async def start() -> None:
        try:
            predictor = await asyncio.to_thread(load)
        except Exception as error:  # told by /ready: the process stays, for its log to be read
            state.failure = str(error)
            return
        state.batcher = MicroBatcher(predictor.predict, state.limits.batch_rows, state.meters.batch_rows.observe)
        state.predictor = predictor
        state.meters.ready.set(1)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(start())
        yield
        await task
        if state.batcher is not None:
            state.batcher.close()

    app = FastAPI(title="recsys", lifespan=lifespan)
    _add_routes(app, state)
    return app


def _add_routes(app: FastAPI, state: _State) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "alive"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Whether the model is loaded, and what a row must hold."""
        if state.predictor is None:
            return JSONResponse({"status": state.failure or "loading"}, 503)
        fields = [
            {"name": f.name, "kind": f.kind, "list": f.is_list, "null": f.nullable} for f in state.predictor.fields
        ]
        info = {key: state.predictor.info[key] for key in ("name", "weights_sha256", "embeddings")}
        return JSONResponse({"status": "ready", "model": info, "limits": asdict(state.limits), "fields": fields})

    @app.get("/metrics")
    async def metrics() -> Response:
        """Prometheus' text format."""
        state.meters.waiting.set(state.batcher.num_waiting if state.batcher else 0)
        return Response(generate_latest(state.meters.registry), media_type=CONTENT_TYPE_LATEST)

    @app.post("/predict")
    async def predict(request: Request) -> JSONResponse:
        """``{"rows": [{FIELD: VALUE, ...}, ...]}`` to ``{"probabilities": [...]}``."""
        start = time.perf_counter()
        status, content = 500, {}
        try:
            status, content = 200, {"probabilities": await _predict(request, state)}
        except RequestError as error:
            status, content = error.status, {"detail": error.detail}
        finally:
            state.meters.requests.labels(str(status)).inc()
            state.meters.seconds.observe(time.perf_counter() - start)
        return JSONResponse(content, status)


async def _predict(request: Request, state: _State) -> list[float]:
    if state.predictor is None or state.batcher is None:
        raise RequestError(503, state.failure or "the model is being loaded; see /ready")
    rows = _rows_of(await _body(request, state.limits.body_bytes), state.limits.rows)
    if errors := state.predictor.check(rows):
        raise RequestError(422, [asdict(error) for error in errors])
    probabilities = await state.batcher(rows) if rows else ()
    state.meters.rows.inc(len(rows))
    return [float(p) for p in probabilities]


async def _body(request: Request, limit: int) -> bytes:
    """The body, read no further than the limit."""
    too_large = RequestError(413, f"the body is larger than {limit} bytes; send fewer rows at a time")
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise too_large
        pieces.append(piece)
    return b"".join(pieces)


def _rows_of(body: bytes, limit: int) -> list[Any]:
    try:
        content = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(422, f"the body is no JSON ({error})") from error
    if not isinstance(content, dict) or set(content) != {"rows"} or not isinstance(content["rows"], list):
        raise RequestError(422, 'the body must be {"rows": [...]}, a list of objects, and nothing else')
    rows = content["rows"]
    if len(rows) > limit:
        raise RequestError(422, f"{len(rows)} rows, more than {limit}; send them in several requests")
    return rows


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
