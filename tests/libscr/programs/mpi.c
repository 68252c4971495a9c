/* A heat equation on a ring, in MPI, written for SCR 3.1: nothing in it knows of Holdfast, but for the lines that
 * compare the ranks of libscr with those of MPI.
 *
 *     mpi plain|own|shared STEPS RESULT [OPTION VALUE]...
 *
 *     plain     checkpoints without names, by the functions of SCR 1, three files a rank
 *     own       checkpoints step.<n>, the same files; output picture.<n> before every second one; at the end the
 *               index forgets picture.20, and picture.40 is deleted, but not with --current
 *     shared    checkpoints step.<n>, all ranks write one file through MPI-IO, and rank 0 one of its own
 *
 *     --current NAME     reports that it restarted from this checkpoint, before it asks for a restart
 *     --delay MS         what a step takes longer
 *     --hang-at STEP     rank 1 goes no further, unless the file of --hang-once is there, which it makes
 *     --hang-once FILE
 *
 * RESULT, written by rank 0: a hash of all bits of the field, the number of ranks, the step that it restarted from and
 * the name of that checkpoint. Ends with the number of the line whose condition does not hold. */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scr.h"

enum { CELLS = 2048, EVERY = 10, REQUESTS = 5 };

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "mpi.c line %d, rank %d: %s\n", __LINE__, rank, #condition);                               \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                              \
        }                                                                                                              \
    } while (0)

typedef enum { PLAIN, OWN, SHARED } Mode;

static int rank, ranks;
static Mode mode;
static long step;
static double cells[CELLS + 2];

/* ---- computing ---- */

/* MPI libraries compute while they wait. These ranks share two processors with many others: that is left to them. */
static void await(int count, MPI_Request *requests)
{
    MPI_Status statuses[REQUESTS];
    int done = 0;
    EXPECT(MPI_Testall(count, requests, &done, statuses) == MPI_SUCCESS);
    while (!done) {
        usleep(1000);
        EXPECT(MPI_Testall(count, requests, &done, statuses) == MPI_SUCCESS);
    }
}

static void begin(void)
{
    int i;
    step = 0;
    for (i = 1; i <= CELLS; i++) {
        long at = (long)rank * CELLS + i;
        cells[i] = (double)(at * 7919 % 1009) / 1009.0;
    }
}

