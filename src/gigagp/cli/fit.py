"""`gigagp fit`: fit a model to a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from gigagp.cli import fit_options, options
from gigagp.cli.display import display
from gigagp.cli.predict import for_numbers
from gigagp.cli.running import Interrupted, emit
from gigagp.errors import InvalidInput, InvalidParameter, choose

EXAMPLE = options.example(
    "gigagp datasets make robot-arm -n 2000 -o arm.parquet",
    "gigagp fit arm.parquet --target distance -o model --test-fraction 0.1",
)

_NOISE_BOUNDS = (1e-6, 10.0)  # the defaults of the estimator, as shares of the target's variance


def command(
    context: typer.Context,
    data: options.Data,
    target: fit_options.Target,
    output: fit_options.Output,
    task: fit_options.Task = "auto",
    features: fit_options.Features = None,
    drop: fit_options.Drop = None,
    categorical: fit_options.Categorical = None,
    missing: options.MissingOfFit = "error",
    kernel: fit_options.KernelName = "auto",
    partition: fit_options.Partition = "local",
    leaf_size: fit_options.LeafSize = None,
    levels: fit_options.Levels = None,
    branching: fit_options.Branching = None,
    sharing: fit_options.Sharing = None,
    combine: fit_options.Combine = "auto",
    experts_per_query: fit_options.ExpertsPerQuery = "auto",
    experts: fit_options.Experts = "auto",
    leaf: fit_options.Leaf = "exact",
    inducing: fit_options.Inducing = 256,
    method: fit_options.Method = "auto",
    neighbours: fit_options.Neighbours = "auto",
    exact_neighbours: fit_options.ExactNeighbours = False,
    calibrate: fit_options.Calibrate = True,
    training: fit_options.Training = "auto",
    noise: fit_options.Noise = None,
    weight_column: options.WeightColumn = None,
    noise_column: options.NoiseColumn = None,
    learn_noise: fit_options.LearnNoise = True,
    noise_model: fit_options.NoiseModel = "constant",
    mean: fit_options.Mean = "constant",
    likelihood: fit_options.LikelihoodName = "auto",
    targets: fit_options.Targets = "auto",
    restarts: fit_options.Restarts = 0,
    standardize: fit_options.Standardize = True,
    sphere: fit_options.Sphere = "auto",
    warp: fit_options.Warp = "auto",
    directions: fit_options.Directions = True,
    engine: options.Engine = "threads",
    insecure: options.Insecure = False,
    jobs: options.Jobs = None,
    dtype: fit_options.Dtype = "float64",
    memory: options.Memory = None,
    store: fit_options.Store = None,
    checkpoint: fit_options.Checkpoint = None,
    seed: options.Seed = 0,
    test_fraction: fit_options.TestFraction = None,
    overwrite: options.Overwrite = False, as_json: options.Json = False, debug: options.Debug = False,
) -> None:  # fmt: skip
    """Fit a model to a file, and save it in a folder."""
    settings = {"standardize": standardize, "likelihood": likelihood, "calibrate": calibrate, "neighbours": neighbours,
        "n_restarts": restarts, "noise_bounds": noise, "partition": partition, "branching": branching, "memory": memory,
        "sharing": sharing, "targets": targets, "experts": experts, "kernel": kernel, "method": method, "dtype": dtype,
        "levels": levels, "sphere": sphere, "engine": engine, "n_jobs": jobs, "mean": mean, "leaf": leaf, "warp": warp,
        "leaf_size": leaf_size, "combine": combine, "training": training, "inducing": inducing, "random_state": seed,
        "experts_per_query": experts_per_query, "exact_neighbours": exact_neighbours, "noise": noise_model,
        "directions": directions}  # fmt: skip
    reading = _reading(features, drop, categorical, missing, weight_column, noise_column, learn_noise)
    with _interruptible(checkpoint, context):
        _fit(data, target, output, task, settings, reading, store, checkpoint, test_fraction, overwrite, as_json)


@contextmanager
def _interruptible(checkpoint: str | None, context: typer.Context) -> Iterator[None]:
    """Say what an interruption leaves."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(_what_is_left(checkpoint, str(context.obj))) from None


