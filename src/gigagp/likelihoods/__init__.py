"""Likelihoods of targets that are not Gaussian, and Laplace's approximation of the evidence of a leaf with them."""

from gigagp.likelihoods.classes import Classes
from gigagp.likelihoods.leaf import LaplaceEvidence

__all__ = ["Classes", "LaplaceEvidence"]
