"""Pictures show what they say: values drawn are those of the model, names are the user's, sizes are bounded."""

from copy import copy
from functools import cache

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

mpl.use("Agg")
import matplotlib.pyplot as plt

from gigagp import HGPClassifier, HGPRegressor, InvalidParameter, kernels, metrics, plotting
from gigagp.plotting import rows, style
from gigagp.plotting.cells import _colours
from gigagp.tree import Tree, divide

pytestmark = pytest.mark.filterwarnings("ignore:.*bound")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model(wave):
    """Of a table: the second column matters, and is the longer name."""
    X, y = wave
    table = pa.table({"a": X[:, 0], "b<&>$": X[:, 1], "y": y})
    return HGPRegressor(leaf_size=60, method="neighbourhood", random_state=0).fit(table, "y")


@pytest.fixture(scope="module")
def line():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (300, 1))
    return HGPRegressor(leaf_size=100, random_state=0).fit(x, np.sin(x[:, 0]) + 0.1 * rng.standard_normal(300))


@pytest.fixture(scope="module")
def random(wave):
    return HGPRegressor(kernels.Linear(), partition="random", leaf_size=200, random_state=0).fit(*wave)


def note_of(ax):
    return ax.get_title(loc="right")


def drawn(ax):
    """Everything is drawn, names of any kind and all."""
    ax.figure.canvas.draw()
    return ax