/* Not the same whichever way it is summed up: any disorder shows in the last bits. */
static void compute(void)
{
    static double next[CELLS + 2];
    int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks, i;
    double most = 0.0, most_of_all;
    MPI_Request requests[REQUESTS];

    for (i = 1; i <= CELLS; i++) {
        most = cells[i] > most ? cells[i] : most;
    }
    MPI_Irecv(&cells[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&cells[CELLS + 1], 1, MPI_DOUBLE, right, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&cells[CELLS], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(&cells[1], 1, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, &requests[3]);
    MPI_Iallreduce(&most, &most_of_all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &requests[4]);
    await(REQUESTS, requests);
    for (i = 1; i <= CELLS; i++) {
        next[i] = cells[i] + 0.2 * (cells[i - 1] - 2.0 * cells[i] + cells[i + 1]) +
                  1e-4 * cells[i] * (most_of_all - cells[i]);
    }
    memcpy(&cells[1], &next[1], CELLS * sizeof(double));
    step++;
}

static uint64_t hash(void)
{
    double *all = rank == 0 ? malloc((size_t)ranks * CELLS * sizeof(double)) : NULL;
    uint64_t value = 14695981039346656037u;
    MPI_Request request;

    MPI_Igather(&cells[1], CELLS, MPI_DOUBLE, all, CELLS, MPI_DOUBLE, 0, MPI_COMM_WORLD, &request);
    await(1, &request);
    if (all != NULL) {
        const unsigned char *bytes = (const unsigned char *)all;
        size_t i;
        for (i = 0; i < (size_t)ranks * CELLS * sizeof(double); i++) {
            value = (value ^ bytes[i]) * 1099511628211u;
        }
        free(all);
    }
    return value;
}

/* Where a hung rank is found. */
__attribute__((noinline)) static void waits_for_ever(void)
{
    for (;;) {
        pause();
    }
}

static void perhaps_hang(long hang_at, const char *once)
{
    if (step == hang_at && rank == 1 && access(once, F_OK) != 0) {
        FILE *file = fopen(once, "w");
        if (file != NULL) {
            fclose(file);
        }
        waits_for_ever();
    }
}

/* ---- files ---- */

static const char *named(char *to, const char *directory, const char *file, const char *ending)
{
    if (directory == NULL) {
        snprintf(to, SCR_MAX_FILENAME, "%s_%d.%s", file, rank, ending);
    } else {
        snprintf(to, SCR_MAX_FILENAME, "%s/%s_%d.%s", directory, file, rank, ending);
    }
    return to;
}

static int moves(const char *name, const char *how, void *bytes, size_t count)
{
    char path[SCR_MAX_FILENAME];
    FILE *file;
    size_t moved;

    if (SCR_Route_file(name, path) != SCR_SUCCESS || (file = fopen(path, how)) == NULL) {
        return 0;
    }
    moved = how[0] == 'w' ? fwrite(bytes, 1, count, file) : fread(bytes, 1, count, file);
    return fclose(file) == 0 && moved == count;
}

/* Each rank's part of the one file. */
static int moves_together(const char *directory, int writes)
{
    char name[SCR_MAX_FILENAME + 16], path[SCR_MAX_FILENAME];
    MPI_Offset offset = (MPI_Offset)rank * CELLS * (MPI_Offset)sizeof(double);
    MPI_Status status;
    MPI_File file;
    int count = 0;

    snprintf(name, sizeof name, "%s/field.bin", directory);
    if (SCR_Route_file(name, path) != SCR_SUCCESS ||
        MPI_File_open(MPI_COMM_WORLD, path, writes ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY, MPI_INFO_NULL,
                      &file) != MPI_SUCCESS) {
        return 0;
    }
    if (writes) {
        MPI_File_write_at_all(file, offset, &cells[1], CELLS, MPI_DOUBLE, &status);
    } else {
        MPI_File_read_at_all(file, offset, &cells[1], CELLS, MPI_DOUBLE, &status);
    }
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    return MPI_File_close(&file) == MPI_SUCCESS && count == CELLS;
}

static int moves_all(const char *directory, int writes)
{
    const char *how = writes ? "w" : "r";
    char name[SCR_MAX_FILENAME];
    long of[2] = {step, rank};
    int good;

    if (mode == SHARED) {
        good = moves_together(directory, writes);
        if (rank == 0) {
            good = moves(named(name, directory, "step", "bin"), how, of, sizeof of) && good;
        }
        MPI_Bcast(of, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    } else {
        good = moves(named(name, directory, "step", "bin"), how, of, sizeof of) && of[1] == rank;
        good = moves(named(name, directory, "low", "bin"), how, &cells[1], CELLS / 2 * sizeof(double)) && good;
        good = moves(named(name, directory, "high", "bin"), how, &cells[1 + CELLS / 2], CELLS / 2 * sizeof(double)) &&
               good;
    }
    step = of[0];
    return good;
}

/* ---- checkpoints ---- */

/* SCR 1: the files are looked for, and whether all found theirs is the program's own business. */
static long restart_plain(void)
{
    int good = moves_all(NULL, 0), all_good;
    MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (!all_good) {
        begin();
    }
    return step;
}

static long restart_named(char *loaded)
{
    char name[SCR_MAX_FILENAME];
    int have = 0;

    EXPECT(SCR_Have_restart(&have, name) == SCR_SUCCESS);
    while (have) {
        int good;
        EXPECT(SCR_Start_restart(loaded) == SCR_SUCCESS && strcmp(name, loaded) == 0);
        good = moves_all(name, 0);
        if (SCR_Complete_restart(good) == SCR_SUCCESS) {
            return step;
        }
        begin();
        strcpy(loaded, "-");
        EXPECT(SCR_Have_restart(&have, name) == SCR_SUCCESS);
    }
    return 0;
}

static void checkpoint(void)
{
    char name[SCR_MAX_FILENAME];

    if (mode == PLAIN) {
        EXPECT(SCR_Start_checkpoint() == SCR_SUCCESS);
        EXPECT(SCR_Complete_checkpoint(moves_all(NULL, 1)) == SCR_SUCCESS);
        return;
    }
    snprintf(name, sizeof name, "step.%ld", step);
    EXPECT(SCR_Start_output(name, SCR_FLAG_CHECKPOINT) == SCR_SUCCESS);
    EXPECT(SCR_Complete_output(moves_all(name, 1)) == SCR_SUCCESS);
}

static void picture(void)
{
    char name[SCR_MAX_FILENAME], cell[64], file[SCR_MAX_FILENAME], text[64];

    snprintf(name, sizeof name, "picture.%ld", step);
    snprintf(cell, sizeof cell, "cell_%ld", step);
    snprintf(text, sizeof text, "%a\n", cells[CELLS / 2]);
    EXPECT(SCR_Start_output(name, SCR_FLAG_OUTPUT) == SCR_SUCCESS);
    EXPECT(SCR_Complete_output(moves(named(file, NULL, cell, "txt"), "w", text, strlen(text))) == SCR_SUCCESS);
}

int main(int argc, char **argv)
{
    char loaded[SCR_MAX_FILENAME] = "-";
    const char *current = NULL, *once = "hung", *enable;
    long steps, restarted, hang_at = -1, delay = 0;
    int own_rank = -1, all_ranks = -1, leave = 0, i;
    uint64_t value;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    EXPECT(argc >= 4 && argc % 2 == 0);
    mode = strcmp(argv[1], "plain") == 0 ? PLAIN : strcmp(argv[1], "own") == 0 ? OWN : SHARED;
    steps = atol(argv[2]);
    for (i = 4; i < argc; i += 2) {
        if (strcmp(argv[i], "--current") == 0) {
            current = argv[i + 1];
        } else if (strcmp(argv[i], "--delay") == 0) {
            delay = atol(argv[i + 1]);
        } else if (strcmp(argv[i], "--hang-at") == 0) {
            hang_at = atol(argv[i + 1]);
        } else {
            EXPECT(strcmp(argv[i], "--hang-once") == 0);
            once = argv[i + 1];
        }
    }

    free((void *)SCR_Configf("SCR_CACHE_BYPASS=%d", mode == SHARED));
    EXPECT(SCR_Init() == SCR_SUCCESS);
    enable = getenv("SCR_ENABLE");
    if (enable == NULL || strcmp(enable, "0") != 0) {
        EXPECT(HOLDFAST_Rank(&own_rank, &all_ranks) == SCR_SUCCESS && own_rank == rank && all_ranks == ranks);
    }
    begin();
    if (current != NULL) {
        EXPECT(SCR_Current(current) == SCR_SUCCESS);
    }
    restarted = mode == PLAIN ? restart_plain() : restart_named(loaded);
    while (step < steps && !leave) {
        perhaps_hang(hang_at, once);
        compute();
        usleep((useconds_t)delay * 1000);
        if (step % EVERY == 0) {
            int need = 0;
            if (mode == OWN && step % (2 * EVERY) == 0) {
                picture();
            }
            EXPECT(SCR_Need_checkpoint(&need) == SCR_SUCCESS);
            if (need) {
                checkpoint();
            }
            EXPECT(SCR_Should_exit(&leave) == SCR_SUCCESS);
        }
    }
    if (mode == OWN && !leave && current == NULL) {
        EXPECT(SCR_Drop("picture.20") == SCR_SUCCESS);
        EXPECT(SCR_Delete("picture.40") == SCR_SUCCESS);
    }
    value = hash();
    if (rank == 0 && !leave) {
        FILE *file = fopen(argv[3], "w");
        EXPECT(file != NULL);
        fprintf(file, "%016llx %d ranks from %ld %s\n", (unsigned long long)value, ranks, restarted, loaded);
        EXPECT(fclose(file) == 0);
    }
    EXPECT(SCR_Finalize() == SCR_SUCCESS);
    MPI_Finalize();
    return 0;
}
