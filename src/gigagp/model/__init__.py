"""From queries to predictive distributions, and everything else that reads a fitted model."""
