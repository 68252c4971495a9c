/* Files that no checkpoint can contain.
 *
 *     names (cache|bypass) names RESULTS NAME...
 *     names (cache|bypass) objects RESULTS KIND...
 *     names cache same RESULTS
 *
 * `names`: in a checkpoint for each NAME, rank 1 routes it, which must fail. With `bypass` it then routes another name,
 * and the checkpoint completes; otherwise it gives up its files. `objects`: in a checkpoint for each KIND, rank 1 puts
 * an object that is no regular file at a routed path, and the checkpoint must fail on all ranks. Each such checkpoint
 * is followed by one that must complete. `same`: two files with the same base name.
 *
 * RESULTS/result.<rank>: the number of checkpoints that completed. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scr.h"

static int rank, checkpoints, completed;

static int number(const char *variable)
{
    const char *text = getenv(variable);
    return text == NULL ? 0 : atoi(text);
}

static void fail(const char *what, const char *about)
{
    fprintf(stderr, "rank %d: %s (%s)\n", rank, what, about);
    exit(20);
}

static void start(const char *about)
{
    char name[64];
    snprintf(name, sizeof name, "step.%d", ++checkpoints);
    if (SCR_Start_output(name, SCR_FLAG_CHECKPOINT) != SCR_SUCCESS) {
        fail("the checkpoint cannot be started", about);
    }
}

static void write_file(const char *path, const char *about)
{
    FILE *file = fopen(path, "w");
    if (file == NULL || fprintf(file, "rank %d\n", rank) < 0 || fclose(file) != 0) {
        fail("a file cannot be written", about);
    }
}

static void write_own(const char *about)
{
    char name[64], path[SCR_MAX_FILENAME];
    snprintf(name, sizeof name, "out/rank_%d.txt", rank);
    if (SCR_Route_file(name, path) != SCR_SUCCESS) {
        fail("a good name is refused", about);
    }
    write_file(path, about);
}

static void complete(int valid, int expected, const char *about)
{
    int kept = SCR_Complete_output(valid) == SCR_SUCCESS;
    if (kept != expected) {
        fail(kept ? "the checkpoint is kept" : "the checkpoint is not kept", about);
    }
    completed += kept;
}

static void good(const char *about)
{
    start(about);
    write_own(about);
    complete(1, 1, about);
}

/* Puts an object of a kind at a path. */
static void make(const char *kind, const char *path)
{
    char other[SCR_MAX_FILENAME + 16];
    int made = -1;
    if (strcmp(kind, "directory") == 0 || strcmp(kind, "closed-directory") == 0) {
        snprintf(other, sizeof other, "%s/below", path);
        made = mkdir(path, 0700) == 0 && mkdir(other, 0700) == 0 ? 0 : -1;
        if (made == 0 && strcmp(kind, "closed-directory") == 0) {
            made = chmod(other, 0) == 0 && chmod(path, 0) == 0 ? 0 : -1;
        }
    } else if (strcmp(kind, "pipe") == 0) {
        made = mkfifo(path, 0600);
    } else if (strcmp(kind, "socket") == 0) {
        made = mknod(path, S_IFSOCK | 0600, 0);
    } else if (strcmp(kind, "device") == 0) {
        made = mknod(path, S_IFCHR | 0600, 0x103);
    } else if (strcmp(kind, "link") == 0) {
        snprintf(other, sizeof other, "%s.target", path);
        write_file(other, kind);
        made = symlink(other, path);
    } else if (strcmp(kind, "dangling-link") == 0) {
        made = symlink("nowhere", path);
    } else if (strcmp(kind, "meta-directory") == 0) {
        write_file(path, kind);
        snprintf(other, sizeof other, "%s.scr", path);
        made = mkdir(other, 0700);
    } else if (strcmp(kind, "nothing") == 0) {
        made = 0;
    }
    if (made != 0) {
        fail(strerror(errno), kind);
    }
}

static void name_refused(const char *name, int bypass)
{
    char path[SCR_MAX_FILENAME] = "unchanged";
    int valid = 1;
    start(name);
    if (rank == 1) {
        if (SCR_Route_file(name, path) == SCR_SUCCESS) {
            fail("the name is accepted", name);
        }
        if (strcmp(path, "unchanged") != 0) {
            fail("a path is returned", name);
        }
        valid = bypass;
    }
    write_own(name);
    complete(valid, bypass, name);
}

static void object_refused(const char *kind, int bypass)
{
    char path[SCR_MAX_FILENAME];
    struct stat found;
    start(kind);
    if (rank == 1) {
        if (SCR_Route_file("object", path) != SCR_SUCCESS) {
            fail("a good name is refused", kind);
        }
        make(kind, path);
    }
    write_own(kind);
    complete(1, 0, kind);
    if (rank == 1 && !bypass && (lstat(path, &found) == 0 || errno != ENOENT)) {
        fail("the object is left in the cache", kind);
    }
}

/* The directories of a name do not count. */
static void same(void)
{
    char path[SCR_MAX_FILENAME], again[SCR_MAX_FILENAME];
    start("same");
    write_own("same");
    if (rank == 1) {
        if (SCR_Route_file("a/data", path) != SCR_SUCCESS || SCR_Route_file("./a//data", again) != SCR_SUCCESS ||
            strcmp(path, again) != 0) {
            fail("the same file cannot be routed twice", "same");
        }
        write_file(path, "same");
        if (SCR_Route_file("b/data", again) == SCR_SUCCESS) {
            fail("another file with the same base name is accepted", "same");
        }
    }
    complete(rank != 1, 0, "same");
    /* Another checkpoint has another directory. */
    start("same");
    write_own("same");
    if (rank == 1) {
        if (SCR_Route_file("b/data", path) != SCR_SUCCESS) {
            fail("a name of an earlier checkpoint is refused", "same");
        }
        write_file(path, "same");
    }
    complete(1, 1, "same");
}

int main(int argc, char **argv)
{
    char path[SCR_MAX_FILENAME];
    FILE *file;
    int bypass, at;

    if (argc < 4) {
        return 2;
    }
    rank = number("HOLDFAST_RANK");
    bypass = strcmp(argv[1], "bypass") == 0;
    free((void *)SCR_Configf("SCR_CACHE_BYPASS=%d", bypass));
    if (SCR_Init() != SCR_SUCCESS) {
        return 3;
    }
    if (strcmp(argv[2], "same") == 0) {
        same();
    }
    for (at = 4; at < argc; at++) {
        if (strcmp(argv[2], "names") == 0) {
            name_refused(argv[at], bypass);
        } else {
            object_refused(argv[at], bypass);
        }
        good(argv[at]);
    }
    snprintf(path, sizeof path, "%s/result.%d", argv[3], rank);
    file = fopen(path, "w");
    if (file == NULL || fprintf(file, "%d\n", completed) < 0 || fclose(file) != 0) {
        return 4;
    }
    return SCR_Finalize() == SCR_SUCCESS ? 0 : 5;
}
