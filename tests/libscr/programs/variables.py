"""Variables of Python without NumPy: a bytearray that grows, an array, a memoryview and a number.

    variables.py STEPS RESULTS

RESULTS/result.<rank>: the sum, and the id of the checkpoint that was recovered.
"""

import array
import ctypes
import sys

from holdfast import variables

STEP, LOG, SQUARES, VIEW = 1, 2, 3, 4


def refused(error, part, *arguments):
    try:
        variables.protect(*arguments)
    except error as raised:
        assert part in str(raised), raised
    else:
        raise AssertionError(f"{arguments} was not refused")


def too_large(call, *arguments):
    try:
        call(*arguments)
    except OverflowError as raised:
        assert "does not fit into 32 bits" in str(raised), raised
    else:
        raise AssertionError(f"{arguments} was not refused")


def grow_protected(log):
    try:
        log.append(0)
    except BufferError:
        return
    raise AssertionError("a protected bytearray was resized")


def main(steps, results):
    refused(variables.VariablesError, "not initialised", STEP, ctypes.c_long(0))
    with variables.session():
        rank = variables.rank()
        assert variables.size() == 6
        refused(TypeError, "read-only", STEP, b"constant")
        refused(ValueError, "contiguous", STEP, memoryview(bytearray(8))[::2])
        step, squares, room = ctypes.c_long(0), array.array("d", [0.0] * (steps + 1)), bytearray(8)
        log = bytearray(variables.stored_size(LOG))
        variables.protect(STEP, step, "step")
        variables.protect(LOG, log, "log")
        variables.protect(SQUARES, squares)
        variables.protect(VIEW, memoryview(room)[4:])
        # ctypes alone would take them for the ids 1 and 2.
        too_large(variables.protect, STEP + 2**32, ctypes.c_long(77))
        too_large(variables.unprotect, STEP + 2**32)
        too_large(variables.stored_size, LOG + 2**32)
        too_large(variables.checkpoint, 2**32 + 1)
        too_large(variables.checkpoint, 2**31)
        recovered = 0
        if variables.have_checkpoint():
            recovered = variables.recover()
            assert recovered == step.value == len(log) == room[4], (recovered, step.value, log, room)
        while step.value < steps:
            step.value += 1
            squares[step.value] = step.value**2 * (rank + 1.0)
            if log:
                grow_protected(log)
            variables.unprotect(LOG)
            log.append(step.value)
            variables.protect(LOG, log, "log")
            room[4] = step.value
            assert variables.checkpoint(step.value, variables.PARITY)
            assert variables.stored_size(LOG) == step.value
        assert list(log) == list(range(1, steps + 1))
        # A checkpoint was just taken, and the shortest interval of the job is minutes.
        assert not variables.snapshot()
        assert not variables.should_exit()
        with open(f"{results}/result.{rank}", "w") as file:
            print(int(sum(squares)), recovered, file=file)


main(int(sys.argv[1]), sys.argv[2])
