/* Checkpoints of variables, each of which is interrupted at another operation on files.
 *
 *     interrupted RESULTS
 *
 * Every launch takes two checkpoints, so that the third one can be written over an older file. Rank 3 is killed in the
 * third one: in the first launch at the first operation of the library on files, in the second launch at the second
 * one, and so on. In the middle of a write, half of the bytes are written. After each launch, the content of the
 * variables is compared with the content at the newest checkpoint that was complete.
 *
 * RESULTS/kill: the number of launches that were interrupted. RESULTS/result.3, when a checkpoint had fewer operations
 * than that: the step, the number of operations, of renamed files, and the bytes that were written. Ends with the
 * number of the line whose condition does not hold. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "holdfast.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "interrupted.c line %d: %s: %s\n", __LINE__, #condition, holdfast_error());                \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { STEP = 1, FIELD = 2, KILLED = 3, CELLS = 40000 };

/* Operations are counted during the third checkpoint. */
static int counting;
static long operations, renames, written, kill_at;

static int is_last(void)
{
    return counting && ++operations == kill_at;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    pause();
}

/* The library calls these in place of those of the C library. */

int openat64(int directory, const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode = 0;

    if (flags & O_CREAT) {
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
        if (is_last())
            die();
    }
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

/* The library clones files. */
int ioctl(int file, unsigned long request, ...)
{
    va_list rest;
    void *argument;

    va_start(rest, request);
    argument = va_arg(rest, void *);
    va_end(rest);
    if (request == FICLONE && is_last())
        die();
    return (int)syscall(SYS_ioctl, file, request, argument);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset)
{
    if (is_last())
        die();
    if (is_last()) {
        syscall(SYS_pwrite64, file, bytes, count / 2, offset);
        die();
    }
    written += counting ? (long)count : 0;
    return syscall(SYS_pwrite64, file, bytes, count, offset);
}

int ftruncate64(int file, off64_t length)
{
    if (is_last())
        die();
    return (int)syscall(SYS_ftruncate, file, length);
}

int fdatasync(int file)
{
    if (is_last())
        die();
    return (int)syscall(SYS_fdatasync, file);
}

int renameat(int directory, const char *from, int other, const char *to)
{
    if (is_last())
        die();
    renames += counting;
    return (int)syscall(SYS_renameat2, directory, from, other, to, 0);
}

int linkat(int directory, const char *from, int other, const char *to, int flags)
{
    if (is_last())
        die();
    return (int)syscall(SYS_linkat, directory, from, other, to, flags);
}

int unlinkat(int directory, const char *path, int flags)
{
    if (is_last())
        die();
    return (int)syscall(SYS_unlinkat, directory, path, flags);
}

/* A number in a file; 0 if there is none. */
static long number(const char *path)
{
    FILE *file = fopen(path, "r");
    long found = 0;

    if (file != NULL) {
        if (fscanf(file, "%ld", &found) != 1)
            found = 0;
        fclose(file);
    }
    return found;
}

static int set_number(const char *path, long value)
{
    FILE *file = fopen(path, "w");

    return file != NULL && fprintf(file, "%ld\n", value) > 0 && fclose(file) == 0;
}

/* One step changes a few cells in two places. */
static void advance(double *field, long step, int rank)
{
    field[100 + step % 50] += (double)(step * (rank + 1));
    field[30000 + step % 70] -= (double)step / 3.0;
}

int main(int count, char **arguments)
{
    static double field[CELLS], expected[CELLS];
    char kill_path[4096], complete_path[4096], result_path[4096];
    long step = 0, at;
    int rank, flag, recovered, checkpoint;
    FILE *file;

    if (count != 2)
        return 2;
    EXPECT(holdfast_init() == HOLDFAST_SUCCESS && holdfast_rank(&rank, NULL) == HOLDFAST_SUCCESS);
    snprintf(kill_path, sizeof kill_path, "%s/kill", arguments[1]);
    /* Of the rank that is killed: the others may be ended before they know that a checkpoint is complete. */
    snprintf(complete_path, sizeof complete_path, "%s/complete", arguments[1]);
    snprintf(result_path, sizeof result_path, "%s/result.%d", arguments[1], rank);
    EXPECT(holdfast_protect(STEP, "step", &step, 1, HOLDFAST_LONG) == HOLDFAST_SUCCESS);
    EXPECT(holdfast_protect(FIELD, "field", field, CELLS, HOLDFAST_DOUBLE) == HOLDFAST_SUCCESS);
    EXPECT(holdfast_have_checkpoint(&flag) == HOLDFAST_SUCCESS && flag == (number(complete_path) > 0));
    if (flag) {
        EXPECT(holdfast_recover(&recovered) == HOLDFAST_SUCCESS);
        EXPECT(recovered == number(complete_path) && step == recovered);
        for (at = 1; at <= step; at++)
            advance(expected, at, rank);
        for (at = 0; at < CELLS; at++)
            EXPECT(field[at] == expected[at]);
    }

    if (rank == KILLED) {
        kill_at = number(kill_path) + 1;
        EXPECT(set_number(kill_path, kill_at));
    }
    for (checkpoint = 1; checkpoint <= 3; checkpoint++) {
        step++;
        advance(field, step, rank);
        counting = rank == KILLED && checkpoint == 3;
        EXPECT(holdfast_checkpoint((int)step, HOLDFAST_LEVEL_PARTNER) == HOLDFAST_SUCCESS);
        counting = 0;
        EXPECT(rank != KILLED || set_number(complete_path, step));
    }

    file = fopen(result_path, "w");
    EXPECT(file != NULL && fprintf(file, "%ld %ld %ld %ld\n", step, operations, renames, written) > 0);
    EXPECT(fclose(file) == 0);
    EXPECT(holdfast_finalize() == HOLDFAST_SUCCESS);
    return 0;
}