def _reading(
    features: list[str] | None, drop: list[str] | None, categorical: list[str] | None, missing: str,
    weight_column: str | None, noise_column: str | None, learn_noise: bool,
) -> dict[str, Any]:  # fmt: skip
    """What is read of the data, as `HGPRegressor.fit` takes it."""
    names = {"drop": options.names(drop), "categorical": options.names(categorical)}
    noise = {"sample_weight": weight_column, "noise_std": noise_column, "learn_noise": learn_noise}
    return {**names, "features": options.names(features) or None, "missing": missing, **noise}


def _fit(
    data: str, targets: list[str], output: str, task: str, settings: dict[str, Any], reading: dict[str, Any],
    store: str | None, checkpoint: str | None, test_fraction: float | None, overwrite: bool, as_json: bool,
) -> None:  # fmt: skip
    """Fit, save, score the held-out rows and print the result."""
    from gigagp.data.sources import Share
    from gigagp.model.saving import check_destination

    target = options.target(targets) or ""
    check_destination(output, overwrite)
    if test_fraction is not None and not 0 < test_fraction < 1:
        raise InvalidParameter(f"--test-fraction must be between 0 and 1, both excluded; got {test_fraction:g}")
    test_rows = None if test_fraction is None else Share(test_fraction, settings["random_state"])
    settings["missing"] = reading.pop("missing")  # a setting of the estimator: later updates use it too
    parsers = {
        "kernel": lambda name: None if name == "auto" else name, "experts_per_query": _experts_per_query,
        "neighbours": _neighbours, "noise_bounds": _noise_bounds, "sphere": _sphere,
    }  # fmt: skip
    model = _estimator(data, target, task, settings | {name: parse(settings[name]) for name, parse in parsers.items()})
    noise, learn_noise, scores = {"noise_std": reading.pop("noise_std")}, reading.pop("learn_noise"), None
    if for_numbers(model, noise):
        reading |= {**noise, "learn_noise": learn_noise}
    with display() as progress:
        model.fit(
            data, target, **reading, store=store, checkpoint=checkpoint, share=test_rows and test_rows.others,
            progress=progress,
        )  # fmt: skip
        model.save(output, overwrite=overwrite)
        if test_rows is not None:
            try:
                gaps = "drop" if settings["missing"] == "model" else settings["missing"]  # rows without target
                same = {"missing": gaps, **for_numbers(model, noise)}
                if same.keys() >= noise.keys():
                    same["sample_weight"] = reading["sample_weight"]
                scores = model.evaluate(data, target, **same, share=test_rows, progress=progress)
            except InvalidInput as error:
                raise InvalidInput(f"{error}; the model is saved in {output}") from error
    _report(model, output, checkpoint, scores, as_json)


def _estimator(data: str, target: str | list[str], task: str, settings: dict[str, Any]) -> Any:
    """A regressor or a classifier; "auto" guesses from the type of the target's column, and says so."""
    from gigagp.data.sources.opening import open_source
    from gigagp.estimators.classifier import HGPClassifier
    from gigagp.estimators.regressor import HGPRegressor

    choose("--task", task, dict.fromkeys(("auto", "regress", "classify")))
    if isinstance(target, list) and task == "classify":
        raise InvalidParameter(f"--task classify predicts one target; got {', '.join(target)}")
    if isinstance(target, list):
        task = "regress"
    settings["warp"] = choose("--warp", settings["warp"], {"auto": "auto", "yes": True, "no": False})
    if task == "auto":
        source = open_source(data)
        kind = source.columns[source.find(target, "target")].kind
        if kind not in ("text", "boolean"):
            task = "regress"
        else:
            task = "classify"
            warnings.warn(
                f"the target {target!r} is {'text' if kind == 'text' else 'true or false'}, so its values are classes "
                "(--task classify)", UserWarning, stacklevel=1,
            )  # fmt: skip
    if task == "regress":
        return HGPRegressor(**settings)
    defaults = HGPRegressor().get_params(deep=False)
    own = HGPClassifier().get_params(deep=False)
    unusable = [name for name in settings if name not in own and settings[name] != defaults[name]]
    if unusable:
        raise InvalidParameter(f"--{unusable[0].replace('_', '-')} is for numbers; --task classify does not have it")
    return HGPClassifier(**{name: value for name, value in settings.items() if name in own})


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


