/* A program for FTI's incremental checkpoints.
 *
 *     fti_incremental STEPS RESULTS WAITS
 *
 * In each step a checkpoint of level 1 to 4. Its variables change between the calls that add them, and are what they
 * were when they were added after a restart. With WAITS 1, rank 2 prints a line between the calls of step 5 of the
 * first launch, and waits there for the loss of its node.
 *
 * RESULTS/result.<rank>: the sum, and the step that it restarted from. Ends with 1 where a condition does not hold. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <fti.h>
#include <holdfast.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fti_incremental.c line %d: %s\n", __LINE__, #condition);                                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { CELLS = 40000 };

static int rank, step, other;
static long sum;
static double *field;

/* Calls that are wrong, none of which has an effect on the checkpoints that are kept. */
static int wrong_calls(void)
{
    int i;

    /* Not activated: nothing is done. */
    EXPECT(FTI_AddVarICP(0) == FTI_SCES && FTI_FinalizeICP() == FTI_SCES);
    EXPECT(FTI_InitICP(7, 1, false) == FTI_SCES && FTI_AddVarICP(77) == FTI_SCES && FTI_FinalizeICP() == FTI_SCES);
    /* Not started: nothing that follows succeeds. */
    EXPECT(FTI_InitICP(7, 9, true) == FTI_NSCS && FTI_AddVarICP(0) == FTI_NSCS && FTI_FinalizeICP() == FTI_NSCS);
    EXPECT(FTI_InitICP(-1, 1, true) == FTI_NSCS && FTI_FinalizeICP() == FTI_NSCS);
    EXPECT(FTI_FinalizeICP() == FTI_SCES);

    /* Rank 4 does not add all its variables. */
    EXPECT(FTI_InitICP(90, 1, true) == FTI_SCES);
    EXPECT(FTI_InitICP(91, 1, true) == FTI_NSCS && FTI_Checkpoint(91, 1) == FTI_NSCS && FTI_Snapshot() == FTI_NSCS);
    EXPECT(FTI_AddVarICP(9) == FTI_NSCS);
    EXPECT(FTI_Protect(9, &other, 1, FTI_INTG) == FTI_SCES && FTI_AddVarICP(9) == FTI_NSCS);
    EXPECT(holdfast_unprotect(9) == HOLDFAST_SUCCESS);
    EXPECT(FTI_Protect(2, field, CELLS - 1, FTI_DBLE) == FTI_SCES && FTI_AddVarICP(2) == FTI_NSCS);
    EXPECT(FTI_Protect(2, field, CELLS, FTI_DBLE) == FTI_SCES && FTI_AddVarICP(2) == FTI_SCES);
    EXPECT(FTI_AddVarICP(2) == FTI_NSCS);
    for (i = 0; i < 2; i++)
        EXPECT((rank == 4 && i == 1) || FTI_AddVarICP(i) == FTI_SCES);
    EXPECT(FTI_FinalizeICP() == FTI_NSCS);
    return 0;
}

int main(int count, char **arguments)
{
    int restarted = 0, i;
    char path[FTI_BUFS * 16];
    FILE *file;

    if (count != 4)
        return 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    EXPECT(FTI_InitICP(1, 1, true) == FTI_NSCS && FTI_InitICP(1, 1, false) == FTI_NSCS);
    EXPECT(FTI_Init(NULL, MPI_COMM_WORLD) == FTI_SCES);
    field = calloc(CELLS, sizeof *field);
    EXPECT(field != NULL);
    EXPECT(FTI_Protect(0, &step, 1, FTI_INTG) == FTI_SCES && FTI_Protect(1, &sum, 1, FTI_LONG) == FTI_SCES);
    EXPECT(FTI_Protect(2, field, CELLS, FTI_DBLE) == FTI_SCES);
    if (FTI_Status() != 0) {
        EXPECT(FTI_Recover() == FTI_SCES);
        restarted = step;
        EXPECT(sum == (long)(rank + 1) * step * (step + 1) / 2);
        for (i = 0; i < CELLS; i++)
            EXPECT(field[i] == step + i / 7.0);
    }

    while (step < atoi(arguments[1])) {
        step++;
        sum += step * (rank + 1);
        for (i = 0; i < CELLS; i++)
            field[i] = step + i / 7.0;
        if (step == 4) {
            /* The checkpoint of step 3 stays the newest one. */
            EXPECT(wrong_calls() == 0);
        }
        EXPECT(FTI_InitICP(step, 1 + (step + 1) % 4, true) == FTI_SCES && FTI_Status() == 0);
        /* Not in the order in which they are protected, and another one on odd ranks. */
        EXPECT(rank % 2 == 0 || FTI_AddVarICP(1) == FTI_SCES);
        EXPECT(FTI_AddVarICP(2) == FTI_SCES);
        field[CELLS / 2] = -1;
        if (atoi(arguments[3]) == 1 && step == 5 && restarted == 0 && rank == 2) {
            puts("a variable was added to checkpoint 5");
            fflush(stdout);
            for (;;)
                pause();
        }
        EXPECT(rank % 2 == 1 || FTI_AddVarICP(1) == FTI_SCES);
        EXPECT(FTI_AddVarICP(0) == FTI_SCES);
        EXPECT(FTI_FinalizeICP() == FTI_SCES);
        EXPECT(FTI_GetStoredSize(2) == (long)(CELLS * sizeof *field));
    }

    /* It is dropped by FTI_Finalize. */
    EXPECT(FTI_InitICP(99, 1, true) == FTI_SCES && FTI_AddVarICP(2) == FTI_SCES);
    snprintf(path, sizeof path, "%s/result.%d", arguments[2], rank);
    file = fopen(path, "w");
    EXPECT(file != NULL && fprintf(file, "%ld %d\n", sum, restarted) > 0 && fclose(file) == 0);
    EXPECT(FTI_Finalize() == FTI_SCES);
    free(field);
    return 0;
}
