"""Settings, kernels, rules and partitions as plain values, fit for JSON, and back.

An object is described by the name of its class and the arguments of its constructor. Reading makes instances only of
classes in a registry: those of this package, and those that the caller passes. Nothing else is executed.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from gigagp import kernels
from gigagp.combine import RULES, CombinationRule
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.kernels import Kernel, Parameter
from gigagp.likelihoods import LIKELIHOODS, Gaussian, Likelihood
from gigagp.partition import PARTITIONS, Partitioner

_KINDS = (Kernel, CombinationRule, Partitioner, Likelihood)
_KERNELS: list[type] = [k for k in vars(kernels).values() if isinstance(k, type) and issubclass(k, Kernel)]
_RULES: list[type] = list(RULES.values())
_PARTITIONS: list[type] = list(PARTITIONS.values())
_LIKELIHOODS: list[type] = [*LIKELIHOODS.values(), Gaussian]
_BUILT_IN: dict[str, type] = {each.__name__: each for each in (*_KERNELS, *_RULES, *_PARTITIONS, *_LIKELIHOODS)}
_NO_NUMBERS = ("nan", "inf", "-inf")
_DEEPEST = 100  # levels of nested values, such as kernels composed of kernels
_LARGEST = float(np.finfo(float).max)


class Registry:
    """The classes that a description may name."""

    def __init__(self, own: Iterable[type] = ()) -> None:
        self._classes = dict(_BUILT_IN)
        for own_class in own:
            if not (isinstance(own_class, type) and issubclass(own_class, _KINDS)):
                raise InvalidParameter(
                    f"kernels must be classes of kernels, rules, partitioners or likelihoods; got {own_class!r}"
                )
            if self._classes.setdefault(own_class.__name__, own_class) is not own_class:
                raise InvalidParameter(f"there are two classes called {own_class.__name__}; rename yours")

    def __getitem__(self, name: object) -> type:
        if not isinstance(name, str):
            raise ValueError(f"{reprlib.repr(name)} is not the name of a class")
        if name not in self._classes:
            raise InvalidInput(
                f"the model uses {reprlib.repr(name)}, which is not a class of gigagp; "
                f"if it is your own class, pass it: load(folder, kernels=[...])"
            )
        return self._classes[name]


def require(holds: object, what: str) -> None:
    """Raise ValueError with the message `what` unless a condition holds."""
    if not holds:
        raise ValueError(what)


def field(content: Any, name: str, kind: type) -> Any:
    """The field of that name; ValueError unless it has exactly this type."""
    value = content.get(name) if isinstance(content, dict) else None
    require(type(value) is kind, f"{name} is {reprlib.repr(value)}")
    return value


def count(content: Any, name: str, least: int = 0) -> int:
    """A field that counts something."""
    value: int = field(content, name, int)
    require(least <= value < 2**60, f"{name} is {reprlib.repr(value)}")
    return value


def number(content: Any, name: str) -> float:
    """A field with a number, as `to_number` wrote it."""
    value = content.get(name) if isinstance(content, dict) else None
    return float(value) if type(value) is float or value in _NO_NUMBERS else float(count(content, name))


def to_number(value: Any) -> Any:
    """The value; numbers that JSON does not have (NaN and infinity) as text."""
    return str(float(value)) if isinstance(value, float) and not np.isfinite(value) else value


def to_plain(what: str, value: object) -> Any:
    """The value as JSON can represent it; InvalidParameter, which calls it `what`, if it could not be restored."""
    own: set[type] = set()
    try:
        plain = _plain(value, own, 0)
        same = _same(from_plain(plain, Registry(own)), value)
    except ValueError as error:
        raise InvalidParameter(f"{what} cannot be saved: {error}") from None
    if not same:
        raise InvalidParameter(
            f"{what} cannot be saved: {reprlib.repr(value)} is not what its class creates from its attributes; "
            "store each argument of the constructor as an attribute of the same name"
        )
    return plain


def own_classes(value: object) -> set[type]:
    """The classes in a value that are not this package's."""
    own: set[type] = set()
    _plain(value, own, 0)
    return own


_DESCRIBED = {"class", "arguments", "parameters", "categories"}  # the fields that a description may have


def from_plain(plain: object, registry: Registry, depth: int = 0) -> Any:
    """The value that `to_plain` described; ValueError if the description is not valid."""
    if plain is None or isinstance(plain, bool | int | str) or (isinstance(plain, float) and np.isfinite(plain)):
        return plain
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(plain, list):
        return tuple(from_plain(each, registry, depth + 1) for each in plain)
    if not isinstance(plain, dict) or not {"class", "arguments"} <= set(plain) <= _DESCRIBED:
        raise ValueError(f"{reprlib.repr(plain)} is not a description of a value")
    kind, described = registry[plain["class"]], plain["arguments"]
    if not isinstance(described, dict):
        raise ValueError(f"{reprlib.repr(described)} are not arguments")
    arguments = {name: from_plain(each, registry, depth + 1) for name, each in described.items()}
    try:
        value = kind(**arguments)
    except Exception as error:  # whatever a constructor raises for arguments it does not take
        raise ValueError(f"{kind.__name__} cannot be made of {reprlib.repr(arguments)} ({error})") from None
    if "parameters" in plain:
        value = _with_parameters(value, plain["parameters"])
    return _with_categories(value, plain["categories"]) if "categories" in plain else value


