"""`gigagp grid`: predict a map."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.predict import loaded
from gigagp.cli.running import emit
from gigagp.errors import InvalidParameter

EXAMPLE = options.example(
    "gigagp datasets make robot-arm -n 2000 -o arm.parquet",
    "gigagp fit arm.parquet --target distance -o model --features joint0,joint1",
    "gigagp grid model -o map.nc --step 0.1 --range joint0=0,1",
)


def command(
    model: options.Model,
    output: Annotated[
        str, typer.Option("--output", "-o", help="File to write: .nc, .zarr or .tif.", show_default=False)
    ],
    step: Annotated[float, typer.Option(help="Distance between the values of a range.", show_default=False)],
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="A column and its range, such as lon=-10,30; repeated. [default: training rows]"),
    ] = None,
    at: Annotated[list[str] | None, typer.Option(help="A column and its value, such as depth=0; repeated.")] = None,
    quantiles: Annotated[str | None, typer.Option(help="Quantiles to predict, such as 0.05,0.95.")] = None,
    latent: Annotated[bool, typer.Option("--latent", help="Uncertainty of the function, without noise.")] = False,
    picture: Annotated[bool, typer.Option(help="Draw mean and standard deviation as a map beside the file.")] = True,
    overwrite: options.Overwrite = False,
    engine: options.OtherEngine = None,
    insecure: options.Insecure = False,
    jobs: options.Jobs = None,
    memory: options.Memory = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Predict a regular grid, and write a NetCDF, Zarr or GeoTIFF file and a picture of the map.

    Longitude and latitude, or the columns of a model that has only one or two, cover the training rows unless --range
    says otherwise; other columns need --range or --at.
    """
    columns: dict[str, Any] = {}
    for name, text in _pairs("--range", ranges):
        columns[name] = tuple(options.numbers("range", text))
    for name, text in _pairs("--at", at):
        columns[name] = _value(text)
    fitted, started = loaded(model, engine, jobs, memory), time.perf_counter()
    if not hasattr(fitted, "predict_grid"):
        raise InvalidParameter("gigagp grid is for numbers; this model predicts classes")
    with display() as progress:
        grid = fitted.predict_grid(
            step=step, quantiles=options.numbers("quantiles", quantiles), latent=latent, output=output,
            overwrite=overwrite, progress=progress, **columns,
        )  # fmt: skip
    drawn = _draw(grid, Path(output)) if picture else None
    shape = {str(name): int(size) for name, size in grid.sizes.items()}
    seconds = time.perf_counter() - started
    text = f"{output}: {' x '.join(f'{size:,} {name}' for name, size in shape.items())}, {seconds:.1f} s"
    text += f"; {drawn}" if drawn else ""
    report = {"output": output, "picture": drawn, "shape": shape, "variables": list(map(str, grid.data_vars))}
    emit(as_json, report | {"seconds": seconds}, text)


def _pairs(option: str, texts: list[str] | None) -> list[tuple[str, str]]:
    """Names and texts of name=text."""
    pairs = [(name, text) for name, equals, text in ((each.partition("=")) for each in texts or []) if name and equals]
    if len(pairs) != len(texts or []):
        raise InvalidParameter(f"{option} takes a column, =, and a value or range; got {', '.join(texts or [])}")
    return pairs


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _draw(grid: Any, output: Path) -> str | None:
    """The map of mean and standard deviation; None where the grid does not have two dimensions."""
    if len(grid.sizes) != 2:
        return None
    from matplotlib.figure import Figure

    from gigagp.plotting.grids import grid_map

    path = output.with_suffix(".png")
    drawn = [name for name in map(str, grid.data_vars) if name in ("mean", "std") or name.endswith(("_mean", "_std"))]
    figure = Figure(figsize=(7.6, 4.0 * len(drawn)), layout="constrained")
    for ax, variable in zip(figure.subplots(len(drawn)), drawn, strict=True):
        grid_map(grid, variable, ax)
    figure.savefig(path, dpi=150)
    return str(path)
