/* Written for SCR 3.1, with options that change which of its functions are called.
 *
 *     options RESULTS [OPTION]...
 *
 *     --times=N            steps; each writes one dataset (4)
 *     --path=DIR           the names of all files begin with this directory
 *     --flush=N            every Nth dataset is a checkpoint and output
 *     --output=N           every Nth dataset is output, and no checkpoint
 *     --config=TYPE        SCR_Config sets this redundancy scheme, a store and parameters
 *     --global-store=DIR   SCR_Configf sets a store that all nodes share
 *     --current=NAME       SCR_Current with this name after SCR_Init
 *     --noscr              no function of SCR is called
 *     --noscrrestart       no function for restarts is called; the files of --current are opened by their names
 *     --shared-file        all ranks write one file
 *     --refuse=NAME        rank 1 does not accept this checkpoint; may be repeated
 *
 * RESULTS/result.<rank>: the last step, the checkpoint that it restarted from, and the number of refused ones. */

#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scr.h"

enum { SIZE = 3000, HEADER = 8, MOST = SIZE + HEADER + 64, REFUSED = 4 };

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "options.c line %d, rank %d: %s\n", __LINE__, rank, #condition);                           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static int rank, ranks, step, shared, with_scr = 1, with_restart = 1;
static const char *directory, *current, *refused[REFUSED];

static int number(const char *variable)
{
    const char *text = getenv(variable);
    return text == NULL ? -1 : atoi(text);
}

/* Ranks write parts of different sizes. */
static long size_of(int writer)
{
    return HEADER + SIZE + writer;
}

static long offset_of(int reader)
{
    long offset = 0;
    int writer;

    for (writer = 0; shared && writer < reader; writer++) {
        offset += size_of(writer);
    }
    return offset;
}

static long file_size(void)
{
    return shared ? offset_of(ranks) : size_of(rank);
}

static void fill(char *part, int of_step)
{
    long i;

    snprintf(part, HEADER, "%07d", of_step);
    for (i = HEADER; i < size_of(rank); i++) {
        part[i] = (char)((rank + of_step + i) % 256);
    }
}

static void file_name(char *name, const char *dataset)
{
    int length = directory == NULL ? snprintf(name, SCR_MAX_FILENAME, "%s/", dataset)
                                   : snprintf(name, SCR_MAX_FILENAME, "%s/%s/", directory, dataset);

    EXPECT(length < SCR_MAX_FILENAME - 32);
    if (shared) {
        strcat(name, "rank_shared.ckpt");
    } else {
        sprintf(name + length, "rank_%d.ckpt", rank);
    }
}

static int read_file(const char *path)
{
    char part[MOST], expected[MOST];
    struct stat status;
    int file = open(path, O_RDONLY), of_step;

    if (file < 0) {
        return 0;
    }
    if (fstat(file, &status) != 0 || status.st_size != file_size() ||
        pread(file, part, (size_t)size_of(rank), offset_of(rank)) != size_of(rank)) {
        close(file);
        return 0;
    }
    close(file);
    part[HEADER - 1] = 0;
    of_step = atoi(part);
    fill(expected, of_step);
    if (memcmp(part, expected, (size_t)size_of(rank)) != 0) {
        return 0;
    }
    step = of_step;
    return 1;
}

static int write_file(const char *path)
{
    char part[MOST];
    /* No rank truncates the file that the others are writing. */
    int file = open(path, O_WRONLY | O_CREAT | (shared ? 0 : O_TRUNC), S_IRUSR | S_IWUSR), good;

    if (file < 0) {
        return 0;
    }
    fill(part, step);
    good = pwrite(file, part, (size_t)size_of(rank), offset_of(rank)) == size_of(rank) && fsync(file) == 0;
    return close(file) == 0 && good;
}

static int accepts(const char *dataset)
{
    int i;

    for (i = 0; rank == 1 && i < REFUSED && refused[i] != NULL; i++) {
        if (strcmp(refused[i], dataset) == 0) {
            return 0;
        }
    }
    return 1;
}

/* Takes the newest checkpoint that every rank accepts. Returns the number of refused ones. */
static int restart(char *loaded)
{
    char name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    int have = 0, refusals = 0;

    for (;;) {
        int valid;
        EXPECT(SCR_Have_restart(&have, loaded) == SCR_SUCCESS);
        if (!have) {
            strcpy(loaded, "-");
            step = 0;
            return refusals;
        }
        EXPECT(SCR_Start_restart(loaded) == SCR_SUCCESS);
        file_name(name, loaded);
        valid = SCR_Route_file(name, path) == SCR_SUCCESS && read_file(path) && accepts(loaded);
        if (SCR_Complete_restart(valid) == SCR_SUCCESS) {
            return refusals;
        }
        refusals++;
    }
}

