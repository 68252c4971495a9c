/* Outputs whose files lie where the program names them, with one checkpoint that is output too in each step; steps from
 * 1 to STEPS.
 *
 *     outputs PREFIX STEPS | outputs PREFIX dropped
 *
 * With `dropped`, rank 3 reports that its files are not valid: no dataset is kept, and the program succeeds.
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

/* Names outside of the prefix directory, and names that are reserved below it. */
static const char *const REFUSED[] = {
    "../plot", "plots/../../plot", "/tmp/plot", "/", "plots/..", ".holdfast/plot", "scr.current/plot", "plots/a\nb",
};

static int rank;

/* Writes the open dataset's file of this name. */
static int write_file(const char *file, const char *text)
{
    char path[SCR_MAX_FILENAME];
    FILE *out;

    if (SCR_Route_file(file, path) != SCR_SUCCESS) {
        return 0;
    }
    out = fopen(path, "w");
    return out != NULL && fprintf(out, "%s of %d", text, rank) > 0 && fclose(out) == 0;
}

static int read_step(long *step)
{
    char name[SCR_MAX_FILENAME], file[SCR_MAX_FILENAME + 32], path[SCR_MAX_FILENAME], text[64] = "", expected[64];
    FILE *in;
    int have = 0;

    if (SCR_Have_restart(&have, name) != SCR_SUCCESS) {
        return 0;
    }
    if (!have) {
        return 1;
    }
    snprintf(file, sizeof file, "%s/rank_%d", name, rank);
    if (SCR_Start_restart(name) != SCR_SUCCESS || SCR_Route_file(file, path) != SCR_SUCCESS) {
        return 0;
    }
    in = fopen(path, "r");
    if (in == NULL || fgets(text, sizeof text, in) == NULL || fclose(in) != 0) {
        return 0;
    }
    snprintf(expected, sizeof expected, "%.40s of %d", name, rank);
    return SCR_Complete_restart(1) == SCR_SUCCESS && strcmp(text, expected) == 0
        && sscanf(name, "state.%ld", step) == 1;
}

int main(int argc, char **argv)
{
    char name[64], file[SCR_MAX_FILENAME];
    long step = 0;
    size_t at;

    EXPECT(argc == 3);
    EXPECT(SCR_Init() == SCR_SUCCESS && HOLDFAST_Rank(&rank, NULL) == SCR_SUCCESS);
    EXPECT(read_step(&step));
    if (strcmp(argv[2], "dropped") == 0) {
        for (step = 1; step <= 2; step++) {
            snprintf(name, sizeof name, "state.%ld", step);
            EXPECT(SCR_Start_output(name, step == 1 ? SCR_FLAG_CHECKPOINT : SCR_FLAG_OUTPUT) == SCR_SUCCESS);
            snprintf(file, sizeof file, "%s/rank_%d", name, rank);
            EXPECT(write_file(file, name));
            EXPECT(SCR_Complete_output(rank != 3) != SCR_SUCCESS);
        }
        /* No further steps: the argument is no number. */
    }
    while (step < atol(argv[2])) {
        step++;
        snprintf(name, sizeof name, "plot.%ld", step);
        EXPECT(SCR_Start_output(name, SCR_FLAG_OUTPUT) == SCR_SUCCESS);
        for (at = 0; at < sizeof REFUSED / sizeof REFUSED[0]; at++) {
            EXPECT(SCR_Route_file(REFUSED[at], file) != SCR_SUCCESS);
        }
        if (step == 2) {
            /* The file of the output before. */
            snprintf(file, sizeof file, "plots/1.%d", rank);
            EXPECT(SCR_Route_file(file, file) != SCR_SUCCESS);
        }
        /* All outputs share a directory; an absolute name below the prefix is as good as a relative one. */
        snprintf(file, sizeof file, "%s%splots/%ld.%d", step % 2 ? "" : argv[1], step % 2 ? "" : "/", step, rank);
        EXPECT(write_file(file, name));
        EXPECT(SCR_Complete_output(1) == SCR_SUCCESS);
        snprintf(name, sizeof name, "state.%ld", step);
        EXPECT(SCR_Start_output(name, SCR_FLAG_CHECKPOINT | SCR_FLAG_OUTPUT) == SCR_SUCCESS);
        snprintf(file, sizeof file, "%s/rank_%d", name, rank);
        EXPECT(write_file(file, name));
        EXPECT(SCR_Complete_output(1) == SCR_SUCCESS);
    }
    EXPECT(SCR_Finalize() == SCR_SUCCESS);
    return 0;
}
