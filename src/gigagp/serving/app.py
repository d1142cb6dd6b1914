"""The service as an ASGI application: one model, read by many requests and updated by one at a time."""

from __future__ import annotations

import hmac
import io
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from gigagp.errors import GigaGPError, InvalidInput, InvalidParameter
from gigagp.serving import queries
from gigagp.serving.limits import Limits, Problem
from gigagp.serving.metrics import Metrics
from gigagp.serving.page import page
from gigagp.version import __version__

_PATHS = ("/predict", "/update", "/schema", "/health", "/metrics", "/")
_SHORT_BODY = 4096  # bytes
_PROBLEM = "application/problem+json"


class Service:
    """A fitted regressor behind HTTP.

    writable : whether the model takes updates; it was opened with `HGPRegressor.open` then
    """

    def __init__(self, model: Any, limits: Limits, writable: bool) -> None:
        self.model, self.limits, self.writable = model, limits, writable
        self.metrics, self._lock = Metrics(), threading.Lock()

    def predict(self, kind: str, body: bytes, accept: str) -> Response:
        """Mean, deviation and quantiles of the rows of a body."""
        model: Any = self.model
        query = queries.read(kind, body, model.model_, self.limits)
        levels, latent = _options(query.options, self.limits)
        X, predictor = queries.numbers_of(query.table, model.model_), model.predictor_
        with predictor.engine_for(len(X)) as engine:
            answer = predictor.latent_distribution_at if latent else predictor.distribution_at
            law = answer(X, engine)
        columns = {"mean": law.mean, "std": law.std} | {f"q{level!r}": law.quantile(level) for level in levels}
        self.metrics.add_rows("predicted", len(X))
        if queries.ARROW in accept:
            return Response(_arrow(columns), media_type=queries.ARROW)
        return JSONResponse({name: np.asarray(values).tolist() for name, values in columns.items()})

    def update(self, kind: str, body: bytes) -> Response:
        """Learn the rows of a body; returns when they are on the disk."""
        if not self.writable:
            raise Problem(403, "Read-only", "this service takes no updates; start it with --updates")
        target = self.model.model_.target_name or "y"
        query = queries.read(kind, body, self.model.model_, self.limits, target)
        X, y = queries.rows_of(query.table, self.model.model_, target)
        with self._lock:
            self.model.partial_fit(X, y)
            rows = self.model.n_rows_
        self.metrics.add_rows("learnt", len(query.table))
        return JSONResponse({"learnt": len(query.table), "rows": rows})


def make_app(model: Any, *, limits: Limits | None = None, token: str | None = None, writable: bool = False) -> FastAPI:
    """The application of a fitted regressor.

    token : what requests must send as "Authorization: Bearer token"; None for no check
    writable : whether /update is allowed
    """
    limits = limits or Limits()
    service = Service(model, limits, writable)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        model.close()

    app = FastAPI(title="gigagp", version=__version__, lifespan=lifespan, openapi_url=None)
    app.state.service = service
    app.add_middleware(_Around, service=service, token=token)
    _add_handlers(app)

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        body, kind = await _body(request, limits), request.headers.get("content-type", "")
        accept = request.headers.get("accept", "")
        if len(body) <= _SHORT_BODY:  # another thread would take longer to answer
            return service.predict(kind, body, accept)
        return await run_in_threadpool(service.predict, kind, body, accept)

    @app.post("/update")
    async def update(request: Request) -> Response:
        body = await _body(request, limits)
        return await run_in_threadpool(service.update, request.headers.get("content-type", ""), body)

    @app.get("/schema")
    async def schema() -> Response:
        return JSONResponse(queries.schema_of(model.model_) | {"rows": model.n_rows_, "updates": writable})

    @app.get("/health")
    async def health() -> Response:
        return JSONResponse({"status": "ok", "rows": model.n_rows_, "version": __version__})

    @app.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(service.metrics.text(model.n_rows_))

    @app.get("/")
    async def form() -> Response:
        return HTMLResponse(page(queries.schema_of(model.model_), queries.typical_row(model.model_)))

    return app


class _Around:
    """The token and the metrics, around all requests. (The middleware of Starlette takes longer than a prediction.)"""

    def __init__(self, app: Any, service: Service, token: str | None) -> None:
        self._app, self._service, self._token = app, service, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, path, status = time.perf_counter(), scope["path"], 500

        async def watch(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if _is_authorised(scope, self._token):
                await self._app(scope, receive, watch)
            else:
                await _response(_NOT_AUTHORISED)(scope, receive, watch)
        finally:
            known = path if path in _PATHS else "other"
            self._service.metrics.add(known, status, time.perf_counter() - start)


def _add_handlers(app: FastAPI) -> None:
    """Errors as problem details."""

    @app.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        return _response(error)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return _response(Problem(error.status_code, str(error.detail), f"{request.method} {request.url.path}"))

    @app.exception_handler(GigaGPError)
    async def library(request: Request, error: GigaGPError) -> Response:
        if isinstance(error, InvalidInput | InvalidParameter):
            return _response(Problem(422, "Invalid request", str(error)[:1000]))
        return _response(Problem(500, "Internal error", "the model could not answer; see the log of the service"))


_NOT_AUTHORISED = Problem(401, "Not authorised", "send the header Authorization: Bearer and the token of the service")


def _is_authorised(scope: Any, token: str | None) -> bool:
    if token is None or scope["path"] == "/health":
        return True
    given = dict(scope["headers"]).get(b"authorization", b"")
    return hmac.compare_digest(given, f"Bearer {token}".encode())


def _response(problem: Problem) -> Response:
    return JSONResponse(problem.content, problem.status, media_type=_PROBLEM)


async def _body(request: Request, limits: Limits) -> bytes:
    """The body, read only as far as it may be long."""
    buffer = io.BytesIO()
    async for part in request.stream():
        if buffer.tell() + len(part) > limits.body:
            raise Problem(413, "Body too large", f"a body may have {limits.body:,} bytes")
        buffer.write(part)
    return buffer.getvalue()


def _options(options: dict[str, Any], limits: Limits) -> tuple[list[float], bool]:
    unknown = sorted(set(options) - {"quantiles", "latent"})
    if unknown:
        raise Problem(422, "Unknown option", f"unknown entry {unknown[0][:100]!r}; allowed are quantiles and latent")
    levels, latent = options.get("quantiles", []), options.get("latent", False)
    numbers = isinstance(levels, list) and len(levels) <= limits.quantiles
    if not numbers or not all(isinstance(q, float) and 0 < q < 1 for q in levels):
        raise Problem(422, "Wrong quantiles", f"quantiles must be up to {limits.quantiles} numbers between 0 and 1")
    if not isinstance(latent, bool):
        raise Problem(422, "Wrong option", "latent must be true or false")
    return levels, latent


def _arrow(columns: dict[str, Any]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415

    table, sink = pa.table({name: np.asarray(values, float) for name, values in columns.items()}), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
