"""Updates of a classifier."""

from __future__ import annotations

from typing import Any, Self

from sklearn.utils.validation import validate_data

from gigagp.arrays import Array
from gigagp.data.sources import Rows, open_rows
from gigagp.data.sources.base import category_text
from gigagp.engines import Engine
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.estimators.input_rows import is_source
from gigagp.estimators.labels import known_codes
from gigagp.estimators.online_updates import OnlineUpdates
from gigagp.fit import settings
from gigagp.model import prequential
from gigagp.model.row_segments import ArrivingRows
from gigagp.progress import Listener


class ClassUpdates(OnlineUpdates):  # type: ignore[misc]
    """The methods of a classifier that takes updates."""

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None, missing: str | None = None,
        score_rows: int = 256, progress: Listener | None = None,
    ) -> Self:  # fmt: skip
        """Learn more rows, without training: theta, scalings, class shares and calibration stay until `refine`.

        The first call on a model that is not fitted fits it, and must have rows of all classes. Predictions are then
        those of one fit to all rows with the same theta and scalings, in whatever order and chunks the rows have
        arrived. Some of the rows are predicted before they are learnt; their log loss is `prequential_.nlpd`.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`; y may be left out if X is a table or file with the target's column.
        classes : sequence
            All labels, as scikit-learn passes them. A first call that has no rows of one of them is refused.
        missing : {"error", "drop", "model"}
            As in `HGPRegressor.partial_fit`.
        score_rows : int
            How many rows of the call are predicted before they are learnt, at equal distances; 0 for none.
        progress : function
            Called with a gigagp.progress.Event during a fit.

        """
        scored = settings.count("score_rows", score_rows)
        gaps = settings.missing(self.missing if missing is None else missing)
        if "model_" not in self.__dict__:
            self.fit(X, y, sample_weight, missing=gaps, progress=progress)  # type: ignore[attr-defined]
            absent = [] if classes is None else [label for label in classes if label not in self.classes_]
            if absent:
                del self.model_
                raise InvalidInput(
                    f"the first call has no row of the class {absent[0]!r}; pass rows of all classes, because the "
                    "model learns from the first call how they differ"
                )
            return self
        self._learn_all(self._arriving(X, y, sample_weight, gaps), scored)
        return self

    def _arriving(self, X: Any, y: Any, sample_weight: Any, missing: str) -> Rows:
        """The rows of a call, as the fitted model reads them, with the numbers of their classes."""
        if y is not None and not is_source(X, y):
            validate_data(self, X, reset=False, skip_check_array=True)  # names and number of the columns
        self._check_updates()
        assert self.model_.classes is not None
        labels = self.model_.classes.labels
        target = self.model_.target_name if y is None else y
        if target is None:
            raise InvalidParameter("pass y=: the model was fitted to arrays, so that its target has no name")
        texts = [category_text(label) or "" for label in labels] if isinstance(target, str) else None
        if texts is None:
            target = known_codes(target, labels)
        return open_rows(X, target, encoding=self.model_.reading, missing=missing, weights=sample_weight, labels=texts)

    def _score_rows(
        self, X: Array, y: Array, row_noise: Array | None, scaled: ArrivingRows, arrived: int, engine: Engine
    ) -> Array:
        classes, near = self.model_.classes, self.model_.neighbourhood
        assert classes is not None
        assert near is not None
        return prequential.class_score(classes.log_probabilities(near, scaled.X, engine), y.astype(int), arrived)
