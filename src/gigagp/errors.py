"""The errors a user may meet. Each says what is wrong, where, and what to do; each pickles."""

from typing import Any


class GigaGPError(Exception):
    """Base of the package's own errors."""


class NotPositiveDefinite(GigaGPError, ArithmeticError):
    """An expert's covariance matrix has no Cholesky factor, even with the largest jitter allowed."""

    def __init__(self, expert: int | None, theta: dict[str, float], jitter: float, dtype: str) -> None:
        self.expert, self.theta, self.jitter, self.dtype = expert, theta, jitter, dtype
        values = ", ".join(f"{name}={value:.3g}" for name, value in theta.items())
        who = "the expert" if expert is None else f"expert {expert}"
        cure = (
            "raise the lower bound of the noise variance (noise_bounds), remove duplicated rows, or check the kernel "
            "with gigagp.testing.check_kernel"
        )
        if dtype == "float32":
            cure = 'use dtype="float64", ' + cure
        super().__init__(
            f"the covariance matrix of {who} is not positive definite at {values}, "
            f"even with jitter {jitter:.1g} on its diagonal; {cure}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.expert, self.theta, self.jitter, self.dtype), self.__dict__


class InvalidParameter(GigaGPError, ValueError):
    """A setting of the model is not allowed: the message gives its name, what is allowed and what was got."""


class InvalidInput(GigaGPError, ValueError):
    """The data cannot be used: the message says where and what to do."""


class DamagedFile(InvalidInput):
    """A file of ours is not as it was written: truncated, changed, or mixed up with others."""


class DiskFull(GigaGPError, OSError):
    """What is to be written does not fit, or could not be written."""


class FolderInUse(GigaGPError, RuntimeError):
    """A folder belongs to another fit that is still running."""


class WorkerLost(GigaGPError, RuntimeError):
    """Workers of an engine died, or cannot do what they are asked."""


class NotFinite(GigaGPError, ArithmeticError):
    """An expert's evidence or its gradient is not a number."""


def tell_expert(error: Exception, leaf: int) -> None:
    """Let an error say in which expert it came up."""
    if getattr(error, "expert", None) is None:
        error.add_note(f"in expert {leaf}")


def choose(name: str, got: object, allowed: dict[str, Any]) -> Any:
    """The entry of `allowed` called `got`, or an error that lists the allowed names."""
    if isinstance(got, str) and got in allowed:
        return allowed[got]
    names = ", ".join(repr(key) for key in sorted(allowed))
    raise InvalidParameter(f"{name} must be one of {names}; got {got!r}")
