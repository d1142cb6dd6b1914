"""`gigagp fit`: a model from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.running import Interrupted, emit
from gigagp.errors import InvalidInput, InvalidParameter, choose

if TYPE_CHECKING:
    from gigagp import HGPRegressor
    from gigagp.kernels import Kernel

EXAMPLE = options.example(
    "gigagp datasets make robot-arm -n 2000 -o arm.parquet",
    "gigagp fit arm.parquet --target distance -o model --test-fraction 0.1",
)

_KERNELS = {
    "squared-exponential": "SquaredExponential",
    "matern12": "Matern12",
    "matern32": "Matern32",
    "matern52": "Matern52",
    "rational-quadratic": "RationalQuadratic",
    "periodic": "Periodic",
    "linear": "Linear",
    "constant": "Constant",
}


_NOISE = (1e-6, 10.0)  # the model's own bounds


def command(
    context: typer.Context,
    data: options.Data,
    target: Annotated[str, typer.Option("--target", "-t", help="Column to be predicted.", show_default=False)],
    output: Annotated[
        str, typer.Option("--output", "-o", help="Folder in which the model is put.", show_default=False)
    ],
    features: Annotated[
        list[str] | None, typer.Option(help="Columns to learn from: a,b or repeated. [default: all others]")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Columns to leave out: a,b or repeated.")] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(help="Columns that become one 0/1 column a category: a,b or repeated.")
    ] = None,
    missing: options.Missing = "error",
    kernel: Annotated[
        str,
        typer.Option(
            help=f"auto: the one that best predicts held-out rows; {', '.join(_KERNELS)}; "
            "or of these with + and *, such as matern52+linear."
        ),
    ] = "auto",
    partition: Annotated[str, typer.Option(help="local, stratified or random: how rows are divided.")] = "local",
    leaf_size: Annotated[
        int | None, typer.Option(help="Points of an expert. [default: 256 for local, 512 for others]")
    ] = None,
    levels: Annotated[
        int | None, typer.Option(help="Instead of --leaf-size: the levels of the tree.", show_default=False)
    ] = None,
    branching: Annotated[
        int | None, typer.Option(help="With --levels: the children of a node. [default: 4]", show_default=False)
    ] = None,
    sharing: Annotated[
        float | None, typer.Option(help="How many experts read a row. [default: chosen for local, 1 for others]")
    ] = None,
    combine: Annotated[
        str, typer.Option(help="auto, healed_blend, blend, healed, gpoe, poe, bcm, rbcm, grbcm, barycentre or npae.")
    ] = "auto",
    experts_per_query: Annotated[
        str, typer.Option(help="How many experts answer a query: auto, all, or a number.")
    ] = "auto",
    experts: Annotated[
        str, typer.Option(help="gaussian: the same variances for all; student: a scale for each; or auto.")
    ] = "auto",
    method: Annotated[
        str,
        typer.Option(help="How a query is answered: by its neighbourhood, by the committee of experts, or auto."),
    ] = "auto",
    neighbours: Annotated[str, typer.Option(help="Training rows that answer a query: auto or a number.")] = "auto",
    exact_neighbours: Annotated[
        bool, typer.Option(help="Search until the nearest rows are found for certain.")
    ] = False,
    calibrate: Annotated[bool, typer.Option(help="Learn the distribution of errors from held-out rows.")] = True,
    training: Annotated[
        str, typer.Option(help="full: all experts at every step; progressive: growing batches; or auto.")
    ] = "auto",
    noise: Annotated[
        str | None,
        typer.Option(
            help="Noise variance as a share of the target's: 0.01 fixes it, 1e-6,10 bounds it. [default: 1e-6,10]"
        ),
    ] = None,
    restarts: Annotated[int, typer.Option(help="Further starting points tried in training.")] = 0,
    standardize: Annotated[bool, typer.Option(help="Scale inputs and target to mean 0 and deviation 1 inside.")] = True,
    engine: options.Engine = "threads",
    jobs: options.Jobs = None,
    dtype: Annotated[str, typer.Option(help="float64 or float32: precision of the experts.")] = "float64",
    memory: options.Memory = None,
    store: Annotated[
        str | None, typer.Option(help="Folder for sorted rows that exceed the memory. [default: a temporary one]")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Folder in which progress is kept: the same command goes on after Ctrl-C.")
    ] = None,
    seed: options.Seed = 0,
    test_fraction: Annotated[
        float | None, typer.Option(help="Share of the rows that is not trained on, and evaluated at the end.")
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Fit a model to a file, and save it in a folder."""
    from gigagp.data.sources import Share
    from gigagp.estimators.regressor import HGPRegressor
    from gigagp.model.persistence import check_destination

    check_destination(output, overwrite)
    held_out = None if test_fraction is None else Share(test_fraction, seed)
    model = HGPRegressor(
        _kernel(kernel), partition=partition, leaf_size=leaf_size, levels=levels, branching=branching, sharing=sharing,
        combine=combine, experts_per_query=_experts_per_query(experts_per_query), experts=experts,
        method=method, neighbours=_neighbours(neighbours), exact_neighbours=exact_neighbours,
        calibrate=calibrate, training=training,
        noise_bounds=_noise_bounds(noise), n_restarts=restarts, standardize=standardize, engine=engine, n_jobs=jobs,
        dtype=dtype, memory=memory, random_state=seed,
    )  # fmt: skip
    scores = None
    try:
        with display() as progress:
            model.fit(
                data, target, features=options.names(features) or None, drop=options.names(drop),
                categorical=options.names(categorical), missing=missing, store=store, checkpoint=checkpoint,
                share=held_out and held_out.others, progress=progress,
            )  # fmt: skip
            model.save(output, overwrite=overwrite)
            if held_out is not None:
                try:
                    scores = model.evaluate(data, target, missing=missing, share=held_out, progress=progress)
                except InvalidInput as error:
                    raise InvalidInput(f"{error}; the model is saved in {output}") from error
    except KeyboardInterrupt:
        raise Interrupted(_what_is_left(checkpoint, str(context.obj))) from None
    _report(model, output, checkpoint, scores, as_json)


