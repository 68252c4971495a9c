/* Variables that grow, shrink, appear and disappear between checkpoints. Their content follows from rank and step, and
 * is compared after each recovery.
 *
 *     changing LAUNCHES RESULTS
 *
 * Each launch but the last one takes four checkpoints, and is then killed. RESULTS/result.<rank>: the step at the end,
 * and the number of launches that recovered. Ends with the number of the line whose condition does not hold. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "holdfast.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "changing.c line %d: %s: %s\n", __LINE__, #condition, holdfast_error());                   \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* In the order in which they are protected. */
enum { STEP, SIZES, SOMETIMES, LATE, STILL, VARIABLES };
enum { MOST = 300000 };

static unsigned char memory[VARIABLES][MOST];
static long step;
static int rank;

/* The bytes of a variable at this step; 0: it is not there. */
static size_t size_of(int id, long at)
{
    switch (id) {
    case STEP:
        return sizeof step;
    case SIZES:
        return 1 + (size_t)((at * 7919) % 11) * 26000; /* up and down, over the limits of blocks */
    case SOMETIMES:
        return at % 3 == 0 ? 0 : 70000;
    case LATE:
        return at < 5 ? 0 : (size_t)at * 9000;
    default:
        return 200000;
    }
}

/* Some bytes never change, some change in every step, some now and then. */
static unsigned char content(int id, long at, size_t position)
{
    size_t part = position / 1000;
    long changed = part % 5 == 0 ? at : part % 5 == 1 ? at / 4 : 0;

    return (unsigned char)(changed * 31 + (long)part * 7 + id * 13 + rank * 3 + (long)(position % 251));
}

/* Gives the variables the sizes of this step, and with `fill` their content. */
static int protect_all(long at, int fill)
{
    int id;
    size_t i, bytes;

    for (id = SIZES; id < VARIABLES; id++) {
        bytes = size_of(id, at);
        if (bytes == 0) {
            holdfast_print_errors(0);
            holdfast_unprotect(id);
            holdfast_print_errors(1);
            continue;
        }
        for (i = 0; fill && i < bytes; i++)
            memory[id][i] = content(id, at, i);
        if (holdfast_protect(id, NULL, memory[id], bytes, HOLDFAST_CHAR) != HOLDFAST_SUCCESS)
            return 0;
    }
    return 1;
}

static long number(const char *path)
{
    FILE *file = fopen(path, "r");
    long found = 0;

    if (file != NULL && fscanf(file, "%ld", &found) != 1)
        found = 0;
    if (file != NULL)
        fclose(file);
    return found;
}

int main(int count, char **arguments)
{
    char launches_path[4096], result_path[4096];
    long launch, launches;
    int flag, recovered, checkpoint, id;
    size_t bytes, i;
    FILE *file;

    EXPECT(count == 3);
    launches = atol(arguments[1]);
    EXPECT(holdfast_init() == HOLDFAST_SUCCESS && holdfast_rank(&rank, NULL) == HOLDFAST_SUCCESS);
    snprintf(launches_path, sizeof launches_path, "%s/launches.%d", arguments[2], rank);
    snprintf(result_path, sizeof result_path, "%s/result.%d", arguments[2], rank);
    launch = number(launches_path) + 1;
    file = fopen(launches_path, "w");
    EXPECT(file != NULL && fprintf(file, "%ld\n", launch) > 0 && fclose(file) == 0);

    EXPECT(holdfast_protect(STEP, "step", &step, 1, HOLDFAST_LONG) == HOLDFAST_SUCCESS);
    EXPECT(holdfast_have_checkpoint(&flag) == HOLDFAST_SUCCESS && flag == (launch > 1));
    if (flag) {
        /* The newest checkpoint is that before the kill. */
        EXPECT(protect_all(4 * (launch - 1), 0));
        for (id = SIZES; id < VARIABLES; id++) {
            EXPECT(holdfast_stored_size(id, &bytes) == HOLDFAST_SUCCESS);
            EXPECT(bytes == size_of(id, 4 * (launch - 1)));
        }
        EXPECT(holdfast_recover(&recovered) == HOLDFAST_SUCCESS);
        EXPECT(recovered == 4 * (launch - 1) && step == recovered);
        for (id = SIZES; id < VARIABLES; id++)
            for (i = 0; i < size_of(id, step); i++)
                EXPECT(memory[id][i] == content(id, step, i));
    }
    for (checkpoint = 1; checkpoint <= 4; checkpoint++) {
        step++;
        EXPECT(protect_all(step, 1));
        EXPECT(holdfast_checkpoint((int)step, HOLDFAST_LEVEL_PARITY) == HOLDFAST_SUCCESS);
    }
    if (launch < launches) {
        kill(getpid(), SIGKILL);
        pause();
    }
    file = fopen(result_path, "w");
    EXPECT(file != NULL && fprintf(file, "%ld %ld\n", step, launch - 1) > 0 && fclose(file) == 0);
    EXPECT(holdfast_finalize() == HOLDFAST_SUCCESS);
    return 0;
}
