"""Arrays that are distributed over the ranks, recovered by other numbers of ranks: distributed.py STEPS RESULTS

RESULTS/result.<rank>: the id of the checkpoint that was recovered.
"""

import ctypes
import sys

from holdfast import variables

ROWS, COLUMNS = 23, 7


def value(step, row, column):
    return step + 1000.0 * row + 100000.0 * column


steps, results = int(sys.argv[1]), sys.argv[2]
with variables.session():
    rank, ranks = variables.rank(), variables.size()
    rows = ROWS // ranks + (rank < ROWS % ranks)
    first = rank * (ROWS // ranks) + min(rank, ROWS % ranks)
    step = ctypes.c_long(0)
    field = memoryview(bytearray(rows * COLUMNS * 8)).cast("d", [rows, COLUMNS])
    try:
        variables.protect(2, field, "field", distributed=2)
        raise SystemExit("a dimension that the array does not have was accepted")
    except ValueError as error:
        assert "2 dimensions has no dimension 2" in str(error), error
    variables.protect(1, step, "step", uniform=True)
    variables.protect(2, field, "field", distributed=0)
    recovered = 0
    if variables.have_checkpoint():
        recovered = variables.recover()
        assert recovered == step.value, (recovered, step.value)
        for row in range(rows):
            for column in range(COLUMNS):
                assert field[row, column] == value(recovered, first + row, column), (row, column)
    while step.value < steps:
        step.value += 1
        for row in range(rows):
            for column in range(COLUMNS):
                field[row, column] = value(step.value, first + row, column)
        variables.checkpoint(step.value, variables.PARITY)
    with open(f"{results}/result.{rank}", "w") as file:
        file.write(f"{recovered}\n")
