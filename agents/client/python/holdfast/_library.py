"""Loads the shared libraries of Holdfast."""

from __future__ import annotations

import ctypes
import operator
import os
from typing import Callable, SupportsIndex


def load(name: str, variable: str) -> ctypes.CDLL:
    """The library of this file name: from the path in the environment variable, beside the package, or by the loader.
    """
    named = os.environ.get(variable)
    here = os.path.dirname(os.path.abspath(__file__))
    beside = [os.path.join(here, name), os.path.join(os.path.dirname(here), name)]
    candidates = [named] if named else [path for path in beside if os.path.exists(path)] + [name]
    try:
        # Global: a C extension that is linked with the library then shares the session.
        return ctypes.CDLL(candidates[0], mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ImportError(
            f"{name} cannot be loaded ({error}); "
            f"set {variable} to its path, or LD_LIBRARY_PATH to its directory"
        ) from error


def integer(what: str, value: SupportsIndex, bits: int = 32) -> int:
    """The value as an integer of the library's interface; ctypes would cut off what does not fit."""
    value = operator.index(value)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise OverflowError(f"{what} is {value}, which does not fit into {bits} bits: pass a smaller number")
    return value


def place(function: Callable[..., int], check: Callable[[int], None]) -> tuple[int, int]:
    """Rank and number of ranks, which this function of a library sets; `check` raises for its return value."""
    rank, ranks = ctypes.c_int(), ctypes.c_int()
    check(function(ctypes.byref(rank), ctypes.byref(ranks)))
    return rank.value, ranks.value
