/* A program for FTI whose variables have identifiers, names and shapes.
 *
 *     fti_named RESULTS LAUNCH
 *
 * LAUNCH 0 protects its variables in one order, and each later one in another one: their ids are found by their
 * identifiers. From LAUNCH 1 on it recovers what the launch before has saved, variable by variable.
 *
 * RESULTS/result.<rank>: LAUNCH. Ends with 1 where a condition does not hold. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fti.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fti_named.c line %d: %s\n", __LINE__, #condition);                                        \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { VARIABLES = 5, LONGEST = 64 };

static const char *const identifiers[VARIABLES] = {"pressure", "velocity", "step", "Temperatur in \302\260C", "mesh"};

/* The size of a variable differs from that of the others. */
static int elements(int variable)
{
    return 10 + 7 * variable;
}

static int value(int rank, int launch, int variable, int element)
{
    return (rank * 10 + launch) * 1000 + variable * 100 + element;
}

int main(int count, char **arguments)
{
    static int memory[VARIABLES][LONGEST];
    int rank, launch, ids[VARIABLES], i, k;
    FTIT_attribute attribute;
    char path[FTI_BUFS * 16], longest[FTI_BUFS + 1];
    FILE *file;

    if (count != 3)
        return 2;
    launch = atoi(arguments[2]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    EXPECT(FTI_setIDFromString("pressure") == FTI_NSCS && FTI_getIDFromString("pressure") == -1);
    EXPECT(FTI_RecoverVarInit() == FTI_NSCS && FTI_RecoverVarFinalize() == FTI_NSCS);
    EXPECT(FTI_Init(NULL, MPI_COMM_WORLD) == FTI_SCES && FTI_Status() == (launch > 0));

    /* An id that the program chooses itself is not given to another variable. */
    EXPECT(FTI_Protect(1, &launch, 1, FTI_INTG) == FTI_SCES);
    EXPECT(FTI_getIDFromString("never set") == -1);
    EXPECT(FTI_RecoverVarInit() == FTI_SCES);
    for (k = 0; k < VARIABLES; k++) {
        i = (2 * k + launch) % VARIABLES;
        EXPECT((FTI_getIDFromString(identifiers[i]) >= 0) == (launch > 0));
        /* Some are set again in the restart, others only looked up. */
        ids[i] = launch > 0 && k % 2 ? FTI_getIDFromString(identifiers[i]) : FTI_setIDFromString(identifiers[i]);
        EXPECT(ids[i] >= 0 && ids[i] != 1 && FTI_setIDFromString(identifiers[i]) == ids[i]);
        EXPECT(FTI_getIDFromString(identifiers[i]) == ids[i]);
        EXPECT(FTI_Protect(ids[i], memory[i], elements(i), FTI_INTG) == FTI_SCES);
        if (launch > 0) {
            EXPECT(FTI_GetStoredSize(ids[i]) == (long)(elements(i) * sizeof(int)));
            EXPECT(FTI_RecoverVar(ids[i]) == FTI_SCES);
            for (int at = 0; at < elements(i); at++)
                EXPECT(memory[i][at] == value(rank, launch - 1, i, at));
        }
    }
    EXPECT(FTI_RecoverVarFinalize() == FTI_SCES);
    for (i = 0; i < VARIABLES; i++)
        for (k = 0; k < i; k++)
            EXPECT(ids[i] != ids[k]);

    /* The name in one call, the shape in another one, which does not change the name; or both at once. */
    memset(&attribute, 0, sizeof attribute);
    snprintf(attribute.name, sizeof attribute.name, "p of rank %d", rank);
    EXPECT(FTI_SetAttribute(ids[0], attribute, FTI_ATTRIBUTE_NAME) == FTI_SCES);
    attribute.dim.ndims = 2;
    attribute.dim.count[0] = 5;
    attribute.dim.count[1] = 2;
    strcpy(attribute.name, "not set");
    EXPECT(FTI_SetAttribute(ids[0], attribute, FTI_ATTRIBUTE_DIM) == FTI_SCES);
    attribute.dim.ndims = 32;
    strcpy(attribute.name, "v");
    EXPECT(FTI_SetAttribute(ids[1], attribute, (FTIT_attributeFlag)(FTI_ATTRIBUTE_NAME | FTI_ATTRIBUTE_DIM)) ==
           FTI_SCES);

    /* Refused; what was set stays. */
    EXPECT(FTI_SetAttribute(77, attribute, FTI_ATTRIBUTE_NAME) == FTI_NSCS);
    EXPECT(FTI_SetAttribute(ids[0], attribute, (FTIT_attributeFlag)4) == FTI_NSCS);
    attribute.dim.ndims = 33;
    EXPECT(FTI_SetAttribute(ids[0], attribute, FTI_ATTRIBUTE_DIM) == FTI_NSCS);
    attribute.dim.ndims = 0;
    EXPECT(FTI_SetAttribute(ids[0], attribute, FTI_ATTRIBUTE_DIM) == FTI_NSCS);
    attribute.dim.ndims = 1;
    attribute.dim.count[0] = -1;
    EXPECT(FTI_SetAttribute(ids[0], attribute, FTI_ATTRIBUTE_DIM) == FTI_NSCS);
    memset(attribute.name, 'n', sizeof attribute.name);
    EXPECT(FTI_SetAttribute(ids[0], attribute, FTI_ATTRIBUTE_NAME) == FTI_NSCS);
    memset(longest, 'n', FTI_BUFS);
    longest[FTI_BUFS] = 0;
    EXPECT(FTI_setIDFromString(longest) == FTI_NSCS && FTI_setIDFromString("") == FTI_NSCS);
    EXPECT(FTI_setIDFromString(NULL) == FTI_NSCS && FTI_getIDFromString("\377") == -1);

    for (i = 0; i < VARIABLES; i++)
        for (k = 0; k < elements(i); k++)
            memory[i][k] = value(rank, launch, i, k);
    EXPECT(FTI_Checkpoint(launch + 1, 3) == FTI_DONE);
    snprintf(path, sizeof path, "%s/result.%d", arguments[1], rank);
    file = fopen(path, "w");
    EXPECT(file != NULL && fprintf(file, "%d\n", launch) > 0 && fclose(file) == 0);
    EXPECT(FTI_Finalize() == FTI_SCES);
    return 0;
}