static void write_dataset(int flush, int output)
{
    char dataset[64], name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    int flags = SCR_FLAG_NONE, valid;

    if (output > 0 && step % output == 0) {
        flags |= SCR_FLAG_OUTPUT;
        snprintf(dataset, sizeof dataset, "output.%d", step);
    } else {
        flags |= SCR_FLAG_CHECKPOINT;
        snprintf(dataset, sizeof dataset, "ckpt.%d", step);
    }
    if (flush > 0 && step % flush == 0) {
        flags |= SCR_FLAG_OUTPUT;
    }
    file_name(name, dataset);
    if (with_scr) {
        EXPECT(SCR_Start_output(dataset, flags) == SCR_SUCCESS);
        EXPECT(SCR_Route_file(name, path) == SCR_SUCCESS);
        valid = write_file(path);
        EXPECT(SCR_Complete_output(valid) == SCR_SUCCESS && valid);
    } else {
        snprintf(path, sizeof path, "%.500s/%s", directory, dataset);
        EXPECT(mkdir(path, 0700) == 0 || errno == EEXIST);
        EXPECT(write_file(name));
    }
}

static void expect_setting(const char *setting, const char *value)
{
    char *found = (char *)SCR_Config(setting);

    EXPECT(value == NULL ? found == NULL : found != NULL && strcmp(found, value) == 0);
    free(found);
}

static void configure(const char *type)
{
    char *none = (char *)SCR_Configf("CKPT=0 INTERVAL=1 GROUP=NODE STORE=/dev/shm TYPE=%s SET_SIZE=16", type);

    EXPECT(none == NULL);
    expect_setting("STORE=/dev/shm GROUP=NODE COUNT=1", NULL);
    expect_setting("SCR_COPY_TYPE = FILE", NULL);
    expect_setting("SCR_DEBUG=1", NULL);
    expect_setting("CKPT=0 TYPE", type);
    expect_setting("STORE", "/dev/shm");
    expect_setting("SCR_COPY_TYPE", "FILE");
    expect_setting("SCR_DEBUG=", NULL);
    expect_setting("SCR_DEBUG", NULL);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"times", required_argument, NULL, 't'},      {"path", required_argument, NULL, 'p'},
        {"flush", required_argument, NULL, 'f'},      {"output", required_argument, NULL, 'o'},
        {"config", required_argument, NULL, 'a'},     {"global-store", required_argument, NULL, 'g'},
        {"current", required_argument, NULL, 'c'},    {"noscr", no_argument, NULL, 'x'},
        {"noscrrestart", no_argument, NULL, 'X'},     {"shared-file", no_argument, NULL, 's'},
        {"refuse", required_argument, NULL, 'r'},     {NULL, no_argument, NULL, 0},
    };
    const char *scheme = NULL, *store = NULL;
    char loaded[SCR_MAX_FILENAME] = "-", name[SCR_MAX_FILENAME];
    int times = 4, flush = 0, output = 0, refusals = 0, count = 0, option;
    FILE *result;

    rank = number("HOLDFAST_RANK");
    ranks = number("HOLDFAST_RANKS");
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 't': times = atoi(optarg); break;
        case 'p': directory = optarg; break;
        case 'f': flush = atoi(optarg); break;
        case 'o': output = atoi(optarg); break;
        case 'a': scheme = optarg; break;
        case 'g': store = optarg; break;
        case 'c': current = optarg; break;
        case 'x': with_scr = 0; break;
        case 'X': with_restart = 0; break;
        case 's': shared = 1; break;
        case 'r': EXPECT(count < REFUSED - 1); refused[count++] = optarg; break;
        default: return 2;
        }
    }
    EXPECT(optind == argc - 1 && rank >= 0 && ranks > 0);
    if (with_scr) {
        if (scheme != NULL) {
            configure(scheme);
        }
        if (store != NULL) {
            EXPECT(SCR_Configf("STORE=%s GROUP=WORLD", store) == NULL);
        }
        EXPECT(SCR_Init() == SCR_SUCCESS);
        if (current != NULL) {
            EXPECT(SCR_Current(current) == SCR_SUCCESS);
        }
    }
    if (with_scr && with_restart) {
        refusals = restart(loaded);
    } else if (current != NULL) {
        file_name(name, current);
        EXPECT(read_file(name));
        strcpy(loaded, current);
    }
    while (step < times) {
        step++;
        write_dataset(flush, output);
    }
    snprintf(name, sizeof name, "%.500s/result.%d", argv[optind], rank);
    result = fopen(name, "w");
    EXPECT(result != NULL && fprintf(result, "%d %s %d\n", step, loaded, refusals) > 0 && fclose(result) == 0);
    return with_scr && SCR_Finalize() != SCR_SUCCESS ? 1 : 0;
}
