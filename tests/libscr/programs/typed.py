"""Every function of the Python modules, called with the right types: a type checker finds nothing."""

from __future__ import annotations

import array
import ctypes
import pathlib

import numpy

import holdfast
import scr
from holdfast import pairs, variables


def read(restart: scr.Restart) -> tuple[int, bytes]:
    with open(restart.route(pathlib.Path("state")), "rb") as file:
        return len(restart.name), file.read()


def files() -> None:
    scr.init({"SCR_HALT_EXIT": 0})
    scr.init(["SCR_DEBUG=1", "SCR_FLUSH=0"])
    value: str | None = scr.config("SCR_DEBUG")
    while scr.have_restart() is not None:
        name: str = scr.start_restart()
        ranks, found = scr.restart_files()
        total: int = ranks + sum(rank for _, rank in found)
        if scr.complete_restart(total > 0):
            print(name, value)
    scr.start_output(None, scr.FLAG_NONE | scr.FLAG_CHECKPOINT | scr.FLAG_OUTPUT)
    kept: bool = scr.complete_output(True)
    scr.current("step.1")
    scr.drop("step.1")
    scr.delete("step.1")
    with scr.session("SCR_DEBUG=1"):
        step, state = scr.load(read) or (0, b"")
        if scr.need_checkpoint() and not scr.should_exit():
            with scr.checkpoint(f"step.{step}", output=True) as checkpoint:
                with open(checkpoint.route(b"state"), "wb") as file:
                    file.write(state)
            kept = checkpoint.kept
        with scr.output() as output:
            path: str = output.route("state")
        with scr.restart() as restart:
            path = restart.route("state")
        path = scr.route_file("state") or path
    print(kept, path, scr.rank() + scr.size(), scr.get_version().upper())
    dataset: scr.Dataset = output
    same: holdfast.Dataset = dataset
    print(same.name)
    scr.finalize()


def memory() -> None:
    try:
        variables.init()
        variables.finalize()
    except variables.VariablesError as error:
        print(error, variables.LOCAL < variables.PARTNER < variables.PARITY)
    with variables.session():
        step, field = ctypes.c_long(0), numpy.zeros(1000)
        variables.protect(1, step, "step", uniform=True)
        variables.protect(numpy.int32(2), field, distributed=0)
        variables.protect(3, array.array("d", [1.0]))
        variables.protect(4, bytearray(8))
        variables.protect(5, memoryview(bytearray(8)))
        if variables.have_checkpoint() and variables.stored_size(2) == field.nbytes:
            last: int | None = variables.recover()
            print(last)
        kept: bool = variables.checkpoint(step.value, variables.PREFIX)
        kept = variables.snapshot() or variables.should_exit() or kept
        variables.unprotect(3)
        print(variables.rank() + variables.size())


def copies() -> None:
    try:
        pairs.ft_init_wait(name="main", index=1)
        pairs.tag_ft_job_begin(0, 0, b"replica")
        pairs.init_ft(1)
        pairs.ft_hb(1)
        pairs.tag_job_begin(shareable=False)
        x, layer = pairs.newest_checkpoint() or (0, 0)
        pairs.update_checkpoint(x + 1, layer + 1)
        pairs.update(b"content")
        pairs.update(numpy.zeros(3), tag=7)
        stored = pairs.newest()
        if stored is not None and not pairs.stop_requested():
            content, tag = stored
            content.append(tag)
        pairs.tag_job_end()
    except pairs.PairsError as error:
        print(error)
