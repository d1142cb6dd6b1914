"""Likelihoods of targets that are not Gaussian, and Laplace's approximation of the evidence of a leaf with them."""

from gigagp.likelihoods.base import Derivatives, DispersionDerivatives, Likelihood
from gigagp.likelihoods.bernoulli import Bernoulli
from gigagp.likelihoods.classes import Classes
from gigagp.likelihoods.gamma import Gamma
from gigagp.likelihoods.gaussian import Gaussian
from gigagp.likelihoods.latents import Latents, SingleLatent
from gigagp.likelihoods.leaf import LaplaceEvidence
from gigagp.likelihoods.negative_binomial import NegativeBinomial
from gigagp.likelihoods.poisson import Poisson

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Classes",
    "Derivatives",
    "DispersionDerivatives",
    "Gamma",
    "Gaussian",
    "LaplaceEvidence",
    "Latents",
    "Likelihood",
    "NegativeBinomial",
    "Poisson",
    "SingleLatent",
]

# Those that Laplace's approximation serves, by the names that users give.
LIKELIHOODS: dict[str, type[Likelihood]] = {
    "poisson": Poisson,
    "negative_binomial": NegativeBinomial,
    "gamma": Gamma,
    "bernoulli": Bernoulli,
}