def _plain(value: object, own: set[type], depth: int) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and np.isfinite(value)):
        return value
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(value, list | tuple):
        return [_plain(each, own, depth + 1) for each in value]
    if not isinstance(value, _KINDS):
        raise ValueError(f"{reprlib.repr(value)} is neither a plain value nor a kernel, rule, partition or likelihood")
    if type(value) is not _BUILT_IN.get(type(value).__name__):
        own.add(type(value))
    described: dict[str, Any] = {"class": type(value).__name__, "arguments": _arguments(value, own, depth)}
    # Where kernels are composed of others, these have the parameters.
    if isinstance(value, Kernel) and not any(isinstance(attribute, Kernel) for attribute in vars(value).values()):
        described["parameters"] = [_plain_parameter(p) for p in value.parameters]
        if value.categories:
            described["categories"] = list(value.categories)
    return described


def _arguments(value: object, own: set[type], depth: int) -> dict[str, Any]:
    """Arguments of the constructor, read from the attributes of the same names."""
    arguments, attributes = {}, vars(value)
    for name, parameter in inspect.signature(type(value)).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in attributes:
            arguments[name] = _plain(attributes[name], own, depth + 1)
        elif name == "ard" and isinstance(value, Kernel):
            arguments[name] = any(p.per_feature for p in value.parameters)
        elif parameter.default is parameter.empty:
            raise ValueError(
                f"the constructor of {type(value).__name__} needs {name!r}; keep it as an attribute of that name"
            )
    return arguments


def _with_parameters(kernel: object, plain: object) -> Kernel:
    """The kernel with other values and bounds of its parameters."""
    if not isinstance(kernel, Kernel) or not isinstance(plain, list) or len(plain) != len(kernel.parameters):
        raise ValueError(f"{type(kernel).__name__} has no such parameters")
    return kernel.with_parameters(tuple(_parameter(p, each) for p, each in zip(kernel.parameters, plain, strict=True)))


def _with_categories(kernel: object, plain: object) -> Kernel:
    """The kernel for inputs of which some columns are categories."""
    numbers = plain if isinstance(plain, list) else []
    valid = numbers and all(type(column) is int and column >= 0 for column in numbers)
    if not isinstance(kernel, Kernel) or not valid:
        raise ValueError(f"{reprlib.repr(plain)} are not columns of categories")
    return kernel.with_categories(numbers)


def _plain_parameter(parameter: Parameter) -> dict[str, Any]:
    """Values and bounds of a parameter; bounds of each value and units only where they are not the usual ones."""
    plain = {"name": parameter.name, "values": list(parameter.values), "bounds": list(parameter.bounds)}
    if parameter.limits:
        plain["limits"] = [list(bounds) for bounds in parameter.limits]
    if any(parameter.in_data_units):
        plain["in_data_units"] = list(parameter.in_data_units)
    if parameter.groups:
        plain["groups"] = [list(group) for group in parameter.groups]
    return plain


def _parameter(parameter: Parameter, plain: object) -> Parameter:
    known = {"name", "values", "bounds"}
    if not isinstance(plain, dict) or not known <= set(plain) <= known | {"limits", "in_data_units", "groups"}:
        raise ValueError(f"{reprlib.repr(plain)} is not the parameter {parameter.name}")
    values, bounds, limits = _numbers(plain["values"]), _pair(plain["bounds"]), plain.get("limits", [])
    units = plain.get("in_data_units", [False, False])
    right_units = isinstance(units, list) and len(units) == 2 and all(isinstance(each, bool) for each in units)
    if plain["name"] != parameter.name or not isinstance(limits, list) or not right_units:
        raise ValueError(f"{reprlib.repr(plain)} is not the parameter {parameter.name}")
    if not (parameter.per_feature or len(values) == len(parameter.values)):
        raise ValueError(f"{parameter.name} has {len(values)} values")
    each_bounds = tuple(_pair(each) for each in limits)
    return replace(
        parameter, values=values, bounds=bounds, limits=each_bounds, in_data_units=(units[0], units[1]),
        groups=_groups(plain.get("groups", [])),
    )  # fmt: skip


def _groups(plain: object) -> tuple[tuple[int, ...], ...]:
    """Lists in which each of the numbers 0, 1, ... occurs once."""
    if isinstance(plain, list) and all(isinstance(group, list) for group in plain):
        members = [each for group in plain for each in group]
        if all(type(each) is int for each in members) and set(members) == set(range(len(members))):
            return tuple(tuple(group) for group in plain)
    raise ValueError(f"{reprlib.repr(plain)} are not groups of columns")


def _pair(plain: object) -> tuple[float, float]:
    numbers = _numbers(plain)
    if len(numbers) != 2:
        raise ValueError(f"{reprlib.repr(plain)} are not two bounds")
    return numbers[0], numbers[1]


def _numbers(plain: object) -> tuple[float, ...]:
    if not isinstance(plain, list) or not all(type(n) in (int, float) and abs(n) <= _LARGEST for n in plain):
        raise ValueError(f"{reprlib.repr(plain)} are not numbers")
    return tuple(float(n) for n in plain)


def _same(restored: object, value: object) -> bool:
    """Whether two values are the same to whoever uses them."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(restored, np.generic | np.ndarray):
        restored = restored.tolist()
    if isinstance(value, list | tuple):
        return isinstance(restored, list | tuple) and len(restored) == len(value) and all(map(_same, restored, value))
    if not isinstance(value, _KINDS):
        return bool(restored == value)
    if type(restored) is not type(value):
        return False
    if isinstance(value, Kernel) and isinstance(restored, Kernel) and restored.parameters != value.parameters:
        return False
    mine, theirs = ({k: v for k, v in vars(each).items() if k != "parameters"} for each in (restored, value))
    # An attribute that only one of them has must be private: a value that is cached when it is first used.
    return all(
        _same(mine[name], theirs[name]) if name in mine and name in theirs else name.startswith("_")
        for name in {*mine, *theirs}
    )