def _kernel(text: str) -> Kernel | None:
    """The kernel of that name, or sums of products of such."""
    from gigagp import kernels

    if text == "auto":
        return None
    total: Any = None
    for term in text.split("+"):
        product: Any = None
        for name in term.split("*"):
            made = getattr(kernels, choose("--kernel", name.strip(), _KERNELS))()
            product = made if product is None else product * made
        total = product if total is None else total + product
    result: Kernel = total
    return result


def _neighbours(text: str) -> int | str:
    if text != "auto" and not text.isdecimal():
        raise InvalidParameter(f"--neighbours must be auto or a whole number; got {text}")
    return int(text) if text.isdecimal() else text


def _experts_per_query(text: str) -> int | str | None:
    if text.isdecimal():
        return int(text)
    if text not in ("auto", "all"):
        raise InvalidParameter(f"--experts-per-query must be auto, all or a whole number; got {text}")
    return None if text == "all" else text


def _noise_bounds(text: str | None) -> tuple[float, float]:
    """One number fixes the noise, two are its bounds."""
    given = options.numbers("noise", text) or list(_NOISE)
    if len(given) > 2:
        raise InvalidParameter(f"--noise takes a number, or two separated by a comma; got {text}")
    return given[0], given[-1]


def _what_is_left(checkpoint: str | None, typed: str) -> str:
    if checkpoint is None:
        return (
            "interrupted; nothing is kept. With --checkpoint FOLDER what is done survives, and the same command goes on"
        )
    return f"interrupted; what is done is kept in {checkpoint}. To go on:\n  {typed}"


def _report(model: HGPRegressor, output: str, checkpoint: str | None, scores: Any, as_json: bool) -> None:
    from gigagp.cli import describing

    report = model.report_
    data = {
        "model": output,
        "rows": report.rows,
        "dropped": report.dropped,
        "experts": report.leaves,
        "evidence_per_point": report.stages[-1].evidence_per_point if report.stages else None,
        "iterations": report.iterations,
        "evaluations": report.evaluations,
        "converged": report.converged,
        "message": report.message,
        "seconds": report.seconds,
        "parameters": describing.parameters(model),
        "warnings": describing.warnings_of(model),
        "held_out": None if scores is None else describing.scores(scores),
        "checkpoint": checkpoint,
    }
    dropped = f", {report.dropped:,} dropped" if report.dropped else ""
    spent = sum(report.seconds.values())
    lines = [f"{output}: {report.rows:,} rows{dropped}, {report.leaves:,} experts, {spent:.1f} s"]
    if scores is not None:
        lines += [f"held out, {scores.rows:,} rows:", describing.scores_text(scores)]
    if checkpoint is not None:
        lines.append(f"{checkpoint} is no longer needed, and may be removed")
    emit(as_json, data, "\n".join(lines))