def _sphere(text: str) -> tuple[str, ...] | str | None:
    """Two names separated by a comma; auto or none."""
    if text in ("auto", "none"):
        return None if text == "none" else text
    columns = tuple(options.names([text]))
    if len(columns) != 2:
        raise InvalidParameter(f"--sphere must be auto, none, or two columns such as lon,lat; got {text}")
    return columns


def _noise_bounds(text: str | None) -> tuple[float, float]:
    """One number fixes the noise, two are its bounds."""
    bounds = options.numbers("noise", text) or list(_NOISE_BOUNDS)
    if len(bounds) > 2:
        raise InvalidParameter(f"--noise takes one number, or two numbers separated by a comma; got {text}")
    return bounds[0], bounds[-1]


def _what_is_left(checkpoint: str | None, typed: str) -> str:
    if checkpoint is None:
        return (
            "interrupted; nothing was saved. With --checkpoint FOLDER progress is saved, and the same command continues"
        )
    return f"interrupted; progress is kept in {checkpoint}. To continue:\n  {typed}"


def _report(model: Any, output: str, checkpoint: str | None, scores: Any, as_json: bool) -> None:
    """Print what was fitted; of several targets one after the other."""
    finished = [] if checkpoint is None else [f"{checkpoint} is no longer needed and may be deleted"]
    targets = getattr(model, "target_names_", None)
    if targets is None:
        data, lines = _described(model, output, scores)
        emit(as_json, {**data, "checkpoint": checkpoint}, "\n".join([*lines, *finished]))
        return
    parts = {name: _described(model.target(name), f"{output}, {name}", scores and scores[name]) for name in targets}
    content = {"model": output, "targets": {name: data for name, (data, _) in parts.items()}}
    lines = [line for _, own in parts.values() for line in own]
    emit(as_json, {**content, "checkpoint": checkpoint}, "\n".join([*lines, *finished]))


def _described(model: Any, name: str, scores: Any) -> tuple[dict[str, Any], list[str]]:
    """A model of one target as plain values, and as lines of text."""
    from gigagp.cli import descriptions

    report = model.report_
    data = {
        "model": name,
        "rows": report.rows,
        "dropped": report.dropped,
        "copies": report.copies,
        "experts": report.leaves,
        "evidence_per_point": report.stages[-1].evidence_per_point if report.stages else None,
        "iterations": report.iterations,
        "evaluations": report.evaluations,
        "converged": report.converged,
        "message": report.message,
        "seconds": report.seconds,
        "parameters": descriptions.parameters(model),
        "warnings": descriptions.warnings_of(model),
        "looks_like": report.looks_like or None,
        "held_out": None if scores is None else descriptions.scores(scores),
    }
    dropped = f" ({report.dropped:,} dropped)" if report.dropped else ""
    dropped += f" (and {report.copies:,} copies of them)" if report.copies else ""
    spent = sum(report.seconds.values())
    lines = [f"{name}: {report.rows:,} rows{dropped}, {report.leaves:,} experts, {spent:.1f} s"]
    if report.suggestion:
        lines.append(report.suggestion)
    if scores is not None:
        lines += [f"{scores.rows:,} held-out rows:", descriptions.scores_text(scores)]
    return data, lines
