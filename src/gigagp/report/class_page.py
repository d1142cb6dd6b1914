"""The page about a model of classes, section by section."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gigagp import plotting
from gigagp.data.sources.times import is_date
from gigagp.estimators.classifier import HGPClassifier
from gigagp.markup import Html, join, table, tag
from gigagp.model.class_evaluation import ClassEvaluation
from gigagp.plotting.influence import influential_columns
from gigagp.plotting.rows import TYPICAL, training_rows
from gigagp.plotting.style import shortened
from gigagp.report import sections
from gigagp.report.advice import Advice
from gigagp.report.class_scoring import ClassScore, ClassScoreCollector
from gigagp.report.scoring import SAMPLE
from gigagp.report.svg import figure

_WORST_LEAVES = 10  # leaves that are listed
_MIN_ROWS_OF_LEAF = 5  # scored rows that a listed leaf must have
_MAX_CLASSES = 20  # of the tables of classes


@dataclass(frozen=True, eq=False)
class ClassReportContent:
    """A model of classes, its scores on rows with known classes, and advice to the reader."""

    model: HGPClassifier
    title: str
    scores: ClassScoreCollector
    source: str  # which rows were scored
    remark: str  # how these rows were predicted
    evaluation: ClassEvaluation | None  # None where held-out training rows were scored
    advice: Sequence[Advice]

    @property
    def labels(self) -> list[str]:
        return [str(label) for label in self.model.classes_.tolist()]


def render_classes(content: ClassReportContent) -> str:
    """The whole page as one self-contained HTML document."""
    evaluation = content.evaluation
    predicted = None if evaluation is None else (evaluation.rows, evaluation.seconds)
    parts = [
        ("summary", "Summary", _summary(content)),
        ("warnings", "Warnings", sections.warnings(content.advice, "probabilities")),
        ("predictions", "Predictions", _predictions(content)),
        ("classes", "Classes", _classes(content)),
        ("regions", "Regions", _regions(content)),
        ("data", "Data", _data(content)),
        ("model", "Model", _model(content.model)),
        ("training", "Training", sections.training(content.model.report_, "mean log loss", predicted)),
    ]
    return sections.document(content.title, sections.subtitle(content.model), parts)


def _summary(content: ClassReportContent) -> Html:
    scores, report = content.scores, content.model.report_
    whole = scores.all_rows()
    numbers = [
        (f"{report.rows:,}", "training rows"),
        (f"{len(content.labels):,}", "classes"),
        (f"{whole.log_loss:.4g}", f"log loss ({scores.base_log_loss:.4g} if the shares of the classes were predicted)"),
        (f"{whole.accuracy:.1%}", "of the most probable labels are right"),
        (f"{scores.bins.error:.2%}", "expected calibration error"),
        (f"{sum(report.seconds.values()):.1f} s", "to fit"),
    ]
    if scores.auc is not None:
        numbers.insert(4, (f"{scores.auc:.4f}", "area under the ROC curve"))
    return join([sections.cards(numbers), sections.quiet(f"Scores of {content.source}.{content.remark}")])


def _predictions(content: ClassReportContent) -> Html:
    scores = content.scores
    sampled = f" The figures show a random sample of {SAMPLE:,} rows." if scores.rows > SAMPLE else ""
    return join(
        [
            sections.quiet(f"Predictions of {content.source}.{sampled}"),
            sections.pictures(_prediction_figures(content)),
        ]
    )


def _prediction_figures(content: ClassReportContent) -> Iterator[Html]:
    model = content.model
    _, codes, p = content.scores.sample()
    two = p.shape[1] == 2
    confidence, right = (p[:, 1], codes == 1) if two else (p.max(axis=1), p.argmax(axis=1) == codes)
    what = f"the class {shortened(content.labels[1])}" if two else "the most probable class"
    yield figure(
        "calibration", lambda ax: plotting.class_calibration(confidence, right, ax), 4.4, 4.2,
        f"How often {what} is right, among rows for which it was predicted with a certain probability. Calibrated "
        "probabilities lie near the dashed line.",
    )  # fmt: skip
    yield figure(
        "confidence", lambda ax: plotting.class_confidence(confidence, right, ax), 5.2, 4.2,
        f"Predicted probabilities of {what}, for rows of this class and for others."
        if two
        else "Probabilities of the most probable class, where it is right and where it is wrong.",
    )  # fmt: skip
    if model.n_features_in_ > 1:
        yield figure(
            "map", lambda ax: plotting.class_map(model, ax=ax), 5.2, 4.2,
            "Predicted probabilities over the two most relevant columns. "
            + ("The line is where both classes are equally probable." if two else "Lines are where classes meet."),
        )  # fmt: skip


def _classes(content: ClassReportContent) -> Html:
    scores, labels = content.scores, content.labels
    counts, guesses, right = scores.counts, scores.confusion.sum(axis=0), np.diag(scores.confusion)
    shown = np.argsort(-counts, kind="stable")[:_MAX_CLASSES]
    shown = np.sort(shown)
    rows = [
        [
            labels[k], f"{counts[k]:,.0f}", _share(counts[k], scores.rows), _share(scores.predicted[k], scores.rows),
            _share(right[k], counts[k]), _share(right[k], guesses[k]),
            f"{scores.losses[k] / counts[k]:.4g}" if counts[k] else "",
        ]
        for k in shown.tolist()
    ]  # fmt: skip
    head = ["class", "rows", "share", "mean probability", "recall", "precision", "log loss of its rows"]
    matrix = [[labels[i], *(f"{scores.confusion[i, j]:,.0f}" for j in shown.tolist())] for i in shown.tolist()]
    fewer = f" The {len(shown)} largest of {len(labels):,} classes are listed." if len(shown) < len(labels) else ""
    return join(
        [
            sections.quiet(f"Recall and precision are those of the most probable label.{fewer}"),
            sections.wide(table(head, rows)),
            tag("h3", "Rows of each class (lines), by their most probable label (columns)"),
            sections.wide(table(["", *(shortened(labels[k]) for k in shown.tolist())], matrix, class_="tight")),
        ]
    )


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _regions(content: ClassReportContent) -> Html:
    scores, model = content.scores, content.model
    parts = [
        sections.quiet(
            "A region is a subtree: a group of neighbouring leaves. Means of columns are those of the scored rows."
        ),
        _score_table("region", scores.by_region(), model),
    ]
    worst = scores.worst_leaves(_WORST_LEAVES, _MIN_ROWS_OF_LEAF)
    if worst:
        parts += [
            tag("h3", "Worst leaves", id="worst"),
            sections.quiet(
                "Leaves whose scored rows have the highest log loss; means of columns are those of their training rows."
            ),
            _score_table("leaf", worst, model),
        ]
    return join(parts)


def _score_table(kind: str, scores: Sequence[ClassScore], model: HGPClassifier) -> Html:
    columns, units = influential_columns(model, 3), model.units_
    head = [kind, "rows", *(f"mean {shortened(units.columns[d])}" for d in columns), "log loss", "accuracy"]
    rows = [
        [
            s.name, f"{s.rows:,}",
            *(units.text(d, s.centre[d]) if is_date(units.kind(d)) else f"{s.centre[d]:.4g}" for d in columns),
            f"{s.log_loss:.4g}", f"{s.accuracy:.1%}",
        ]
        for s in scores
    ]  # fmt: skip
    return sections.wide(table(head, rows, class_="tight"))


def _data(content: ClassReportContent) -> Html:
    model, inputs = content.model, content.scores.inputs
    assert inputs is not None
    sample = training_rows(model, TYPICAL)
    rows = [
        [name, *sections.statistics(model.units_, d, np.array([*sample.X[:, d], inputs.low[d], inputs.high[d]]))]
        for d, name in enumerate(model.units_.columns)
    ]
    return sections.data(model, rows, len(sample.y))


def _model(model: HGPClassifier) -> Html:
    near, classes = model.predictor_.neighbourhood, model.model_.classes
    assert near is not None
    assert classes is not None
    shares = ", ".join(
        f"{label} {share:.1%}" for label, share in list(zip(classes.labels, classes.classes.shares, strict=True))[:5]
    )
    more = ", ..." if len(classes.labels) > 5 else ""
    about = [
        ["predicts", f"the probability of each of {len(classes.labels):,} classes of {model.units_.target}"],
        ["kernel of the latent functions", model.units_.description(model.kernel_)],
        ["tree", sections.tree_text(model)],
        ["experts", sections.experts_text(model.report_)],
        ["a query is predicted", f"by Laplace's approximation on the {near.count:,} training rows nearest to it"],
        ["far from all training rows", f"the shares of the classes: {shares}{more}"],
        ["settings", sections.settings(model)],
    ]
    return sections.model_section(model, about, model.units_.parameters(model.kernel_, model.noise_variance_)[:-1])
