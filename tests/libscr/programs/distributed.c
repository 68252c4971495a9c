/* Arrays that are distributed over the ranks, recovered by other numbers of ranks.
 *
 *     distributed STEPS RESULTS
 *
 * RESULTS/result.<rank>: the id of the checkpoint that was recovered, and how many recoveries were refused. Ends with
 * the number of the line whose condition does not hold. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holdfast.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "distributed.c line %d: %s: %s\n", __LINE__, #condition, holdfast_error());                \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { STEP = 1, BY_ROWS = 2, BY_COLUMNS = 3, OWN = 4 };
enum { ROWS = 2300, COLUMNS = 17, PLANES = 3, DEPTH = 5 };

/* Rank 0 has the rows that remain. */
static size_t rows_of(int rank, int ranks)
{
    size_t each = ROWS / ranks;

    return rank == 0 ? ROWS - each * (ranks - 1) : each;
}

static size_t first_row(int rank, int ranks)
{
    return rank == 0 ? 0 : ROWS - (size_t)(ROWS / ranks) * (ranks - rank);
}

/* As equal as possible. */
static size_t columns_of(int rank, int ranks)
{
    return COLUMNS / ranks + (rank < COLUMNS % ranks);
}

static size_t first_column(int rank, int ranks)
{
    size_t first = 0;

    while (rank-- > 0)
        first += columns_of(rank, ranks);
    return first;
}

static double row_value(long step, size_t row, size_t column)
{
    return (double)step + (double)row * 1e3 + (double)column * 1e6;
}

static int column_value(long step, size_t plane, size_t column, size_t depth)
{
    return (int)(step + plane * 1000 + column * 10000 + depth * 1000000);
}

