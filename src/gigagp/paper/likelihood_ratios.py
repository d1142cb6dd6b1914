"""Likelihood ratios of the kin40k table under every reading of the paper's definition.

The paper defines LR = prod p(y_i | G2) / p(y_i | G1) -> exp(-KL(G1 || G2)) for draws from the exact GP, and does not
say of what density (f or y), how queries are put together, whether theta is the exact GP's, or how rows are divided.
Each combination is one reading.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky

from gigagp import HGPRegressor, metrics
from gigagp.arrays import Array
from gigagp.combine import GPoE, PoE
from gigagp.kernels import Kernel
from gigagp.paper import page
from gigagp.paper.all_experts import predict_with_all_experts
from gigagp.paper.record import Results
from gigagp.progress import Listener

_JITTER = 1e-9
MEAN = "mean over queries of exp(-KL)"
LOG = "exp(-mean KL)"
PRODUCT = "product over queries of exp(-KL)"
JOINT = "joint KL of {m} queries, exp(-KL)"
JOINT_EACH = "joint KL of {m} queries, exp(-KL/{m})"
VANISHING = (PRODUCT, JOINT)
TARGETS = "ratio of the densities of the test targets, geometric mean"


@dataclass(frozen=True)
class ExactGP:
    """The exact GP that the experts are compared with: rows, theta and predictions, in the experts' units."""

    X: Array
    y: Array
    Z: Array
    targets: Array
    theta: Array
    mean: Array
    std: Array  # of y
    _known: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    @classmethod
    def of(cls, X: Array, y: Array, Z: Array, targets: Array, exact: Results) -> ExactGP:
        n = len(Z)
        mean, std = np.array(exact["mean"][:n]), np.array(exact["std"][:n])
        return cls(X, y, Z, targets, np.array(exact["theta"]), mean, std)

    @property
    def noise(self) -> float:
        return float(np.exp(self.theta[-1]))

    def ratios(self, model: HGPRegressor, theta: Array | None, joint: int, tell: Listener) -> Results:
        """All readings for one division of the rows and one theta (None: the model's own)."""
        theta = model.theta_ if theta is None else theta
        noise = float(np.exp(theta[-1]))
        predictions = predict_with_all_experts(
            model, self.Z, {"y": PoE(target="y"), "f": PoE(), "gPoE": GPoE()}, tell, theta
        )
        latent = [
            np.sqrt(np.maximum(std**2 - n, 1e-12)) for std, n in ((self.std, self.noise), (predictions["f"][1], noise))
        ]
        pairs = {
            "y, as eq. 7": (self.std, *predictions["y"]),
            "y, noise added once": (self.std, *predictions["f"]),
            "y, product normalised (gPoE)": (self.std, *predictions["gPoE"]),
            "f": (latent[0], predictions["f"][0], latent[1]),
        }
        ratios: Results = {}
        for density, (std, mean, other) in pairs.items():
            apart = metrics.kl_divergence(self.mean, std, mean, other)
            ratios[density] = {MEAN: float(np.mean(np.exp(-apart))), LOG: float(np.exp(-np.mean(apart))),
                              PRODUCT: float(np.exp(-np.sum(apart)))}  # fmt: skip
            if density != "f":
                loss = metrics.nlpd(self.targets, mean, other) - metrics.nlpd(self.targets, self.mean, self.std)
                ratios[density][TARGETS] = float(np.exp(-loss))
        for density, kl in (self._joint(model, theta, joint) if joint else {}).items():
            ratios[density] |= {JOINT: float(np.exp(-kl)), JOINT_EACH: float(np.exp(-kl / joint))}
        return ratios

    def _jointly(self, kernel: Kernel, m: int) -> tuple[Array, Array]:
        """The exact GP's joint mean and covariance of f, computed once."""
        if m not in self._known:
            self._known[m] = _posterior(kernel, self.theta, self.X, self.y, self.Z[:m])
        return self._known[m]

    def _joint(self, model: HGPRegressor, theta: Array, m: int) -> dict[str, float]:
        """KL of the joint Gaussians at the first m queries: of y under eq. 7, and of f."""
        kernel, Z = model.model_.committee.kernel, self.Z[:m]
        reference = self._jointly(kernel, m)
        sums = {"y, as eq. 7": _Product(m), "f": _Product(m)}
        noises = {"y, as eq. 7": float(np.exp(theta[-1])), "f": 0.0}
        committee = model.model_.committee
        for leaf in range(len(committee.experts)):
            X, y = committee.store.read(committee.experts, leaf)
            mean, covariance = _posterior(kernel, theta, X, y, Z)
            for density, product in sums.items():
                product.multiply(mean, covariance + (noises[density] + _JITTER) * np.eye(m))
        own = {"y, as eq. 7": self.noise, "f": 0.0}
        return {
            density: _kl(reference[0], reference[1] + (own[density] + _JITTER) * np.eye(m), *product.normalised())
            for density, product in sums.items()
        }


