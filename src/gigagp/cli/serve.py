"""`gigagp serve`: answer predictions and updates over HTTP."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from gigagp.cli import options
from gigagp.errors import InvalidParameter

EXAMPLE = "Example: gigagp serve model --port 8000"


def command(
    model: options.Model,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    updates: Annotated[bool, typer.Option("--updates", help="Allow updates, which are kept in the folder.")] = False,
    token_from: Annotated[
        str | None, typer.Option(help="Environment variable with a token that requests must send.")
    ] = None,
    max_rows: Annotated[int, typer.Option(help="Rows of one request, at most.")] = 10_000,
    max_body: Annotated[int, typer.Option(help="Bytes of one request, at most.")] = 8 << 20,
    jobs: options.Jobs = 1,
    debug: options.Debug = False,
) -> None:
    """Serve a model over HTTP: POST /predict and /update, GET /schema, /health, /metrics and a page to try it on.

    Requests are JSON or Arrow. The service stops at Ctrl-C or SIGTERM, after the requests that it has begun. Needs the
    optional dependencies "gigagp[serve]".
    """
    try:
        import uvicorn

        from gigagp.serving import Limits, make_app
    except ImportError as error:
        raise InvalidParameter(f"serve needs FastAPI and uvicorn ({error}): pip install 'gigagp[serve]'") from None
    from gigagp.estimators.loading import load, open_for_updates

    token = None if token_from is None else os.environ.get(token_from)
    if token_from is not None and not token:
        raise InvalidParameter(f"the environment variable {token_from} has no token; set it, or leave out --token-from")
    if max_rows < 1 or max_body < 1:
        raise InvalidParameter("--max-rows and --max-body must be at least 1")
    fitted = open_for_updates(model) if updates else load(model)
    if hasattr(fitted, "classes_") or hasattr(fitted, "targets_"):
        raise InvalidParameter(f"serve is for models of one number; {model} has classes, or several targets")
    fitted.set_params(n_jobs=jobs)
    app = make_app(fitted, limits=Limits(max_body, max_rows), token=token, writable=updates)
    uvicorn.run(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=10)
