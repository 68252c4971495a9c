/* A program for FTI 1.1 that recovers single variables.
 *
 *     fti_recover_var NODES RESULTS FILE
 *
 * NODES: the directory of the virtual nodes. The first launch takes checkpoint 1 of level 3 and checkpoint 2 of level
 * 1; then rank 1 damages FILE, one of its files of checkpoint 2, and the program fails. The second launch recovers
 * checkpoint 1.
 *
 * RESULTS/result.<rank>: the step that it restarted from. Ends with 1 where a condition does not hold. */

#include <stdio.h>
#include <unistd.h>

#include <fti.h>
#include <holdfast.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fti_recover_var.c line %d: %s\n", __LINE__, #condition);                                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { CELLS = 5000 };

/* Changes the byte in the middle of this rank's file of a checkpoint. */
static int damage(const char *nodes, const char *name)
{
    char command[FTI_BUFS * 16], path[FTI_BUFS * 16];
    FILE *found, *file;

    snprintf(command, sizeof command, "find '%s' -name %s", nodes, name);
    found = popen(command, "r");
    EXPECT(found != NULL && fscanf(found, "%4000s", path) == 1 && pclose(found) == 0);
    file = fopen(path, "r+");
    EXPECT(file != NULL && fseek(file, 0, SEEK_END) == 0 && fseek(file, ftell(file) / 2, SEEK_SET) == 0);
    EXPECT(fputc(0x5a, file) == 0x5a && fclose(file) == 0);
    return 0;
}

int main(int count, char **arguments)
{
    int rank, step = -1, other = 7, i;
    double *field;
    FTIT_attribute attribute = {{0, {0}}, "field"};
    char path[FTI_BUFS * 16];
    FILE *file;

    if (count != 4)
        return 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    EXPECT(FTI_RecoverVar(0) == FTI_NSCS);
    EXPECT(FTI_Init(NULL, MPI_COMM_WORLD) == FTI_SCES);
    field = calloc(CELLS, sizeof *field);
    EXPECT(FTI_Protect(0, &step, 1, FTI_INTG) == FTI_SCES);
    EXPECT(FTI_Protect(1, field, CELLS, FTI_DBLE) == FTI_SCES);
    EXPECT(FTI_SetAttribute(1, attribute, FTI_ATTRIBUTE_NAME) == FTI_SCES);
    if (FTI_Status() == 0) {
        EXPECT(FTI_RecoverVar(0) == FTI_SCES && FTI_RecoverVar(9) == FTI_SCES && step == -1);
        for (step = 1; step <= 2; step++) {
            for (i = 0; i < CELLS; i++)
                field[i] = step * 1000 + rank + i / 7.0;
            EXPECT(FTI_Checkpoint(step, step == 1 ? 3 : 1) == FTI_DONE);
        }
        /* The others must not end first: rank 1 would be killed before its file is damaged. */
        while (rank != 1)
            pause();
        return damage(arguments[1], arguments[3]) + 3;
    }

    /* Not protected; not in the checkpoint; of another size: nothing is changed. */
    EXPECT(FTI_RecoverVar(9) == FTI_NREC);
    EXPECT(FTI_Protect(9, &other, 1, FTI_INTG) == FTI_SCES && FTI_RecoverVar(9) == FTI_NREC && other == 7);
    EXPECT(holdfast_unprotect(9) == HOLDFAST_SUCCESS);
    EXPECT(FTI_Protect(1, field, CELLS - 1, FTI_DBLE) == FTI_SCES && FTI_RecoverVar(1) == FTI_NREC && field[1] == 0);
    field = FTI_Realloc(1, field);
    EXPECT(FTI_GetStoredSize(1) == (long)(CELLS * sizeof *field));

    /* The variables one by one. The call is not collective: the odd ranks make another number of calls. */
    EXPECT(FTI_RecoverVar(1) == FTI_SCES && step == -1 && FTI_Status() == 1);
    for (i = 0; i < CELLS; i++)
        EXPECT(field[i] == 1000 + rank + i / 7.0);
    EXPECT(rank % 2 == 0 || (FTI_RecoverVar(0) == FTI_SCES && step == 1));
    step = -1;
    EXPECT(FTI_RecoverVar(0) == FTI_SCES && step == 1);

    /* The next checkpoint ends the restart. */
    step = 3;
    EXPECT(FTI_Checkpoint(3, 4) == FTI_DONE && FTI_Status() == 0);
    step = 4;
    EXPECT(FTI_RecoverVar(0) == FTI_SCES && step == 4);
    snprintf(path, sizeof path, "%s/result.%d", arguments[2], rank);
    file = fopen(path, "w");
    EXPECT(file != NULL && fprintf(file, "recovered 1\n") > 0 && fclose(file) == 0);
    EXPECT(FTI_Finalize() == FTI_SCES);
    free(field);
    return 0;
}
