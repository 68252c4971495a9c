/*
 * The demonstration of the Fault-tolerant Scheme: three layers of a network, and a checkpoint after each.
 *
 *     cc main_c.c -lholdfast_pairs -o main_c
 *     ./main_c <main|replica> <0-99> [milliseconds between layers [milliseconds between rounds]]
 *
 * It prints x: 1, 3, 6, then 7, 9, 12, then 13, 15, 18. Each round may be done by another copy.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "holdfast_pairs.h"

#define LAYERS 3
#define ROUNDS 3

static long long add_1(long long x) { return x + 1; }
static long long add_2(long long x) { return x + 2; }
static long long add_3(long long x) { return x + 3; }

static void pause_for(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

int main(int argc, char **argv)
{
    static long long (*const layers[LAYERS])(long long) = {add_1, add_2, add_3};
    long long x = 0;
    int layer = LAYERS, done;
    long between_layers = 1000, between_rounds = 1000;
    unsigned int pid = (unsigned int)getpid();

    if (argc < 3 || (strcmp(argv[1], "main") != 0 && strcmp(argv[1], "replica") != 0)) {
        fprintf(stderr, "usage: %s <main|replica> <0-99> [milliseconds [milliseconds]]\n", argv[0]);
        return 64;
    }
    if (argc > 3)
        between_layers = between_rounds = atol(argv[3]);
    if (argc > 4)
        between_rounds = atol(argv[4]);

    /* Sleeps until it is this copy's turn. */
    if (ft_init_wait(pid, pid, argv[1], atoi(argv[2])) != HOLDFAST_PAIRS_SUCCESS)
        return 1;
    tag_job_begin(pid, pid, argv[1], 0, true, true, 0);
    /* x and the layer after which it was stored, by whichever copy; unchanged if there is none. */
    if (newest_checkpoint(&x, &layer) == HOLDFAST_PAIRS_FAILURE)
        return 1;
    /* A round adds 6. */
    done = (int)(x / 6) * LAYERS + layer % LAYERS;
    while (done < ROUNDS * LAYERS) {
        x = layers[done % LAYERS](x);
        done++;
        printf("%lld\n", x);
        fflush(stdout);
        if (update_checkpoint(x, (done - 1) % LAYERS + 1) != HOLDFAST_PAIRS_SUCCESS)
            return 1;
        if (done < ROUNDS * LAYERS)
            pause_for(done % LAYERS == 0 ? between_rounds : between_layers);
    }
    return tag_job_end(pid, pid, argv[1]);
}
