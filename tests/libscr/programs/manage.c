/* Datasets by name: output beside checkpoints, Drop, Delete, Current.
 *
 *     manage write | manage pictures | manage current NAME
 *
 * Fails with the number of the line whose condition does not hold. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scr.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                    \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int rank;

static int dataset(const char *name, int flags)
{
    char file[2 * SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    FILE *out;

    snprintf(file, sizeof file, "data/%s/r%d.txt", name, rank);
    if (SCR_Start_output(name, flags) != SCR_SUCCESS || SCR_Route_file(file, path) != SCR_SUCCESS) {
        return 0;
    }
    out = fopen(path, "w");
    if (out == NULL || fprintf(out, "%s of %d", name, rank) < 0 || fclose(out) != 0) {
        return 0;
    }
    return SCR_Complete_output(1) == SCR_SUCCESS;
}

static int reads(const char *wanted)
{
    char file[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME], text[64] = "", expected[64];
    FILE *in;

    snprintf(file, sizeof file, "r%d.txt", rank);
    snprintf(expected, sizeof expected, "%s of %d", wanted, rank);
    if (SCR_Start_restart(NULL) != SCR_SUCCESS || SCR_Route_file(file, path) != SCR_SUCCESS) {
        return 0;
    }
    in = fopen(path, "r");
    if (in == NULL || fgets(text, sizeof text, in) == NULL) {
        return 0;
    }
    fclose(in);
    return SCR_Complete_restart(1) == SCR_SUCCESS && strcmp(text, expected) == 0;
}

int main(int argc, char **argv)
{
    int both = SCR_FLAG_CHECKPOINT | SCR_FLAG_OUTPUT, have = -1, ranks = 0;
    char name[SCR_MAX_FILENAME];

    EXPECT(argc >= 2);
    EXPECT(SCR_Need_checkpoint(&have) != SCR_SUCCESS && have == 0); /* before SCR_Init */
    EXPECT(HOLDFAST_Rank(&rank, NULL) != SCR_SUCCESS);
    EXPECT(SCR_Init() == SCR_SUCCESS);
    EXPECT(HOLDFAST_Rank(&rank, &ranks) == SCR_SUCCESS && rank < ranks && ranks == 6);
    if (strcmp(argv[1], "write") == 0) {
        EXPECT(SCR_Have_restart(&have, NULL) == SCR_SUCCESS && have == 0);
        EXPECT(dataset("one", both));
        EXPECT(dataset("two", both));
        EXPECT(dataset("picture", SCR_FLAG_OUTPUT));
        EXPECT(dataset("three", both));
        EXPECT(dataset("four", both));
        EXPECT(SCR_Start_output("nothing", SCR_FLAG_NONE) != SCR_SUCCESS);
        EXPECT(SCR_Drop("one") == SCR_SUCCESS);
        EXPECT(SCR_Delete("two") == SCR_SUCCESS);
        EXPECT(SCR_Delete("unknown") == SCR_SUCCESS && SCR_Drop("unknown") == SCR_SUCCESS);
        EXPECT(SCR_Current("unknown") == SCR_SUCCESS);
        EXPECT(SCR_Route_file("anywhere/else.txt", name) == SCR_SUCCESS && strcmp(name, "anywhere/else.txt") == 0);
        EXPECT(SCR_Route_file("", name) != SCR_SUCCESS);
    } else if (strcmp(argv[1], "pictures") == 0) {
        int step = 1;
        EXPECT(SCR_Have_restart(&have, name) == SCR_SUCCESS);
        if (have) {
            EXPECT(sscanf(name, "state.%d", &step) == 1);
            EXPECT(reads(name));
            step++;
        }
        for (; step <= 3; step++) {
            snprintf(name, sizeof name, "picture.%d", step);
            EXPECT(dataset(name, SCR_FLAG_OUTPUT));
            snprintf(name, sizeof name, "state.%d", step);
            EXPECT(dataset(name, SCR_FLAG_CHECKPOINT));
        }
    } else {
        EXPECT(argc == 3 && SCR_Current(argv[2]) == SCR_SUCCESS);
        EXPECT(SCR_Have_restart(&have, name) == SCR_SUCCESS && have == 1 && strcmp(name, argv[2]) == 0);
        EXPECT(reads(argv[2]));
    }
    EXPECT(SCR_Finalize() == SCR_SUCCESS);
    EXPECT(SCR_Need_checkpoint(&have) != SCR_SUCCESS);
    return 0;
}
