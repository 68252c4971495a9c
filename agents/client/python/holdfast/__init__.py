"""Checkpoints for Python programs that `holdfast run` starts: SCR's functions, implemented with libscr.so.

The functions are those of SCR's own Python module (`init`, `have_restart`, `start_output`, `route_file`, ...), so that
a program written for it runs unchanged with `import scr`. The context managers are shorter and always complete::

    import scr

    with scr.session():
        step, state = scr.load(read) or (0, initial)    # the newest checkpoint that all ranks can read
        while step < last:
            step, state = step + 1, compute(state)
            if scr.need_checkpoint():
                with scr.checkpoint(f"step.{step}") as checkpoint:
                    with open(checkpoint.route(f"rank_{scr.rank()}.npy"), "wb") as file:
                        write(file, state)

Functions are collective: all ranks call them in the same order. `route_file`, `rank`, `size` and `config` are not.

There is nothing to build, and no dependency: libscr.so is loaded with ctypes, by the first call. It is searched at
HOLDFAST_LIBSCR, beside this package, and by the system's loader (LD_LIBRARY_PATH).

`holdfast.variables` saves variables in memory instead of files.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, TypeVar

from . import _library

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

_Found = TypeVar("_Found")

__all__ = [
    "FLAG_NONE", "FLAG_CHECKPOINT", "FLAG_OUTPUT",
    "checkpoint", "complete_output", "config", "current", "delete", "drop", "finalize", "get_version",
    "have_restart", "init", "load", "need_checkpoint", "output", "rank", "restart", "restart_files", "route_file",
    "session", "should_exit", "size", "start_output", "start_restart", "complete_restart",
    "Dataset", "Restart",
]

FLAG_NONE = 0
FLAG_CHECKPOINT = 1
FLAG_OUTPUT = 2

_SUCCESS = 0
_MAX_FILENAME = 1024


@functools.lru_cache(maxsize=None)
def _scr() -> ctypes.CDLL:
    """The library, loaded by the first call: programs that use only `holdfast.variables` need no libscr.so."""
    library = _library.load("libscr.so", "HOLDFAST_LIBSCR")
    int_p = ctypes.POINTER(ctypes.c_int)
    functions: dict[str, list[Any]] = {
        "SCR_Init": [], "SCR_Finalize": [],
        "SCR_Route_file": [ctypes.c_char_p, ctypes.c_char_p],
        "SCR_Have_restart": [int_p, ctypes.c_char_p],
        "SCR_Start_restart": [ctypes.c_char_p], "SCR_Complete_restart": [ctypes.c_int],
        "SCR_Need_checkpoint": [int_p], "SCR_Should_exit": [int_p],
        "SCR_Start_output": [ctypes.c_char_p, ctypes.c_int], "SCR_Complete_output": [ctypes.c_int],
        "SCR_Current": [ctypes.c_char_p], "SCR_Drop": [ctypes.c_char_p], "SCR_Delete": [ctypes.c_char_p],
        "HOLDFAST_Rank": [int_p, int_p],
        "HOLDFAST_Restart_files": [int_p, int_p], "HOLDFAST_Restart_file": [ctypes.c_int, ctypes.c_char_p, int_p],
    }
    for name, arguments in functions.items():
        getattr(library, name).argtypes = arguments
        getattr(library, name).restype = ctypes.c_int
    library.SCR_Get_version.argtypes = []
    library.SCR_Get_version.restype = ctypes.c_char_p
    library.SCR_Config.argtypes = [ctypes.c_char_p]
    # Not c_char_p: the pointer is needed to free the value.
    library.SCR_Config.restype = ctypes.c_void_p
    return library


_free = ctypes.CDLL(None).free
_free.argtypes = [ctypes.c_void_p]
_free.restype = None


def _check(code: int, function: str) -> None:
    if code != _SUCCESS:
        # The library has printed on standard error what failed and what to do.
        raise RuntimeError(f"{function} failed")


def _flag(function: str) -> bool:
    flag = ctypes.c_int(0)
    _check(getattr(_scr(), function)(ctypes.byref(flag)), function)
    return bool(flag.value)


# ---- SCR's functions ----


def config(setting: str) -> str | None:
    """Sets ("KEY=value"), unsets ("KEY=") or reads ("KEY") a parameter. Set parameters before init().

    Returns the value that was read as str; None if there is none, or if a parameter was set.
    """
    value = _scr().SCR_Config(setting.encode())
    if value is None:
        return None
    try:
        return ctypes.string_at(value).decode()
    finally:
        _free(value)


def init(params: str | Iterable[str] | Mapping[str, object] | None = None) -> None:
    """Joins the run. `params`: parameters for config(), as a str, a list of str, or a dict."""
    if isinstance(params, str):
        params = [params]
    elif isinstance(params, Mapping):
        params = [f"{key}={'' if value is None else value}" for key, value in params.items()]
    for setting in params or []:
        config(str(setting))
    _check(_scr().SCR_Init(), "SCR_Init")


def finalize() -> None:
    """The program is finished: the job is not relaunched."""
    _check(_scr().SCR_Finalize(), "SCR_Finalize")


def get_version() -> str:
    """The version of the interface."""
    version: bytes = _scr().SCR_Get_version()
    return version.decode()


def rank() -> int:
    """The rank of this process, after init()."""
    return _place()[0]


def size() -> int:
    """The number of ranks, after init()."""
    return _place()[1]


def _place() -> tuple[int, int]:
    return _library.place(_scr().HOLDFAST_Rank, lambda code: _check(code, "HOLDFAST_Rank"))


def should_exit() -> bool:
    """True if the program must end: a halt condition was set, or the allocation ends."""
    return _flag("SCR_Should_exit")


def need_checkpoint() -> bool:
    """True if a checkpoint is due."""
    return _flag("SCR_Need_checkpoint")


def route_file(name: StrOrBytesPath) -> str:
    """The path where the file of this name is written (in an output) or read (in a restart)."""
    path = ctypes.create_string_buffer(_MAX_FILENAME)
    encoded = os.fsencode(name)
    if b"\0" in encoded:
        # The library would see the part before it only.
        raise ValueError("embedded null byte in the name of a file")
    _check(_scr().SCR_Route_file(encoded, path), "SCR_Route_file")
    return os.fsdecode(path.value)


def have_restart() -> str | None:
    """The name of the checkpoint to restart from, or None."""
    flag, name = ctypes.c_int(0), ctypes.create_string_buffer(_MAX_FILENAME)
    _check(_scr().SCR_Have_restart(ctypes.byref(flag), name), "SCR_Have_restart")
    return name.value.decode() if flag.value else None


def restart_files() -> tuple[int, list[tuple[str, int]]]:
    """The number of ranks that wrote the checkpoint to restart from, and the files of it that route_file() finds, as
    pairs of name and rank: those of this rank, or, if another number of ranks wrote it, those of all ranks."""
    ranks, count = ctypes.c_int(0), ctypes.c_int(0)
    _check(_scr().HOLDFAST_Restart_files(ctypes.byref(ranks), ctypes.byref(count)), "HOLDFAST_Restart_files")
    files, name, of = [], ctypes.create_string_buffer(_MAX_FILENAME), ctypes.c_int(0)
    for index in range(count.value):
        _check(_scr().HOLDFAST_Restart_file(index, name, ctypes.byref(of)), "HOLDFAST_Restart_file")
        files.append((os.fsdecode(name.value), of.value))
    return ranks.value, files


def start_restart() -> str:
    """Begins a restart; returns the checkpoint's name."""
    name = ctypes.create_string_buffer(_MAX_FILENAME)
    _check(_scr().SCR_Start_restart(name), "SCR_Start_restart")
    return name.value.decode()


