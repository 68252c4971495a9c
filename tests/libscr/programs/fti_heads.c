/* A program for FTI with head processes, two ranks a node.
 *
 *     fti_heads STEPS RESULTS CONFIGURATION      FTI_Checkpoint and incremental checkpoints in turn
 *     fti_heads STEPS RESULTS CONFIGURATION s    FTI_Snapshot in every step
 *
 * RESULTS/result.<rank of the run>: rank in FTI_COMM_WORLD, the sum, and the step that it restarted from; in a head
 * process that returns from FTI_Init, `head`. Ends with 1 where a condition does not hold. */

#include <stdio.h>
#include <stdlib.h>

#include <fti.h>
#include <holdfast.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fti_heads.c line %d: %s\n", __LINE__, #condition);                                        \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int write_result(const char *results, const char *text)
{
    char path[FTI_BUFS * 16];
    FILE *file;

    snprintf(path, sizeof path, "%s/result.%s", results, getenv("HOLDFAST_RANK"));
    file = fopen(path, "w");
    EXPECT(file != NULL && fprintf(file, "%s\n", text) > 0 && fclose(file) == 0);
    return 0;
}

int main(int count, char **arguments)
{
    int rank, ranks, initialised, step = 0, restarted = 0, taken = 0, exits = 1, result;
    long sum = 0;
    char text[FTI_BUFS];

    if (count < 4)
        return 2;
    /* A communicator of other ranks: it fails in head processes, too, and can be repeated. */
    EXPECT(FTI_Init(arguments[3], MPI_COMM_SELF) == FTI_NSCS);
    /* As of a header without head processes. */
    EXPECT(holdfast_fti_init(arguments[3], -1, -1) == FTI_NSCS);
    initialised = FTI_Init(arguments[3], MPI_COMM_WORLD);
    if (initialised == FTI_HEAD)
        return write_result(arguments[2], "head");
    EXPECT(initialised == FTI_SCES && FTI_COMM_WORLD != MPI_COMM_WORLD);
    MPI_Comm_rank(FTI_COMM_WORLD, &rank);
    MPI_Comm_size(FTI_COMM_WORLD, &ranks);
    EXPECT(ranks == 3);

    /* Errors of the application do not reach the head processes. */
    EXPECT(FTI_Checkpoint(1, 1) == FTI_NSCS && FTI_InitICP(1, 1, true) == FTI_NSCS && FTI_FinalizeICP() == FTI_NSCS);
    EXPECT(FTI_Protect(0, &step, 1, FTI_INTG) == FTI_SCES && FTI_Protect(1, &sum, 1, FTI_LONG) == FTI_SCES);
    EXPECT(FTI_Checkpoint(-1, 1) == FTI_NSCS && FTI_Checkpoint(1, 7) == FTI_NSCS);
    if (FTI_Status() != 0) {
        EXPECT(FTI_RecoverVar(1) == FTI_SCES && sum > 0);
        EXPECT((count == 5 ? FTI_Snapshot() : FTI_Recover()) == FTI_SCES);
        restarted = step;
    } else {
        EXPECT(FTI_Recover() == FTI_NREC);
    }
    while (step < atoi(arguments[1])) {
        step++;
        sum += step * (rank + 1);
        if (count == 5) {
            result = FTI_Snapshot();
            EXPECT(result == FTI_SCES || result == FTI_DONE);
            taken += result == FTI_DONE;
        } else if (step % 2 == 0) {
            EXPECT(FTI_Checkpoint(step, 1 + step % 4) == FTI_DONE);
        } else {
            EXPECT(FTI_InitICP(step, 2 + step % 3, true) == FTI_SCES && FTI_AddVarICP(1) == FTI_SCES);
            EXPECT(FTI_AddVarICP(0) == FTI_SCES && FTI_FinalizeICP() == FTI_SCES);
        }
    }
    EXPECT(count < 5 || taken > 0);
    EXPECT(holdfast_should_exit(&exits) == HOLDFAST_SUCCESS && exits == 0);
    snprintf(text, sizeof text, "%d %ld %d", rank, sum, restarted);
    EXPECT(write_result(arguments[2], text) == 0);
    EXPECT(FTI_Finalize() == FTI_SCES);
    return 0;
}
