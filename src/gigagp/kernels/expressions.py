"""Kernels from text, such as "periodic(period=24, columns=hour) + matern32".

The text is parsed as a Python expression and never evaluated: only the names of kernels, their arguments, numbers,
texts, lists, + and * have a meaning. A name within the arguments is the name of a column, with or without quotes.
"""

from __future__ import annotations

import ast
from typing import Any

from gigagp.errors import InvalidParameter, choose
from gigagp.kernels.base import Kernel
from gigagp.kernels.constant import Constant
from gigagp.kernels.linear import Linear
from gigagp.kernels.matern import Matern12, Matern32, Matern52
from gigagp.kernels.periodic import Periodic
from gigagp.kernels.rational_quadratic import RationalQuadratic
from gigagp.kernels.squared_exponential import SquaredExponential

NAMES: dict[str, type[Kernel]] = {
    "squared-exponential": SquaredExponential,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rational-quadratic": RationalQuadratic,
    "periodic": Periodic,
    "linear": Linear,
    "constant": Constant,
}
_IDENTIFIERS = {name.replace("-", "_"): kind for name, kind in NAMES.items()}
_LONGEST = 10_000  # characters; the parser of Python fails on much deeper nesting than this allows


def parse(text: str) -> Kernel:
    """The kernel that an expression describes."""
    plain = text
    for name in NAMES:
        plain = plain.replace(name, name.replace("-", "_"))
    try:
        if len(plain) > _LONGEST:
            raise SyntaxError(f"it is longer than {_LONGEST} characters")
        tree = ast.parse(plain.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidParameter(
            f"kernel {text!r} is not an expression such as 'periodic(period=24, columns=hour) + matern32' ({error})"
        ) from None
    return _kernel(tree.body, text)


def _kernel(node: ast.expr, text: str) -> Kernel:
    match node:
        case ast.BinOp(left, ast.Add(), right):
            return _kernel(left, text) + _kernel(right, text)
        case ast.BinOp(left, ast.Mult(), right):
            return _kernel(left, text) * _kernel(right, text)
        case ast.Name(name):
            return _made(name, [], {}, text)
        case ast.Call(ast.Name(name), arguments, keywords) if all(k.arg for k in keywords):
            values = {str(keyword.arg): _value(keyword.value, text) for keyword in keywords}
            return _made(name, [_value(each, text) for each in arguments], values, text)
    raise InvalidParameter(
        f"kernel {text!r}: {ast.unparse(node)!r} is not a kernel; write names of kernels with their arguments, + and *"
    )


def _made(name: str, values: list[Any], named: dict[str, Any], text: str) -> Kernel:
    if name not in _IDENTIFIERS:
        choose("kernel", name, NAMES)
    kind = _IDENTIFIERS[name]
    try:
        return kind(*values, **named)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"kernel {text!r}: {error}") from None


def _value(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Constant(value) if isinstance(value, int | float | str):
            return value
        case ast.Name(name):
            return name
        case ast.UnaryOp(ast.USub(), ast.Constant(value)) if isinstance(value, int | float):
            return -value
        case ast.List(elements) | ast.Tuple(elements):
            return [_value(each, text) for each in elements]
    raise InvalidParameter(
        f"kernel {text!r}: {ast.unparse(node)!r} is not a number, a text or a list; quote names that are not words"
    )
