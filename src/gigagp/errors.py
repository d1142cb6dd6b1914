"""The errors of the package. Each message says what is wrong, where, and what to do; each error can be pickled."""

import inspect
from typing import Any


class GigaGPError(Exception):
    """Base class of the errors of the package."""


class NotPositiveDefinite(GigaGPError, ArithmeticError):
    """An expert's covariance matrix has no Cholesky factor, even with the largest jitter allowed."""

    def __init__(self, expert: int | None, theta: dict[str, float], jitter: float, dtype: str) -> None:
        self.expert, self.theta, self.jitter, self.dtype = expert, theta, jitter, dtype
        values = ", ".join(f"{name}={value:.3g}" for name, value in theta.items())
        subject = "the expert" if expert is None else f"expert {expert}"
        remedy = (
            "raise the lower bound of the noise variance (noise_bounds), remove duplicated rows, or check the kernel "
            "with gigagp.testing.check_kernel"
        )
        if dtype == "float32":
            remedy = 'use dtype="float64", ' + remedy
        super().__init__(
            f"the covariance matrix of {subject} is not positive definite at {values}, "
            f"even with jitter {jitter:.1g} on its diagonal; {remedy}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.expert, self.theta, self.jitter, self.dtype), self.__dict__


class InvalidParameter(GigaGPError, ValueError):
    """A parameter has a value that is not allowed: the message gives its name, the allowed values and the value."""


class InvalidInput(GigaGPError, ValueError):
    """The data cannot be used: the message says where the problem is and what to do."""


class DamagedFile(InvalidInput):
    """A file written by gigagp is damaged: truncated, changed, or confused with another."""


class DiskFull(GigaGPError, OSError):
    """The disk is full, or a file could not be written."""


class FolderInUse(GigaGPError, RuntimeError):
    """A folder is in use by another fit that is still running."""


class WorkerLost(GigaGPError, RuntimeError):
    """Workers of an engine have died or cannot do their work."""


class NotFinite(GigaGPError, ArithmeticError):
    """An expert's evidence or its gradient is not a number."""


def callers_level() -> int:
    """The `stacklevel` with which a warning points at the line of the user that called this package.

    Called from the function that warns.
    """
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "gigagp":
        level, frame = level + 1, frame.f_back
    return level


def tell_expert(error: Exception, leaf: int) -> None:
    """Add a note to an error that says in which expert it occurred."""
    if getattr(error, "expert", None) is None:
        error.add_note(f"in expert {leaf}")


def choose(name: str, got: object, allowed: dict[str, Any]) -> Any:
    """The entry of `allowed` called `got`, or an error that lists the allowed names."""
    if isinstance(got, str) and got in allowed:
        return allowed[got]
    names = ", ".join(repr(key) for key in sorted(allowed))
    raise InvalidParameter(f"{name} must be one of {names}; got {got!r}")
