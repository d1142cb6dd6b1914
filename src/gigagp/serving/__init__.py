"""A small HTTP service for one saved model: predictions, updates, health and metrics (`gigagp serve`)."""

from gigagp.serving.app import make_app
from gigagp.serving.limits import Limits

__all__ = ["Limits", "make_app"]
