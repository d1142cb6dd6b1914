"""`gigagp inspect`: describe a fitted model."""

from __future__ import annotations

from typing import Any

from gigagp.cli import options
from gigagp.cli.running import emit, table

EXAMPLE = options.example(
    "gigagp datasets make robot-arm -n 2000 -o arm.parquet",
    "gigagp fit arm.parquet --target distance -o model",
    "gigagp inspect model",
)


def command(model: options.Model, as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Describe a fitted model.

    Shows the tree, the parameters in the units of your columns, timing, settings and warnings.
    """
    from gigagp.estimators.loading import load

    fitted = load(model, verify=False)
    targets = getattr(fitted, "target_names_", None)
    if targets is None:
        emit(as_json, *_described(fitted, model))
        return
    parts = {name: _described(fitted.target(name), model) for name in targets}
    content = {"model": model, "targets": {name: data for name, (data, _) in parts.items()}}
    emit(as_json, content, "\n\n".join(text for _, text in parts.values()))


def _described(fitted: Any, model: str) -> tuple[dict[str, Any], str]:
    """A model of one target as plain values, and as text."""
    from gigagp.cli import descriptions

    report, tree = fitted.report_, fitted.tree_
    settings = {name: _plain(value) for name, value in fitted.get_params(deep=False).items()}
    data: dict[str, Any] = {
        "model": model,
        "target": descriptions.target_name(fitted),
        "features": descriptions.column_names(fitted),
        "rows": report.rows,
        "dropped": report.dropped,
        "copies": report.copies,
        "tree": [tree.width(depth) for depth in range(tree.depth + 1)],
        "experts": report.leaves,
        "points_per_leaf": report.points_per_leaf,
        "points_per_expert": report.points_per_expert,
        "parameters": descriptions.parameters(fitted),
        "stages": [vars(stage) for stage in report.stages],
        "converged": report.converged,
        "message": report.message,
        "jitter": report.jitter,
        "seconds": report.seconds,
        "settings": settings,
        "warnings": descriptions.warnings_of(fitted),
    }
    return data, _text(data, descriptions.parameters_text(fitted))


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool | tuple | list) else repr(value)


def _text(data: dict[str, Any], parameters: str) -> str:
    from gigagp.model.fit_report import span

    dropped = f" ({data['dropped']:,} dropped)" if data["dropped"] else ""
    stages = [
        [
            s["name"], f"{s['experts']:,}", f"{s['points']:,}", str(s["iterations"]), str(s["evaluations"]),
            f"{s['evidence_per_point']:.4f}",
        ]
        for s in data["stages"]
    ]  # fmt: skip
    head = ["stage", "experts", "points", "iterations", "evaluations", "evidence/point"]
    lines = [
        f"{data['model']}: {data['target']} from {', '.join(data['features'])}; {data['rows']:,} rows{dropped}",
        f"tree: {' -> '.join(f'{width:,}' for width in data['tree'])} leaves of {span(data['points_per_leaf'])} points"
        f"; experts predict from {span(data['points_per_expert'])}",
        "",
        parameters,
        "",
        table(head, stages) if stages else "nothing was trained",
        f"{'converged' if data['converged'] else 'not converged'}: {data['message']}",
        "seconds: " + ", ".join(f"{name} {spent:.2f}" for name, spent in data["seconds"].items()),
        "",
        "settings: " + ", ".join(f"{name}={value}" for name, value in data["settings"].items()),
        *(f"warning: {warning}" for warning in data["warnings"]),
    ]
    return "\n".join(lines)
