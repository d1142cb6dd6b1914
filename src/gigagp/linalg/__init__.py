"""Compiled linear algebra: covariances, factorisation, inverse and products of small matrices."""
