/* A program for FTI that another number of ranks restarts.
 *
 *     fti_other_ranks RESULTS CONFIGURATION EXPECTED
 *
 * RESULTS/result.<rank>: the step that was recovered; "refused" if it was not. */

#include <stdio.h>

#include <fti.h>

int main(int count, char **arguments)
{
    int rank, step = 0, refused = 0;
    char path[4096];
    FILE *file;

    if (count != 4 || FTI_Init(arguments[2], MPI_COMM_WORLD) != FTI_SCES)
        return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    FTI_Protect(0, &step, 1, FTI_INTG);
    if (FTI_Status() != 0)
        refused = FTI_Recover() != FTI_SCES;
    snprintf(path, sizeof path, "%s/result.%d", arguments[1], rank);
    file = fopen(path, "w");
    if (file == NULL || (refused ? fprintf(file, "refused\n") : fprintf(file, "%d\n", step)) < 0 || fclose(file) != 0)
        return 1;
    if (!refused) {
        step++;
        FTI_Checkpoint(step, 3);
    }
    return FTI_Finalize() == FTI_SCES ? 0 : 1;
}
