/* Checkpoints of variables that grow, appear and disappear.
 *
 *     variables STEPS RESULTS LEVEL
 *
 * RESULTS/result.<rank>: the sum, and the id of the checkpoint that was recovered. Ends with the number of the line
 * whose condition does not hold. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holdfast.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "variables.c line %d: %s: %s\n", __LINE__, #condition, holdfast_error());                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* A type of the program, with padding. */
struct cell {
    double value;
    char rank;
};

enum { STEP = 1, SUM = 2, CELLS = -3, SOMETIMES = 4 };

static void set(struct cell *cell, int rank, long step)
{
    memset(cell, 0, sizeof *cell);
    cell->value = (double)step / 7.0;
    cell->rank = (char)rank;
}

int main(int count, char **arguments)
{
    long step = 0, sum = 0, i, steps;
    int rank, ranks, type, flag, recovered = 0, level;
    size_t bytes;
    double sometimes = 0.5;
    char path[4096];
    struct cell *cells;
    FILE *file;

    if (count != 4)
        return 2;
    steps = atol(arguments[1]);
    level = atoi(arguments[3]);

    /* What is wrong is refused, with a text. */
    holdfast_print_errors(0);
    EXPECT(holdfast_rank(&rank, &ranks) == HOLDFAST_FAILURE && strstr(holdfast_error(), "not initialised") != NULL);
    holdfast_print_errors(1);
    EXPECT(holdfast_init() == HOLDFAST_SUCCESS);
    EXPECT(holdfast_rank(&rank, &ranks) == HOLDFAST_SUCCESS && ranks == 6);
    holdfast_print_errors(0);
    EXPECT(holdfast_checkpoint(1, 1) == HOLDFAST_FAILURE && strstr(holdfast_error(), "no variable") != NULL);
    EXPECT(holdfast_protect(STEP, "step", &step, 1, 99) == HOLDFAST_FAILURE);
    EXPECT(strstr(holdfast_error(), "type 99") != NULL);
    EXPECT(holdfast_protect(STEP, "step", NULL, 1, HOLDFAST_LONG) == HOLDFAST_FAILURE);
    EXPECT(holdfast_unprotect(STEP) == HOLDFAST_FAILURE);
    EXPECT(holdfast_have_checkpoint(NULL) == HOLDFAST_FAILURE);
    holdfast_print_errors(1);

    EXPECT(holdfast_define_type(sizeof *cells, &type) == HOLDFAST_SUCCESS && type > HOLDFAST_LONG_DOUBLE);
    cells = malloc(sizeof *cells);
    EXPECT(cells != NULL);
    set(cells, rank, 0);
    EXPECT(holdfast_protect(STEP, "step", &step, 1, HOLDFAST_LONG) == HOLDFAST_SUCCESS);
    EXPECT(holdfast_protect(SUM, NULL, &sum, 1, HOLDFAST_LONG) == HOLDFAST_SUCCESS);
    EXPECT(holdfast_protect(CELLS, "cells", cells, 1, type) == HOLDFAST_SUCCESS);
    EXPECT(holdfast_have_checkpoint(&flag) == HOLDFAST_SUCCESS);
    if (flag) {
        EXPECT(holdfast_stored_size(CELLS, &bytes) == HOLDFAST_SUCCESS && bytes % sizeof *cells == 0 && bytes > 0);
        cells = holdfast_realloc(CELLS, cells);
        EXPECT(cells != NULL);
        EXPECT(holdfast_recover(&recovered) == HOLDFAST_SUCCESS);
        EXPECT(recovered == step && bytes == (size_t)(step + 1) * sizeof *cells);
    } else {
        EXPECT(holdfast_stored_size(CELLS, &bytes) == HOLDFAST_SUCCESS && bytes == 0);
    }

    while (step < steps) {
        step++;
        sum += step * (rank + 1);
        cells = realloc(cells, (size_t)(step + 1) * sizeof *cells);
        EXPECT(cells != NULL);
        set(&cells[step], rank, step);
        EXPECT(holdfast_protect(CELLS, "cells", cells, (size_t)(step + 1), type) == HOLDFAST_SUCCESS);
        if (step % 2 == 1)
            EXPECT(holdfast_protect(SOMETIMES, "sometimes", &sometimes, 1, HOLDFAST_DOUBLE) == HOLDFAST_SUCCESS);
        else
            holdfast_unprotect(SOMETIMES);
        EXPECT(holdfast_checkpoint((int)step, level) == HOLDFAST_SUCCESS);
        EXPECT(holdfast_stored_size(CELLS, &bytes) == HOLDFAST_SUCCESS && bytes == (size_t)(step + 1) * sizeof *cells);
        EXPECT(holdfast_stored_size(SOMETIMES, &bytes) == HOLDFAST_SUCCESS && bytes == (step % 2 ? sizeof(double) : 0));
    }

    for (i = 0; i <= step; i++)
        EXPECT(cells[i].value == (double)i / 7.0 && cells[i].rank == rank);
    snprintf(path, sizeof path, "%s/result.%d", arguments[2], rank);
    file = fopen(path, "w");
    EXPECT(file != NULL && fprintf(file, "%ld %d\n", sum, recovered) > 0 && fclose(file) == 0);
    EXPECT(holdfast_finalize() == HOLDFAST_SUCCESS);
    free(cells);
    return 0;
}
