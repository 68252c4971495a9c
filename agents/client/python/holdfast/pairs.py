"""Main and replica: `holdfast_pairs.h` for Python, implemented with libholdfast_pairs.so.

The program runs in two copies, of which one is awake. When the main fails, the replica goes on from the newest
checkpoint; when the main has been started again, it takes over from the replica::

    import sys
    from holdfast import pairs

    pairs.ft_init_wait(name=sys.argv[1], index=int(sys.argv[2]))   # sleeps until it is this copy's turn
    x, step = pairs.newest_checkpoint() or (0, 0)
    while step < 100:
        x, step = x + step, step + 1
        pairs.update_checkpoint(x, step)
    pairs.tag_job_end()

ft_init_wait, tag_job_begin, tag_job_end and update_checkpoint have the names and the arguments of the Fault-tolerant
Scheme for Multiple Jobs; what it leaves open is described in `holdfast_pairs.h`. update and newest store and read
buffers of any content. Errors raise PairsError. The library is searched at HOLDFAST_LIBPAIRS, beside this package, and
by the system's loader (LD_LIBRARY_PATH).
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, SupportsIndex

from ._library import integer, load

if TYPE_CHECKING:
    from ._buffers import ReadableArray

__all__ = [
    "PairsError", "ft_hb", "ft_init_wait", "init_ft", "newest", "newest_checkpoint", "stop_requested",
    "tag_ft_job_begin", "tag_job_begin", "tag_job_end", "update", "update_checkpoint",
]

_SUCCESS, _NO_CHECKPOINT, _STOP = 0, 2, 3

_c = ctypes
_lib = load("libholdfast_pairs.so", "HOLDFAST_LIBPAIRS")
for _name, _arguments in {
    "init_ft": [_c.c_int],
    "ft_hb": [_c.c_int],
    "tag_job_begin": [_c.c_uint, _c.c_uint, _c.c_char_p, _c.c_longlong, _c.c_bool, _c.c_bool, _c.c_ulonglong],
    "tag_job_end": [_c.c_uint, _c.c_uint, _c.c_char_p],
    "update_checkpoint": [_c.c_longlong, _c.c_int],
    "newest_checkpoint": [_c.POINTER(_c.c_longlong), _c.POINTER(_c.c_int)],
    "holdfast_pairs_wait": [_c.c_uint, _c.c_char_p, _c.POINTER(_c.c_int), _c.c_int],
    "holdfast_pairs_update": [_c.c_void_p, _c.c_size_t, _c.c_int64],
    "holdfast_pairs_newest_size": [_c.POINTER(_c.c_size_t)],
    "holdfast_pairs_newest": [
        _c.c_void_p, _c.c_size_t, _c.POINTER(_c.c_size_t), _c.POINTER(_c.c_int64), _c.POINTER(_c.c_uint64)
    ],
    "holdfast_pairs_stop_requested": [_c.POINTER(_c.c_int)],
}.items():
    getattr(_lib, _name).argtypes = _arguments
    getattr(_lib, _name).restype = _c.c_int
_lib.holdfast_pairs_error.argtypes = []
_lib.holdfast_pairs_error.restype = _c.c_char_p
_lib.holdfast_pairs_print_errors.argtypes = [_c.c_int]
_lib.holdfast_pairs_print_errors.restype = None
# The text is that of the exception.
_lib.holdfast_pairs_print_errors(0)


class PairsError(RuntimeError):
    """A call failed. The text contains what to do."""


def _check(code: int) -> None:
    if code != _SUCCESS:
        raise PairsError(_lib.holdfast_pairs_error().decode(errors="replace"))


def _text(name: str | bytes | None) -> bytes | None:
    return name.encode() if isinstance(name, str) else name


def _wait(pid: int, name: str | bytes | None, index: SupportsIndex | None, beats: int) -> None:
    place = None if index is None else _c.byref(_c.c_int(integer("index", index)))
    code = _lib.holdfast_pairs_wait(pid, _text(name), place, beats)
    if code == _STOP:
        # As any other end of a program: `finally` blocks and functions of `atexit` run.
        sys.exit(0)
    _check(code)


def ft_init_wait(
    pid: int = 0, tid: int = 0, name: str | bytes | None = None, index: SupportsIndex | None = None
) -> None:
    """Registers this process as a copy, sleeps until it is its turn, and starts the heartbeat. `name` begins with main
    or replica; it and `index` are compared with the place for which the agent started the process, if they are given.
    A copy that is told to end before its turn raises SystemExit(0)."""
    _wait(pid, name, index, 1)


def tag_ft_job_begin(
    pid: int = 0, tid: int = 0, name: str | bytes | None = None, index: SupportsIndex | None = None
) -> None:
    """ft_init_wait() without the heartbeat: the program calls init_ft(), or ft_hb() in its loop."""
    _wait(pid, name, index, 0)


def init_ft(index: SupportsIndex) -> None:
    """Starts the thread of the heartbeat."""
    _check(_lib.init_ft(integer("index", index)))


def ft_hb(index: SupportsIndex) -> None:
    """Increments the heartbeat once, in programs without its thread."""
    _check(_lib.ft_hb(integer("index", index)))


def tag_job_begin(
    pid: int = 0, tid: int = 0, name: str | bytes | None = None,
    slack_time: int = 0, first: bool = True, shareable: bool = True, required_memory: int = 0,
) -> None:
    """There is work. The arguments after the name concern CARSS's scheduler, and are not used."""
    _check(_lib.tag_job_begin(pid, tid, _text(name), slack_time, first, shareable, required_memory))