def complete_restart(valid: bool) -> bool:
    """Ends the restart. `valid`: this process could read its files. Returns True if all processes could; otherwise call
    have_restart() again."""
    code: int = _scr().SCR_Complete_restart(int(bool(valid)))
    return code == _SUCCESS


def start_output(name: str | None, flags: int) -> None:
    """Begins a dataset: its name or None, and FLAG_CHECKPOINT, FLAG_OUTPUT or both."""
    _check(_scr().SCR_Start_output(None if name is None else name.encode(), int(flags)), "SCR_Start_output")


def complete_output(valid: bool) -> bool:
    """Ends the dataset. `valid`: this process wrote its files. Returns True if the dataset is kept."""
    code: int = _scr().SCR_Complete_output(int(bool(valid)))
    return code == _SUCCESS


def current(name: str) -> None:
    """Declares that the program restarted from this checkpoint by itself."""
    _check(_scr().SCR_Current(name.encode()), "SCR_Current")


def drop(name: str) -> None:
    """Removes the dataset from the index; its files are kept."""
    _check(_scr().SCR_Drop(name.encode()), "SCR_Drop")


def delete(name: str) -> None:
    """Deletes the dataset in cache and on the parallel file system."""
    _check(_scr().SCR_Delete(name.encode()), "SCR_Delete")