class _Product:
    """A product of joint Gaussians, by its natural parameters."""

    def __init__(self, m: int) -> None:
        self._precision, self._shift = np.zeros((m, m)), np.zeros(m)

    def multiply(self, mean: Array, covariance: Array) -> None:
        inverse = cho_solve(cho_factor(covariance, lower=True), np.eye(len(mean)))
        self._precision += inverse
        self._shift += inverse @ mean

    def normalised(self) -> tuple[Array, Array]:
        covariance = np.linalg.inv(self._precision)
        return covariance @ self._shift, (covariance + covariance.T) / 2


def _posterior(kernel: Kernel, theta: Array, X: Array, y: Array, Z: Array) -> tuple[Array, Array]:
    """Joint posterior mean and covariance of f at Z (Rasmussen & Williams 2006, eq. 2.23-2.24)."""
    p, m = len(X), len(Z)
    K = kernel.cross(theta[:-1], X, X)[:p, :p].astype(float) + float(np.exp(theta[-1])) * np.eye(p)
    k = kernel.cross(theta[:-1], X, Z)[:p, :m].astype(float)
    solve = cho_factor(K, lower=True)
    return k.T @ cho_solve(solve, y), kernel.cross(theta[:-1], Z, Z)[:m, :m] - k.T @ cho_solve(solve, k)


def _kl(mean: Array, covariance: Array, other_mean: Array, other_covariance: Array) -> float:
    """KL(N(mean, covariance) || N(other)) of joint Gaussians."""
    L, M = cholesky(covariance, lower=True), cholesky(other_covariance, lower=True)
    root, shift = np.linalg.solve(M, L), np.linalg.solve(M, other_mean - mean)
    logs = 2 * np.sum(np.log(np.diagonal(M)) - np.log(np.diagonal(L)))
    return float(0.5 * (np.sum(root**2) + shift @ shift - len(mean) + logs))


def section(
    levels: dict[int, dict[str, Results]], printed: dict[int, float], evidence: dict[int, tuple[float, float]],
    joint: int, queries: int,
) -> list[str]:  # fmt: skip
    """The section of the page that compares all readings with the paper's figures, the closest reading first.

    evidence : per level, the evidence per row of the experts and of the exact GP
    """
    readings: dict[tuple[str, str, str], dict[int, float]] = {}
    for level, divisions in levels.items():
        for how, densities in divisions.items():
            for density, ways in densities.items():
                for way, value in ways.items():
                    readings.setdefault((how, density, way), {})[level] = value
    own = ("kd-tree, theta trained", "evidence of a training row")
    readings[*own, "exp(experts' log - exact GP's log)"] = {l: float(np.exp(a - b)) for l, (a, b) in evidence.items()}
    readings[*own, "ratio of the logs"] = {l: a / b for l, (a, b) in evidence.items()}

    def apart(values: dict[int, float]) -> float:
        return float(np.mean([abs(values[level] - printed[level]) for level in values]))

    vanishing = [value for (_, _, way), values in readings.items() if way in VANISHING for value in values.values()]
    comparable = {key: values for key, values in readings.items() if key[2] not in VANISHING}
    ranked = sorted(comparable.items(), key=lambda item: (len(levels) - len(item[1]), apart(item[1])))
    rows = [
        ["; ".join([how, density, way.format(m=joint)]), *(page.number(values.get(level)) for level in levels),
         page.number(apart(values))]
        for (how, density, way), values in ranked
    ]  # fmt: skip
    head = ["division and theta; density; how queries are put together", *(str(level) for level in levels), "off by"]
    paper = ["**as printed in the paper**", *(f"**{printed[level]:.3f}**" for level in levels), "0"]
    best, values = ranked[0]
    return [
        "## Under which reading do the paper's ratios come closest?",
        f"The paper's figures fall from {printed[min(levels)]} to {printed[max(levels)]}. Each line is one way to read "
        f'its definition, at {queries:,} queries; "off by" is the mean distance to the paper\'s figures over the '
        "levels. Densities: of y as eq. 7 multiplies them; of y with the noise added once, to the product over f; of y "
        "with the product normalised; of f without noise. A dash: not computed.",
        page.table(head, [paper, *rows]),
        f"Products over all queries, and joint ratios of {joint} queries that are not divided by their number, are at "
        f"most {max(vanishing):.1g} at any level: taken literally, the definition cannot give the paper's figures.",
        f"The closest: {'; '.join(best).format(m=joint)}, off by {apart(values):.3f} on average and by "
        f"{max(abs(values[level] - printed[level]) for level in values):.3f} at most.",
    ]
