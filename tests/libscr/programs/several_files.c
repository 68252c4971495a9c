/* Written for SCR 3.1: rank r writes r modulo 4 files a checkpoint, so that some ranks write none. It restarts from the
 * checkpoint that is offered first.
 *
 *     several_files STEPS RESULTS
 *
 * RESULTS/result.<rank>: the last step, and the name of the checkpoint that it restarted from. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scr.h"

enum { MOST = 4096 };

static int rank;

static size_t size_of(int file)
{
    return (size_t)(1000 + rank + 2 * file);
}

static void fill(char *bytes, int file, int step)
{
    size_t i;

    for (i = 0; i < size_of(file); i++) {
        bytes[i] = (char)((size_t)(rank + 2 * file + step) + i);
    }
}

static void file_name(char *name, size_t size, const char *dataset, int file)
{
    snprintf(name, size, "%.100s/rank_%d.%d.ckpt", dataset, rank, file);
}

static int read_file(const char *path, int file, int step)
{
    char bytes[MOST], expected[MOST];
    FILE *in = fopen(path, "rb");
    size_t length;

    if (in == NULL) {
        return 0;
    }
    length = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    fill(expected, file, step);
    return length == size_of(file) && memcmp(bytes, expected, length) == 0;
}

static int write_file(const char *path, int file, int step)
{
    char bytes[MOST];
    FILE *out = fopen(path, "wb");
    int good;

    if (out == NULL) {
        return 0;
    }
    fill(bytes, file, step);
    good = fwrite(bytes, 1, size_of(file), out) == size_of(file);
    return fclose(out) == 0 && good;
}

int main(int argc, char **argv)
{
    char dataset[SCR_MAX_FILENAME], loaded[SCR_MAX_FILENAME] = "-", name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    int step = 0, have = 0, files, file, valid;
    FILE *result;

    if (argc != 3 || SCR_Init() != SCR_SUCCESS || HOLDFAST_Rank(&rank, NULL) != SCR_SUCCESS) {
        return 2;
    }
    files = rank % 4;
    SCR_Have_restart(&have, dataset);
    if (have) {
        SCR_Start_restart(loaded);
        if (strcmp(dataset, loaded) != 0 || sscanf(loaded, "timestep.%d", &step) != 1) {
            return 3;
        }
        valid = 1;
        for (file = 0; file < files; file++) {
            file_name(name, sizeof name, loaded, file);
            valid = SCR_Route_file(name, path) == SCR_SUCCESS && read_file(path, file, step) && valid;
        }
        if (SCR_Complete_restart(valid) != SCR_SUCCESS) {
            return 4;
        }
    }
    while (step < atoi(argv[1])) {
        step++;
        snprintf(dataset, sizeof dataset, "timestep.%d", step);
        if (SCR_Start_output(dataset, SCR_FLAG_CHECKPOINT) != SCR_SUCCESS) {
            return 5;
        }
        valid = 1;
        for (file = 0; file < files; file++) {
            file_name(name, sizeof name, dataset, file);
            valid = SCR_Route_file(name, path) == SCR_SUCCESS && write_file(path, file, step) && valid;
        }
        if (SCR_Complete_output(valid) != SCR_SUCCESS) {
            return 6;
        }
    }
    snprintf(path, sizeof path, "%.500s/result.%d", argv[2], rank);
    result = fopen(path, "w");
    if (result == NULL || fprintf(result, "%d %s\n", step, loaded) < 0 || fclose(result) != 0) {
        return 7;
    }
    return SCR_Finalize() == SCR_SUCCESS ? 0 : 8;
}