@cache
def classifier(classes):
    """A model of classes of two columns, whose theta is fixed."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    kernel = kernels.Matern32(4.0, [1.0, 1.0], variance_bounds=(4.0, 4.0), lengthscale_bounds=(1.0, 1.0))
    return HGPClassifier(kernel, random_state=0).fit(X, np.digitize(X[:, 0], [0.0, 1.0][: classes - 1]))


def pictures(model, line):
    rng = np.random.default_rng(0)
    z = rng.standard_normal(200)
    pit, X = rng.uniform(size=200), rng.uniform(size=(200, 2))
    points = [plotting.LearningPoint(n, 1 / n, -np.log(n), n / 10) for n in (100, 200)]
    return {
        "band": lambda ax: plotting.band(np.arange(3.0), np.ones(3), np.zeros(3), np.full(3, 2.0), "interval", ax),
        "predictive_band": lambda ax: plotting.predictive_band(model, ax=ax),
        "predictive_band of one column": lambda ax: plotting.predictive_band(line, ax=ax),
        "predictive_map": lambda ax: plotting.predictive_map(model, ax=ax),
        "calibration_curve": lambda ax: plotting.calibration_curve(pit, ax=ax),
        "pit_histogram": lambda ax: plotting.pit_histogram(pit, ax=ax),
        "predicted_against_true": lambda ax: plotting.predicted_against_true(z, z, ax=ax),
        "residuals_along": lambda ax: plotting.residuals_along(X[:, 0], z, ax=ax),
        "residual_map": lambda ax: plotting.residual_map(X, z, ax=ax),
        "noise_along": lambda ax: plotting.noise_along(model, ax=ax),
        "class_calibration": lambda ax: plotting.class_calibration(pit, rng.random(200) < pit, ax=ax),
        "class_confidence": lambda ax: plotting.class_confidence(pit, rng.random(200) < pit, ax=ax),
        "class_map of two": lambda ax: plotting.class_map(classifier(2), ax=ax),
        "class_map of three": lambda ax: plotting.class_map(classifier(3), ax=ax),
        "relevance": lambda ax: plotting.relevance(model, ax=ax),
        "influence": lambda ax: plotting.influence(model, ax=ax),
        "evidence_trace": lambda ax: plotting.evidence_trace(model.report_, ax=ax),
        "partition_map": lambda ax: plotting.partition_map(model, ax=ax),
        "partition_map of a query": lambda ax: plotting.partition_map(model, [0.0, 0.0], ax=ax),
        "tree_of_workers": lambda ax: plotting.tree_of_workers(model.tree_, 3, ax=ax),
        "learning_curve": lambda ax: plotting.learning_curve(points, ax=ax),
    }


@pytest.mark.slow
def test_each_picture_draws_into_the_axes_given_or_into_a_new_figure_within_its_edges(model, line):
    made = pictures(model, line)
    functions = {name.partition(" ")[0] for name in made}
    others = {"LearningPoint", "learning_points", "influences"}  # these draw nothing
    others |= {"grid_map", "levels", "prequential_curve"}  # tested with grids, categories and updates
    assert functions == set(plotting.__all__) - others
    for name, draw in made.items():
        ax = Figure().add_subplot()
        assert draw(ax) is ax, name
        alone = drawn(draw(None))
        assert alone.figure is not ax.figure, name
        assert alone.get_xlabel() or name in ("band", "tree_of_workers"), name
        box, page = alone.figure.get_tightbbox(), alone.figure.get_size_inches()
        assert box.x0 > -0.02, name
        assert box.y0 > -0.02, name
        assert box.x1 < page[0] + 0.02, name
        assert box.y1 < page[1] + 0.02, name
        plt.close(alone.figure)


def test_the_band_is_the_models_prediction(model):
    ax = plotting.predictive_band(model, "a", at=[9.0, 0.5], level=0.8, between=(-1.0, 1.0))
    (mean,) = ax.lines
    x = mean.get_xdata()
    queries = pa.table({"a": x, "b<&>$": np.full(len(x), 0.5)})
    assert mean.get_ydata() == pytest.approx(model.predict(queries))
    low, high = model.predict_quantiles(queries, [0.1, 0.9]).T
    outline = ax.collections[0].get_paths()[0].vertices
    assert outline[:, 1].min() == pytest.approx(low.min())
    assert outline[:, 1].max() == pytest.approx(high.max())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "y")
    assert "80%" in ax.get_legend().get_texts()[0].get_text()
    ax.get_figure(root=True).draw_without_rendering()
    assert ax.get_legend().get_window_extent().y1 < ax.get_window_extent().y0  # it must not cover the band


@pytest.mark.parametrize("show", ["mean", "std"])
def test_the_map_is_the_models_prediction(model, show):
    ax = plotting.predictive_map(model, ("b<&>$", "a"), show=show)
    values = ax.images[0].get_array()
    left, right, bottom, top = ax.images[0].get_extent()
    corner = pa.table({"b<&>$": [right], "a": [bottom]})
    mean, std = model.predict(corner, return_std=True)
    assert values[0, -1] == pytest.approx((mean if show == "mean" else std)[0])
    assert (left < right, bottom < top) == (True, True)
    assert ax.get_xlabel() == r"b<&>\$"


def test_columns_by_name_or_number(model, line):
    assert rows.column_number(model, "a") == rows.column_number(model, 0) == 0
    for wrong in ("c", 2, -1):
        with pytest.raises(InvalidParameter, match="must be one of a, "):
            plotting.predictive_band(model, wrong)
    for needs_two in (plotting.predictive_map, plotting.partition_map):
        with pytest.raises(InvalidParameter, match="two columns"):
            needs_two(line)
    with pytest.raises(InvalidParameter, match="'mean', 'std'"):
        plotting.predictive_map(model, show="variance")


def test_training_rows_are_rows_of_the_data_and_of_their_leaf(model, wave):
    X, y = wave
    some = rows.training_rows(model, 100)
    assert len(some.y) == 100
    for x, target, leaf in zip(some.X, some.y, some.leaf, strict=True):
        (row,) = np.flatnonzero(np.isclose(X, x).all(axis=1))
        assert y[row] == pytest.approx(target)
        inside = rows.unscaled_inputs(model, model.model_.store.gather(model.model_.cells[int(leaf)])[0])
        assert np.isclose(inside, x).all(axis=1).any()
    assert len(rows.training_rows(model, 10**6).y) == 600


def test_the_calibration_curve_is_the_coverage():
    rng = np.random.default_rng(1)
    y, mean, std = rng.standard_normal(500), np.zeros(500), np.full(500, 0.7)
    curve = plotting.calibration_curve(metrics.pit(y, mean, std)).lines[1]
    for level in (0.5, 0.8, 0.95):
        place = np.argmin(np.abs(curve.get_xdata() - level))
        assert curve.get_ydata()[place] == pytest.approx(metrics.coverage(y, mean, std, level), abs=0.003)


def test_counted_rows_give_the_picture_of_the_rows():
    values, counts = np.array([0.1, 0.35, 0.8]), np.array([3, 5, 2])
    for draw in (plotting.calibration_curve, plotting.pit_histogram):
        counted, each = draw(values, counts), draw(np.repeat(values, counts))
        assert note_of(counted) == note_of(each) == "10 rows"
        if draw is plotting.pit_histogram:
            assert [p.get_height() for p in counted.patches[:20]] == [p.get_height() for p in each.patches[:20]]
        else:
            assert (counted.lines[1].get_ydata() == each.lines[1].get_ydata()).all()


def test_many_rows_are_binned_and_very_many_sampled(monkeypatch):
    x = np.random.default_rng(0).standard_normal(5_000)
    few = plotting.predicted_against_true(x[:100], x[:100])
    assert len(few.lines[0].get_xdata()) == 100
    assert note_of(few) == "100 rows"
    many = plotting.predicted_against_true(x, x)
    assert many.collections[0].get_array().sum() == 5_000
    monkeypatch.setattr(style, "ROWS", 2_000)
    sampled = plotting.predicted_against_true(x, x)
    assert sampled.collections[0].get_array().sum() == 2_000
    assert note_of(sampled).startswith("2,000 of 5,000 rows")
    assert note_of(plotting.residual_map(np.column_stack([x, x]), x)).startswith("2,000 of 5,000 rows")


def test_the_residual_map_has_the_sign_of_the_residuals():
    X = np.random.default_rng(0).uniform(-1, 1, (4_000, 2))
    mesh = plotting.residual_map(X, np.where(X[:, 0] > 0, 1.0, -1.0)).collections[0]
    values = mesh.get_array()
    half = values.shape[1] // 2
    assert (values[:, : half - 1] < 0).all()
    assert (values[:, half + 1 :] > 0).all()


def test_residuals_beyond_the_edge_are_counted():
    z = np.append(np.random.default_rng(0).standard_normal(2_000), 1e6)
    assert "1 outside the axes" in note_of(plotting.residuals_along(np.arange(2_001.0), z))


def test_relevance_orders_columns_and_says_length_scales_in_their_units(model, random):
    ax = plotting.relevance(model)
    labels = [tick.get_text() for tick in ax.get_yticklabels()]
    scales = np.exp(model.theta_[1:3])
    assert labels[0] == ("a", r"b<&>\$")[int(np.argmin(scales))]
    bars = [bar.get_width() for bar in ax.patches]
    assert bars == sorted(bars, reverse=True)
    assert bars == pytest.approx(sorted(1 / scales, reverse=True))
    said = {text.get_text() for text in ax.texts}
    known = model.units_.parameters(model.kernel_, model.noise_variance_)
    assert said == {f"{q.value:.3g}" for q in known if q.name.startswith("lengthscale")}
    with pytest.raises(InvalidParameter, match="relevance of columns is not defined"):
        plotting.relevance(random)


def test_the_evidence_trace_is_whole_and_in_stages(model):
    ax = plotting.evidence_trace(model.report_)
    assert np.concatenate([curve.get_ydata() for curve in ax.lines]).tolist() == list(model.report_.evidence_trace)
    assert len(ax.lines) == len(model.report_.stages)
    constant = HGPRegressor(random_state=0).fit(np.arange(20.0)[:, None], np.ones(20))
    with pytest.raises(InvalidParameter, match="nothing was trained"):
        plotting.evidence_trace(constant.report_)


def test_a_query_is_shown_with_the_experts_it_asks(model, wave, random):
    query = wave[0][:1]
    by_rows = plotting.partition_map(model, query)
    assert {text.get_text() for text in by_rows.get_legend().get_texts()} == {"query", "neighbours", "other rows"}
    assert f"{model.predictor_.neighbourhood.count} of 600 rows" in by_rows.get_title(loc="right")
    ax = plotting.partition_map(copy(model).set_params(method="committee"), query)
    route = model.model_.committee.router.nearest(model.model_.inputs.apply(query, np.dtype(float)), 4)
    shares = (route.closeness / route.closeness.sum())[0]
    wanted = {f"expert {e:,}: weight {s:.0%}" for e, s in zip(route.experts[0], shares, strict=True)}
    assert {text.get_text() for text in ax.get_legend().get_texts()} == wanted | {"query"}
    all_experts = plotting.partition_map(random, query)
    assert len(all_experts.get_legend().get_texts()) == random.n_leaves_ + 1


def test_neighbouring_experts_have_different_colours(model):
    colours, router = _colours(model), model.model_.committee.router
    near = router.index.query(router.centres, 4)[1]
    assert all(len(set(colours[others])) == len(others) for others in near)


@pytest.mark.parametrize(
    ("tree", "workers"), [(Tree.regular(2, 3), 2), (Tree.balanced(20), 5), (Tree.regular(1, 1), 3)]
)
def test_leaves_have_the_colour_of_their_worker(tree, workers):
    ax = plotting.tree_of_workers(tree, workers)
    division = divide(tree, workers)
    for curve in ax.lines:
        worker = int(curve.get_label().split()[1].rstrip(":")) - 1
        places = curve.get_xdata()[np.asarray(curve.get_ydata()) == -tree.depth]
        leaves = np.round(places * (tree.n_leaves - 1)).astype(int)
        assert sorted(leaves) == division.leaves_of(worker) or tree.n_leaves == 1


def test_a_large_tree_is_cut_and_says_so():
    ax = plotting.tree_of_workers(Tree.balanced(3_000), 30)
    assert note_of(ax) == "3,000 leaves below, not drawn"
    assert ax.get_legend().get_texts()[-1].get_text() == "and 18 more"
    assert sum(len(curve.get_xdata()) for curve in ax.lines) < 500


def test_learning_points_are_fits_to_growing_parts(wave):
    X, y = wave
    model = HGPRegressor(leaf_size=120, random_state=0)
    points = plotting.learning_points(model, X, y)
    assert [p.rows for p in points] == [120, 240, 480]
    assert points[-1].rmse < points[0].rmse
    assert not hasattr(model, "report_"), "copies are fitted"
    (curve,) = plotting.learning_curve(points, "nlpd").lines
    assert list(curve.get_ydata()) == [p.nlpd for p in points]
    with pytest.raises(InvalidParameter, match="between 2 and 480"):
        plotting.learning_points(model, X, y, sizes=[1000])
    with pytest.raises(InvalidParameter, match="'nlpd', 'rmse', 'seconds'"):
        plotting.learning_curve(points, "r2")


def test_the_map_of_a_class_is_the_models_probability():
    model = classifier(3)
    ax = plotting.class_map(model, (1, 0), label=2)
    _, right, bottom, _ = ax.images[0].get_extent()
    assert ax.images[0].get_array()[0, -1] == pytest.approx(model.predict_proba([[bottom, right]])[0, 2])
    with pytest.raises(InvalidParameter, match="label must be one of 0, 1, 2"):
        plotting.class_map(model, label=7)
