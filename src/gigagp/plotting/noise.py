"""The noise of y along a column."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from gigagp.estimators.regressor import HGPRegressor
from gigagp.plotting import style
from gigagp.plotting.rows import column_number, span, training_rows

_ROWS = 500  # training rows whose other columns are used
_PLACES = 100  # along the column
_BAND = (0.1, 0.5, 0.9)  # quantiles over these rows


def noise_along(model: HGPRegressor, column: int | str | None = None, *, ax: Axes | None = None) -> Axes:
    """The predicted standard deviation of the noise as one column varies and the others are those of training rows.

    column : name or number; default the column that the noise depends on most
    Before calibration: the distribution of held-out errors may widen or narrow it.
    """
    noise = model.model_.input_noise
    d = column_number(model, column if column is not None else 0 if noise is None else int(noise.metric.argmax()))
    x = np.linspace(*span(model, d), _PLACES)
    low, middle, high = np.full((3, _PLACES), np.sqrt(model.noise_variance_))
    if noise is not None:
        queries = np.repeat(training_rows(model, _ROWS).X[None], _PLACES, axis=0)
        queries[:, :, d] = x[:, None]
        factors = noise.factors(model.predictor_.scaled(queries.reshape(-1, queries.shape[2])))
        deviations = np.sqrt(model.noise_variance_ * factors).reshape(_PLACES, -1)
        low, middle, high = np.quantile(deviations, _BAND, axis=1)
    ax = style.axes(ax)
    ax.fill_between(x, low, high, color=style.BLUE, alpha=0.25, linewidth=0, label="central 80% of the rows")
    ax.plot(x, middle, color=style.BLUE, linewidth=1.8, label="median of the rows")
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(0, 1.15 * float(high.max()))
    ax.set_xlabel(style.short(model.units_.columns[d]))
    ax.set_ylabel(f"noise of {style.short(model.units_.target)}, standard deviation")
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax
