"""What a model of classes has beyond its neighbourhood: the labels, the classes and the link."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.likelihoods import Classes
from gigagp.model import laplace_neighbourhood
from gigagp.model.class_calibration import ClassCalibration
from gigagp.model.neighbourhood import Neighbourhood

Label = bool | int | float | str


@dataclass(frozen=True, eq=False)
class ClassModel:
    """The labels in their order, the classes, and how latent functions become probabilities."""

    labels: tuple[Label, ...]
    classes: Classes
    calibration: ClassCalibration = field(default_factory=ClassCalibration)

    @property
    def label_array(self) -> Array:
        """The labels as an array of one type."""
        return np.array(self.labels)

    def log_probabilities(self, model: Neighbourhood, Z: Array, engine: Engine) -> Array:
        """The logarithms of the probabilities of the classes at scaled queries, one column per class."""
        latents = laplace_neighbourhood.predict(model, self.classes, Z, engine)
        return self.calibration.log_probabilities(self.classes, latents, laplace_neighbourhood.prior_variance(model))
