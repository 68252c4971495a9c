"""Checkpoints of variables in memory: `holdfast.h` for Python, implemented with libholdfast_variables.so.

Variables are objects with a writable, contiguous buffer: NumPy arrays, `bytearray`, `memoryview`, `array.array`, and
`ctypes` objects for single numbers. Each is protected once; a checkpoint saves its current content, and `recover`
writes that into the same memory::

    import ctypes
    import numpy
    from holdfast import variables

    with variables.session():
        step, field = ctypes.c_long(0), numpy.zeros(1000)
        variables.protect(1, step, "step")
        variables.protect(2, field, "field")
        if variables.have_checkpoint():
            variables.recover()
        while step.value < 100:
            step.value += 1
            field += step.value
            variables.snapshot()              # saves them when a checkpoint is due

The job needs `checkpoint: {source: variables}`. Functions are collective, except protect, unprotect, stored_size,
have_checkpoint, rank and size. NumPy is not required. The library is searched at HOLDFAST_LIBVARIABLES, beside this
package, and by the system's loader (LD_LIBRARY_PATH).
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from typing import TYPE_CHECKING, Iterator, SupportsIndex

from ._library import integer, load, place

if TYPE_CHECKING:
    from ._buffers import WritableArray

__all__ = [
    "LOCAL", "PARTNER", "PARITY", "PREFIX", "VariablesError",
    "checkpoint", "finalize", "have_checkpoint", "init", "protect", "rank", "recover", "session", "should_exit",
    "size", "snapshot", "stored_size", "unprotect",
]

#: Levels of a checkpoint; each protects against more than the one before it: the node's cache only, a copy on another
#: node, parity over a group of nodes, a copy in the prefix directory.
LOCAL, PARTNER, PARITY, PREFIX = 1, 2, 3, 4

_SUCCESS, _NO_CHECKPOINT, _NOT_KEPT = 0, 2, 3
_CHAR = 0

_lib = load("libholdfast_variables.so", "HOLDFAST_LIBVARIABLES")
_int_p = ctypes.POINTER(ctypes.c_int)
for _name, _arguments in {
    "holdfast_init": [], "holdfast_finalize": [], "holdfast_rank": [_int_p, _int_p],
    "holdfast_protect": [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int],
    "holdfast_distribute": [ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_size_t), ctypes.c_int],
    "holdfast_uniform": [ctypes.c_int],
    "holdfast_unprotect": [ctypes.c_int],
    "holdfast_have_checkpoint": [_int_p],
    "holdfast_stored_size": [ctypes.c_int, ctypes.POINTER(ctypes.c_size_t)],
    "holdfast_recover": [_int_p],
    "holdfast_checkpoint": [ctypes.c_int, ctypes.c_int],
    "holdfast_snapshot": [_int_p],
    "holdfast_should_exit": [_int_p],
}.items():
    getattr(_lib, _name).argtypes = _arguments
    getattr(_lib, _name).restype = ctypes.c_int
_lib.holdfast_error.argtypes = []
_lib.holdfast_error.restype = ctypes.c_char_p
_lib.holdfast_print_errors.argtypes = [ctypes.c_int]
_lib.holdfast_print_errors.restype = None
# The text is that of the exception.
_lib.holdfast_print_errors(0)

#: The buffers of the protected variables, by id: their memory must not be freed or moved.
_held: dict[int, ctypes.Array[ctypes.c_char] | None] = {}


class VariablesError(RuntimeError):
    """A call failed. The text contains what to do."""


def _check(code: int) -> None:
    if code != _SUCCESS:
        raise VariablesError(_lib.holdfast_error().decode(errors="replace"))


def _flag(function: str) -> bool:
    flag = ctypes.c_int(0)
    _check(getattr(_lib, function)(ctypes.byref(flag)))
    return bool(flag.value)


def init() -> None:
    """Joins the run."""
    _check(_lib.holdfast_init())


def finalize() -> None:
    """The program is finished: the job is not relaunched. Ends the protection of all variables."""
    _check(_lib.holdfast_finalize())
    _held.clear()


@contextlib.contextmanager
def session() -> Iterator[None]:
    """init() and finalize() around a program. A program that ends with an exception is not finished: it is relaunched
    from its newest checkpoint."""
    init()
    yield
    finalize()


def rank() -> int:
    """The rank of this process, after init()."""
    return _place()[0]


def size() -> int:
    """The number of ranks, after init()."""
    return _place()[1]


def _place() -> tuple[int, int]:
    return place(_lib.holdfast_rank, _check)


def protect(
    id: SupportsIndex, variable: WritableArray, name: str | None = None,
    distributed: SupportsIndex | None = None, uniform: bool = False,
) -> None:
    """Protects a variable, or replaces the one of this id. While it is protected, its memory cannot be resized (such as
    by `bytearray.append`): unprotect it first, and protect it again.

    Two declarations, the same on all ranks, with which another number of ranks can recover it, where the job allows
    that (`checkpoint: {restart: {ranks: any}}`): `distributed=0`: the variables of this id on all ranks are the
    blocks of one array along its dimension 0, in the order of the ranks. `uniform=True`: all ranks have the same
    value."""
    id = integer("the id of the variable", id)
    if uniform and distributed is not None:
        raise ValueError("a variable is distributed or uniform, not both")
    buffer, length = _buffer(variable)
    shape, dimension = (None, None) if distributed is None else _shape(variable, distributed)
    address = None if buffer is None else ctypes.addressof(buffer)
    encoded = None if name is None else name.encode()
    _check(_lib.holdfast_protect(id, encoded, address, length, _CHAR))
    _held[id] = buffer
    if shape is not None:
        _check(_lib.holdfast_distribute(id, len(shape), (ctypes.c_size_t * len(shape))(*shape), dimension))
    if uniform:
        _check(_lib.holdfast_uniform(id))


def _shape(variable: WritableArray, dimension: SupportsIndex) -> tuple[list[int], int]:
    """The shape of a variable in bytes and in the order of its memory, and the number of a dimension in it."""
    dimension = integer("the distributed dimension", dimension)
    view = memoryview(variable)  # type: ignore[arg-type]
    if not 0 <= dimension < view.ndim:
        raise ValueError(f"an array of {view.ndim} dimensions has no dimension {dimension}: they are counted from 0")
    shape = view.shape or ()
    # Of arrays without elements the order is not known: they count as empty in the distributed dimension.
    if view.nbytes and not view.c_contiguous:
        return [*reversed(shape), view.itemsize], view.ndim - 1 - dimension
    return [*shape, view.itemsize], dimension


def _buffer(variable: WritableArray) -> tuple[ctypes.Array[ctypes.c_char] | None, int]:
    """A ctypes object in the memory of the variable, and its bytes."""
    view = memoryview(variable)  # type: ignore[arg-type]
    if view.readonly:
        raise TypeError("the variable is read-only: recover could not load it")
    if "O" in re.sub(":[^:]*:", "", view.format):
        raise TypeError("the variable contains Python objects; only their addresses would be saved")
    if view.nbytes == 0:
        return None, 0
    if not view.c_contiguous:
        if not view.f_contiguous or not hasattr(variable, "T"):
            raise ValueError("the elements of the variable are not contiguous in memory")
        # An array in Fortran order: its transpose is the same memory.
        view = memoryview(variable.T)
    return (ctypes.c_char * view.nbytes).from_buffer(view), view.nbytes


def unprotect(id: SupportsIndex) -> None:
    """Ends the protection of a variable: later checkpoints do not contain it."""
    id = integer("the id of the variable", id)
    _check(_lib.holdfast_unprotect(id))
    _held.pop(id, None)


def stored_size(id: SupportsIndex) -> int:
    """The bytes of a variable in the newest checkpoint: that to recover from, or the last one that this process has
    taken. 0 if it is not there."""
    id = integer("the id of the variable", id)
    stored = ctypes.c_size_t(0)
    _check(_lib.holdfast_stored_size(id, ctypes.byref(stored)))
    return stored.value


def have_checkpoint() -> bool:
    """True if there is a checkpoint to recover from."""
    return _flag("holdfast_have_checkpoint")


def recover() -> int | None:
    """Loads the newest checkpoint whose files are intact on all ranks, and returns the id that checkpoint() was given.
    None if no checkpoint is usable: start from the beginning. Every variable must have its size in the checkpoint
    (stored_size)."""
    loaded = ctypes.c_int()
    code = _lib.holdfast_recover(ctypes.byref(loaded))
    if code == _NO_CHECKPOINT:
        return None
    _check(code)
    return loaded.value


def checkpoint(id: SupportsIndex, level: SupportsIndex = PARTNER) -> bool:
    """Saves all variables. Returns True if the checkpoint is kept, False if any rank failed, or one of level PREFIX
    could not be copied there: older ones are kept. The id has at most 31 bits, and is the same on all ranks. If a halt
    condition holds, the process ends here with exit code 0, unless it has called should_exit()."""
    id, level = integer("the id of the checkpoint", id), integer("the level", level)
    _flush()
    code = _lib.holdfast_checkpoint(id, level)
    if code == _NOT_KEPT:
        return False
    _check(code)
    return True


def snapshot() -> bool:
    """Saves all variables if a checkpoint is due. Returns True if one was taken and kept. May end the process, as
    checkpoint() does."""
    _flush()
    taken = ctypes.c_int(0)
    code = _lib.holdfast_snapshot(ctypes.byref(taken))
    if code == _NOT_KEPT:
        return False
    _check(code)
    return bool(taken.value)


def _flush() -> None:
    # The process may end in the call, without Python's own end.
    sys.stdout.flush()
    sys.stderr.flush()


def should_exit() -> bool:
    """True if the program must end: a halt condition was set, or the allocation ends."""
    return _flag("holdfast_should_exit")
