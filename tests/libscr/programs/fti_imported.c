/* A program for FTI 1.1 that recovers variables of any ids below 100 and any sizes, and ends.
 *
 *     fti_imported RESULTS
 *
 * RESULTS/var.<rank>.<id>: the bytes of a variable. RESULTS/result.<rank>: 1 if there was a checkpoint, else 0. Ends
 * with 1 where a condition does not hold. */

#include <stdio.h>

#include <fti.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fti_imported.c line %d: %s\n", __LINE__, #condition);                                     \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { VARIABLES = 100 };

int main(int count, char **arguments)
{
    int rank, id, restarted;
    long sizes[VARIABLES];
    char *variables[VARIABLES], path[FTI_BUFS * 16];
    FILE *file;

    if (count != 2)
        return 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    EXPECT(FTI_Init(NULL, MPI_COMM_WORLD) == FTI_SCES);
    restarted = FTI_Status();
    for (id = 0; id < VARIABLES; id++) {
        sizes[id] = FTI_GetStoredSize(id);
        variables[id] = malloc(sizes[id] + 1);
        if (sizes[id] > 0)
            EXPECT(FTI_Protect(id, variables[id], sizes[id], FTI_CHAR) == FTI_SCES);
    }
    EXPECT(!restarted || FTI_Recover() == FTI_SCES);
    for (id = 0; id < VARIABLES; id++) {
        if (sizes[id] == 0)
            continue;
        snprintf(path, sizeof path, "%s/var.%d.%d", arguments[1], rank, id);
        file = fopen(path, "w");
        EXPECT(file != NULL && fwrite(variables[id], sizes[id], 1, file) == 1 && fclose(file) == 0);
    }
    snprintf(path, sizeof path, "%s/result.%d", arguments[1], rank);
    file = fopen(path, "w");
    EXPECT(file != NULL && fprintf(file, "%d\n", restarted) > 0 && fclose(file) == 0);
    EXPECT(FTI_Finalize() == FTI_SCES);
    return 0;
}