# ---- context managers ----


class Dataset:
    """A dataset that is being written."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        #: After the block: True if the dataset is kept, False if any rank failed.
        self.kept = False

    def route(self, name: StrOrBytesPath) -> str:
        """The path to write the file of this name to."""
        return route_file(name)


class Restart:
    """A checkpoint that is being read."""

    def __init__(self, name: str) -> None:
        self.name = name

    def route(self, name: StrOrBytesPath) -> str:
        """The path to read the file of this name from."""
        return route_file(name)


@contextlib.contextmanager
def session(params: str | Iterable[str] | Mapping[str, object] | None = None) -> Iterator[None]:
    """init() and finalize() around a program. A program that ends with an exception is not finished: it is relaunched
    from its newest checkpoint."""
    init(params)
    yield
    finalize()


@contextlib.contextmanager
def _dataset(name: str | None, flags: int) -> Iterator[Dataset]:
    start_output(name, flags)
    dataset = Dataset(name)
    try:
        yield dataset
    except BaseException:
        # Reported to the other ranks, which otherwise wait for this one.
        complete_output(False)
        raise
    dataset.kept = complete_output(True)


def checkpoint(name: str | None = None, output: bool = False) -> contextlib.AbstractContextManager[Dataset]:
    """A checkpoint, written in a `with` block. With `output` it is always copied to the parallel file system."""
    return _dataset(name, FLAG_CHECKPOINT | (FLAG_OUTPUT if output else FLAG_NONE))


def output(name: str | None = None) -> contextlib.AbstractContextManager[Dataset]:
    """Output, not for restarts, written in a `with` block; it is always copied to the parallel file system."""
    return _dataset(name, FLAG_OUTPUT)


@contextlib.contextmanager
def restart() -> Iterator[Restart]:
    """The checkpoint that have_restart() returned, read in a `with` block. An exception in it means that this rank
    could not read its files. RuntimeError if another rank could not: call have_restart() again."""
    reading = Restart(start_restart())
    try:
        yield reading
    except BaseException:
        complete_restart(False)
        raise
    if not complete_restart(True):
        raise RuntimeError(f"checkpoint {reading.name} could not be read on all ranks")


def load(read: Callable[[Restart], _Found]) -> _Found | None:
    """Calls read(restart) with the newest checkpoint, then with older ones while `read` raises an exception on any
    rank. Returns the result of `read`, or None if there is nothing to restart from."""
    while have_restart() is not None:
        reading = Restart(start_restart())
        found: _Found | None
        try:
            found, valid = read(reading), True
        except Exception:
            print(f"rank {rank()} could not read checkpoint {reading.name}:", file=sys.stderr)
            traceback.print_exc()
            found, valid = None, False
        if complete_restart(valid):
            return found
    return None
