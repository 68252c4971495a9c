/* A program for SCR that forks: before SCR_Init, for which it is a daemon, and afterwards, for a helper.
 *
 *     forked STEPS RESULTS
 *
 * RESULTS/result.<rank>: the sum. Ends with 1 where a condition does not hold. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "scr.h"
#include "forked.h"

static void finalize(void)
{
    SCR_Finalize();
}

static void helper(void)
{
    int flag = 0;
    char path[SCR_MAX_FILENAME];

    EXPECT(SCR_Start_checkpoint() != SCR_SUCCESS);
    EXPECT(SCR_Route_file("helper.ckpt", path) != SCR_SUCCESS);
    EXPECT(SCR_Complete_checkpoint(1) != SCR_SUCCESS);
    EXPECT(SCR_Need_checkpoint(&flag) != SCR_SUCCESS);
    EXPECT(SCR_Init() != SCR_SUCCESS);
    EXPECT(SCR_Finalize() == SCR_SUCCESS);
}

int main(int count, char **arguments)
{
    int rank = atoi(getenv("HOLDFAST_RANK")), step;
    long sum = 0;
    char name[64], path[SCR_MAX_FILENAME];
    FILE *file;
    pid_t child;

    if (count != 3)
        return 2;
    SCR_Config("SCR_DEBUG=0");
    child = fork();
    if (child != 0)
        return ends_with(child);

    EXPECT(SCR_Init() == SCR_SUCCESS);
    atexit(finalize);
    snprintf(name, sizeof name, "state.%d", rank);
    for (step = 1; step <= atoi(arguments[1]); step++) {
        sum += step * (rank + 1);
        EXPECT(SCR_Start_checkpoint() == SCR_SUCCESS);
        if (step == 2) {
            child = fork();
            if (child == 0) {
                helper();
                exit(3);
            }
            EXPECT(ends_with(child) == 3);
        }
        EXPECT(SCR_Route_file(name, path) == SCR_SUCCESS);
        file = fopen(path, "w");
        EXPECT(file != NULL && fprintf(file, "%ld\n", sum) > 0 && fclose(file) == 0);
        EXPECT(SCR_Complete_checkpoint(1) == SCR_SUCCESS);
    }
    snprintf(path, sizeof path, "%s/result.%d", arguments[2], rank);
    file = fopen(path, "w");
    EXPECT(file != NULL && fprintf(file, "%ld\n", sum) > 0 && fclose(file) == 0);
    return 0;
}
