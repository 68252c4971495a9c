/* A program for FTI that forks: before FTI_Init, for which it is a daemon, and afterwards, for helpers.
 *
 *     fti_forked STEPS RESULTS
 *
 * RESULTS/result.<rank>: the sum. Ends with 1 where a condition does not hold. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fti.h>
#include <holdfast.h>
#include "forked.h"

static void finalize(void)
{
    FTI_Finalize();
}

/* Every call fails; only the first one prints. */
static void helper(int *step)
{
    int flag = 7;
    char memory;

    EXPECT(FTI_Checkpoint(99, 1) == FTI_NSCS);
    EXPECT(strstr(holdfast_error(), "was forked from process") != NULL);
    holdfast_print_errors(0);
    EXPECT(FTI_Init(NULL, MPI_COMM_WORLD) == FTI_NSCS);
    EXPECT(FTI_Protect(1, step, 1, FTI_INTG) == FTI_NSCS);
    EXPECT(FTI_Status() == 0 && FTI_GetStoredSize(0) == 0);
    EXPECT(FTI_Recover() < 0 && FTI_Snapshot() == FTI_NSCS);
    EXPECT(FTI_Realloc(0, &memory) != (void *)step);
    EXPECT(holdfast_should_exit(&flag) == HOLDFAST_FAILURE);
    EXPECT(FTI_Finalize() == FTI_SCES && holdfast_finalize() == HOLDFAST_SUCCESS);
    holdfast_print_errors(1);
}

int main(int count, char **arguments)
{
    int rank, step = 0;
    long sum = 0;
    char path[FTI_BUFS * 16];
    FILE *file;
    pid_t child;

    if (count != 3)
        return 2;
    EXPECT(FTI_Status() == 0);
    child = fork();
    if (child != 0)
        return ends_with(child);

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    EXPECT(FTI_Init(NULL, MPI_COMM_WORLD) == FTI_SCES);
    EXPECT(FTI_Protect(0, &step, 1, FTI_INTG) == FTI_SCES && FTI_Protect(1, &sum, 1, FTI_LONG) == FTI_SCES);
    atexit(finalize);
    while (step < atoi(arguments[1])) {
        step++;
        sum += step * (rank + 1);
        if (step == 2) {
            child = fork();
            if (child == 0) {
                helper(&step);
                exit(3);
            }
            EXPECT(ends_with(child) == 3);
        }
        if (step == 3) {
            child = fork();
            if (child == 0) {
                execlp("/nonexistent/helper", "helper", (char *)NULL);
                exit(1);
            }
            EXPECT(ends_with(child) == 1);
        }
        EXPECT(FTI_Checkpoint(step, 1 + step % 3) == FTI_DONE);
    }
    snprintf(path, sizeof path, "%s/result.%d", arguments[2], rank);
    file = fopen(path, "w");
    EXPECT(file != NULL && fprintf(file, "%ld\n", sum) > 0 && fclose(file) == 0);
    return 0;
}