def tag_job_end(pid: int = 0, tid: int = 0, name: str | bytes | None = None) -> None:
    """The work is done: the pair is finished when this process ends with exit code 0."""
    _check(_lib.tag_job_end(pid, tid, _text(name)))


def update_checkpoint(x: int, layer: SupportsIndex) -> None:
    """Stores an integer of 64 bits as the newest checkpoint; `layer`, of 32 bits, is the step."""
    layer = integer("layer", layer)
    if not -(1 << 63) <= x < 1 << 63:
        raise OverflowError("x does not fit into 64 bits: use update() for other content")
    _check(_lib.update_checkpoint(x, layer))


def newest_checkpoint() -> tuple[int, int] | None:
    """The x and the layer of the newest checkpoint of update_checkpoint(), in this copy or the other. None: there is
    none, start from the beginning."""
    x, layer = _c.c_longlong(), _c.c_int()
    code = _lib.newest_checkpoint(_c.byref(x), _c.byref(layer))
    if code == _NO_CHECKPOINT:
        return None
    _check(code)
    return x.value, layer.value


def update(buffer: ReadableArray, tag: SupportsIndex = 0) -> None:
    """Stores the content of a contiguous buffer (bytes, a NumPy array, array.array, ...) as the newest checkpoint, with
    a number of the program's choice, of 64 bits."""
    tag = integer("tag", tag, 64)
    view = memoryview(buffer)  # type: ignore[arg-type]
    if not view.c_contiguous:
        raise ValueError("the elements of the buffer are not contiguous in memory")
    if view.nbytes == 0:
        _check(_lib.holdfast_pairs_update(None, 0, tag))
    elif view.readonly:
        # ctypes gives no address of read-only buffers.
        _check(_lib.holdfast_pairs_update(view.tobytes(), view.nbytes, tag))
    else:
        content = (_c.c_char * view.nbytes).from_buffer(view)
        _check(_lib.holdfast_pairs_update(content, view.nbytes, tag))


def newest() -> tuple[bytearray, int] | None:
    """The content (bytearray) and the number given to update() of the newest checkpoint, in this copy or the other.
    None: there is none."""
    needed = _c.c_size_t()
    code = _lib.holdfast_pairs_newest_size(_c.byref(needed))
    if code == _NO_CHECKPOINT:
        return None
    _check(code)
    content, tag = bytearray(needed.value), _c.c_int64()
    memory = (_c.c_char * len(content)).from_buffer(content) if content else None
    _check(_lib.holdfast_pairs_newest(memory, len(content), None, _c.byref(tag), None))
    return content, tag.value


def stop_requested() -> bool:
    """True if the other copy takes over, or the job ends: this process is sent SIGTERM, and killed a moment later."""
    flag = _c.c_int()
    _check(_lib.holdfast_pairs_stop_requested(_c.byref(flag)))
    return bool(flag.value)