int main(int count, char **arguments)
{
    long step = 0, steps, own, plane, depth;
    int rank, ranks, flag, recovered = 0, refused = 0;
    size_t row, rows, column, columns, bytes, shape[3];
    double *by_rows;
    int *by_columns;
    char path[4096];
    FILE *file;

    if (count != 3)
        return 2;
    steps = atol(arguments[1]);
    EXPECT(holdfast_init() == HOLDFAST_SUCCESS);
    EXPECT(holdfast_rank(&rank, &ranks) == HOLDFAST_SUCCESS);
    own = rank;
    rows = rows_of(rank, ranks);
    columns = columns_of(rank, ranks);
    by_rows = calloc(rows * COLUMNS, sizeof *by_rows);
    by_columns = NULL;
    EXPECT(by_rows != NULL);

    /* What is wrong is refused, with a text. */
    holdfast_print_errors(0);
    EXPECT(holdfast_uniform(STEP) == HOLDFAST_FAILURE);
    EXPECT(strstr(holdfast_error(), "no variable 1 is protected") != NULL);
    EXPECT(holdfast_protect(STEP, "step", &step, 1, HOLDFAST_LONG) == HOLDFAST_SUCCESS);
    shape[0] = 1;
    EXPECT(holdfast_distribute(STEP, 1, shape, 1) == HOLDFAST_FAILURE);
    EXPECT(strstr(holdfast_error(), "no dimension 1") != NULL);
    EXPECT(holdfast_distribute(STEP, 1, shape, -1) == HOLDFAST_FAILURE);
    EXPECT(holdfast_distribute(STEP, 1, NULL, 0) == HOLDFAST_FAILURE);

    EXPECT(holdfast_uniform(STEP) == HOLDFAST_SUCCESS);
    EXPECT(holdfast_protect(BY_ROWS, "by rows", by_rows, rows * COLUMNS, HOLDFAST_DOUBLE) == HOLDFAST_SUCCESS);
    shape[0] = rows;
    shape[1] = COLUMNS;
    EXPECT(holdfast_distribute(BY_ROWS, 2, shape, 0) == HOLDFAST_SUCCESS);
    EXPECT(holdfast_protect(BY_COLUMNS, "by columns", NULL, 0, HOLDFAST_INT) == HOLDFAST_SUCCESS);
    shape[0] = PLANES;
    shape[1] = 0;
    shape[2] = DEPTH;
    EXPECT(holdfast_distribute(BY_COLUMNS, 3, shape, 1) == HOLDFAST_SUCCESS);
    EXPECT(holdfast_protect(OWN, "own", &own, 1, HOLDFAST_LONG) == HOLDFAST_SUCCESS);

    EXPECT(holdfast_have_checkpoint(&flag) == HOLDFAST_SUCCESS);
    if (flag) {
        EXPECT(holdfast_stored_size(BY_COLUMNS, &bytes) == HOLDFAST_SUCCESS);
        EXPECT(bytes == PLANES * columns * DEPTH * sizeof *by_columns);
        by_columns = holdfast_realloc(BY_COLUMNS, by_columns);
        EXPECT(by_columns != NULL);
        if (holdfast_recover(&recovered) != HOLDFAST_SUCCESS) {
            /* Another number of ranks has written it. */
            EXPECT(strstr(holdfast_error(), "variable 4 has a value of its own on each of the") != NULL);
            refused++;
            EXPECT(holdfast_stored_size(OWN, &bytes) == HOLDFAST_SUCCESS && bytes == 0);
            EXPECT(holdfast_uniform(OWN) == HOLDFAST_SUCCESS);
            EXPECT(holdfast_recover(NULL) == HOLDFAST_FAILURE);
            EXPECT(strstr(holdfast_error(), "its values on the ranks 0 and 1 differ") != NULL);
            refused++;
            EXPECT(holdfast_unprotect(OWN) == HOLDFAST_SUCCESS);
            if (rank == 0)
                EXPECT(holdfast_protect(BY_ROWS, NULL, by_rows, COLUMNS, HOLDFAST_DOUBLE) == HOLDFAST_SUCCESS);
            EXPECT(holdfast_recover(NULL) == HOLDFAST_FAILURE);
            EXPECT(strstr(holdfast_error(), "elements along the distributed dimension in all, and 2300") != NULL);
            refused++;
            if (rank == 1)
                EXPECT(holdfast_protect(BY_ROWS, NULL, by_rows, COLUMNS + 1, HOLDFAST_DOUBLE) == HOLDFAST_SUCCESS);
            EXPECT(holdfast_recover(NULL) == HOLDFAST_FAILURE);
            EXPECT(strstr(holdfast_error(), rank == 1 ? "the 144 bytes of variable 2 in memory" : "on rank 1") != NULL);
            refused++;
            EXPECT(holdfast_protect(BY_ROWS, NULL, by_rows, rows * COLUMNS, HOLDFAST_DOUBLE) == HOLDFAST_SUCCESS);
            EXPECT(holdfast_recover(&recovered) == HOLDFAST_SUCCESS);
            EXPECT(holdfast_protect(OWN, "own", &own, 1, HOLDFAST_LONG) == HOLDFAST_SUCCESS);
        }
        EXPECT(recovered == step && own == rank);
        for (row = 0; row < rows; row++)
            for (column = 0; column < COLUMNS; column++)
                EXPECT(by_rows[row * COLUMNS + column] == row_value(step, first_row(rank, ranks) + row, column));
        for (plane = 0; plane < PLANES; plane++)
            for (column = 0; column < columns; column++)
                for (depth = 0; depth < DEPTH; depth++)
                    EXPECT(by_columns[(plane * columns + column) * DEPTH + depth] ==
                           column_value(step, plane, first_column(rank, ranks) + column, depth));
    } else {
        by_columns = calloc(PLANES * columns * DEPTH, sizeof *by_columns);
        EXPECT(by_columns != NULL);
        EXPECT(holdfast_protect(BY_COLUMNS, NULL, by_columns, PLANES * columns * DEPTH, HOLDFAST_INT) ==
               HOLDFAST_SUCCESS);
    }
    holdfast_print_errors(1);

    while (step < steps) {
        step++;
        for (row = 0; row < rows; row++)
            for (column = 0; column < COLUMNS; column++)
                by_rows[row * COLUMNS + column] = row_value(step, first_row(rank, ranks) + row, column);
        for (plane = 0; plane < PLANES; plane++)
            for (column = 0; column < columns; column++)
                for (depth = 0; depth < DEPTH; depth++)
                    by_columns[(plane * columns + column) * DEPTH + depth] =
                        column_value(step, plane, first_column(rank, ranks) + column, depth);
        EXPECT(holdfast_checkpoint((int)step, HOLDFAST_LEVEL_PARITY) == HOLDFAST_SUCCESS);
    }

    snprintf(path, sizeof path, "%s/result.%d", arguments[2], rank);
    file = fopen(path, "w");
    EXPECT(file != NULL && fprintf(file, "%d %d\n", recovered, refused) > 0 && fclose(file) == 0);
    EXPECT(holdfast_finalize() == HOLDFAST_SUCCESS);
    free(by_rows);
    free(by_columns);
    return 0;
}
