"""A fitted model as one value: the rows, the common theta, and how queries are answered."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import RowLists
from gigagp.data.scaling import Scaling
from gigagp.data.sources.encoding import Encoding, Feature
from gigagp.data.sources.share import Share
from gigagp.data.sphere import InputScaling
from gigagp.data.store import ExpertStore
from gigagp.kernels import Kernel
from gigagp.likelihoods import Latents
from gigagp.model.class_model import ClassModel
from gigagp.model.committee import Committee
from gigagp.model.fit_report import FitReport
from gigagp.model.gap_scales import GapScales
from gigagp.model.input_noise import InputNoise
from gigagp.model.likelihood_model import LikelihoodModel
from gigagp.model.mixture import Mixture
from gigagp.model.neighbourhood import Neighbourhood
from gigagp.model.trend import Trend
from gigagp.model.units import Units


@dataclass(frozen=True)
class CommitteeDefaults:
    """What "auto" means for a committee: the name of the combination rule, and how many experts answer a query."""

    rule: str
    experts_per_query: int | None  # None: all of them

    @classmethod
    def of(cls, local: bool) -> CommitteeDefaults:
        """For experts that are local, or that each see the whole input space."""
        return cls("healed_blend", 4) if local else cls("healed", None)


@dataclass(frozen=True, eq=False)
class Model:
    """Everything that a fit has learnt. `predictor.Predictor` answers queries with it.

    At most one of `neighbourhood` and `mixture` is not None; where both are None, the committee answers.
    """

    committee: Committee
    neighbourhood: Neighbourhood | None  # an exact GP on the rows nearest to a query
    mixture: Mixture | None  # exact GPs on all rows, where these answer
    cells: RowLists  # the rows of each leaf, whose evidence training sums
    local: bool  # whether a leaf's rows are neighbours
    defaults: CommitteeDefaults
    inputs: InputScaling
    target: Scaling
    report: FitReport
    encoding: Encoding | None = None  # how columns of a table or file become numbers; None for arrays
    feature_names: tuple[str, ...] | None = None
    target_name: str | None = None
    input_noise: InputNoise | None = None  # None where the noise does not depend on the inputs
    classes: ClassModel | None = None  # where targets are the numbers of classes
    likelihood: LikelihoodModel | None = None  # where targets have a likelihood that is not Gaussian
    share: Share | None = None  # of the rows of the data, if it was fitted to a share of them
    arrivals: Array | None = None  # numbers of the rows of the store, in the order in which they arrived, where known
    next_arrival: int | None = None  # the arrival number of the next row, where rows have arrived or been forgotten
    online: object | None = None  # the rows of a model that has taken updates (`model.online.Online`)
    log: object | None = None  # up to where it has the updates of its folder's log (`model.update_replay.LogPlace`)
    prequential: Array | None = None  # scores of arriving rows (`model.prequential`)
    recent: Array | None = None  # the last predictions of arriving rows (`model.recent_rows`)
    trend: Trend | None = None  # the mean function, subtracted from the target before scaling; None for a constant
    gap_scales: GapScales | None = None  # of rows with and without missing values; None where gaps are not answered

    @property
    def theta(self) -> Array:
        """Log-parameters of kernel and noise, in the model's units."""
        return self.report.theta

    @property
    def latents(self) -> Latents | None:
        """The latent functions of classes, or of targets with a likelihood of their own."""
        if self.likelihood is not None:
            return self.likelihood.latents
        return None if self.classes is None else self.classes.classes

    @property
    def kernel(self) -> Kernel:
        """The kernel with its trained values."""
        return self.committee.kernel.with_theta(self.theta[:-1])

    @property
    def store(self) -> ExpertStore:
        """The scaled training rows, sorted by leaf."""
        return self.committee.store

    @property
    def columns(self) -> int:
        """The number of input columns, after categories have been encoded."""
        return self.inputs.columns

    @property
    def noise_variance(self) -> float:
        """The noise variance of y, in the user's units; the dispersion where y has a likelihood with one."""
        with np.errstate(over="ignore", under="ignore"):  # a target around 1e300 has a variance beyond all numbers
            return float(np.exp(self.theta[-1]) * np.square(self.target.scale[0]))

    @property
    def units(self) -> Units:
        """Names of columns and target, and their scales."""
        sphere = self.inputs.sphere
        kinds = ["number"] * self.columns if self.encoding is None else self.encoding.kinds
        levels = () if self.encoding is None else self.encoding.levels
        units = Units.of(
            names=self.feature_names or tuple(f"x{d}" for d in range(self.columns)),
            target=self.target_name or "y",
            kinds=kinds,
            scales=self.inputs.widths,
            height=float(self.target.scale[0]),
            kernel=self.committee.kernel,
            levels=levels,
            sphere=None if sphere is None else (sphere.longitude, sphere.latitude),
        )
        units = replace(units, directions=self.inputs.directions)
        return units if self.latents is None else replace(units, latent=True, noise_name=self.latents.dispersion_name)

    @property
    def reading(self) -> Encoding:
        """How columns of queries are matched: as in the fit; by position where that had no names."""
        if self.encoding is not None:
            return self.encoding
        features = tuple(Feature(name, "number") for name in self.units.columns)
        return Encoding(features, named=self.feature_names is not None)
