"""How much of the noise rows with equal inputs have in common; held-out predictions choose.

What the kernel cannot explain counts as noise. A part of it may be a function of the inputs that is too rough for the
kernel, and this part is the same in all rows with equal inputs: a query that equals training rows then has nearly their
mean, whatever rows nearby say, whereas with independent noise a few equal rows are outvoted by their neighbours. On
keggundirected, where most inputs repeat, the RMSE of splits 2 and 3 was .1202 and .1266 with independent noise, and
.1183 and .1234 if nine tenths of the noise are common (32 neighbours, one kernel, trials).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gigagp.fit.held_out_scores import CALIBRATION_ROWS, NEGLIGIBLE_GAIN, Gain, NumberScoring, Scorer
from gigagp.model.fit_report import Candidate
from gigagp.model.neighbourhood import Neighbourhood, search_many

_SHARES = (0.0, 0.5, 0.9)  # of the noise variance; all of it would make equal inputs with different targets impossible
_SEARCHED_ROWS = 512  # held-out rows among which equal inputs are looked for


def choose_common_noise(scorer: Scorer, model: Neighbourhood) -> tuple[Neighbourhood, list[Candidate]]:
    """The model with the share of the noise that predicts held-out rows best; no candidates where no inputs repeat."""
    if not isinstance(scorer.scoring, NumberScoring) or not _has_equal_inputs(scorer, model):
        return model, []
    models = [replace(model, common=share) for share in _SHARES]
    rows = scorer.for_calibration(model)[:CALIBRATION_ROWS]
    scores = [scorer.score_rows(each, rows) for each in models]
    best = int(np.argmin([score.score for score in scores]))
    best = best if Gain.of(scores[best], scores[0]).exceeds(NEGLIGIBLE_GAIN) else 0
    candidates = [
        Candidate("common noise", f"{share:.0%}", score.score, i == best)
        for i, (share, score) in enumerate(zip(_SHARES, scores, strict=True))
    ]
    return models[best], candidates


def _has_equal_inputs(scorer: Scorer, model: Neighbourhood) -> bool:
    """Whether any of some held-out rows has the inputs of another row. Composed kernels have no common noise."""
    rows = scorer.order[:_SEARCHED_ROWS]
    X = np.ascontiguousarray(model.store.gather(rows)[0])
    if model.kernel.profile(model.theta[:-1], X.shape[1]) is None:
        return False
    _, nearest, sizes = search_many(replace(model, neighbours=1), X, np.asarray(rows, np.int64))
    equal = (model.store.gather(nearest[:, 0])[0] == X).all(axis=1)
    return bool((equal & (sizes > 0)).any())
