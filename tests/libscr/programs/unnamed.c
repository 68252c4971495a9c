/* Written with the functions of SCR 1 that SCR 3.1 still has: the files are routed with the directory of their step
 * when they are written, and by their bare names, before any other call, when they are read. Standard output is a file.
 *
 *     unnamed STEPS FILES RESULTS
 *
 * RESULTS/output.<rank>: what was printed, by all launches. RESULTS/result.<rank>: the sum, and the step that it
 * restarted from. */

#include <stdio.h>
#include <stdlib.h>

#include "scr.h"

static int rank;

static void file_name(char *name, size_t size, int step, int file)
{
    if (step == 0) {
        snprintf(name, size, "rank_%d.%d.ckpt", rank, file);
    } else {
        snprintf(name, size, "timestep.%d/rank_%d.%d.ckpt", step, rank, file);
    }
}

int main(int argc, char **argv)
{
    char name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    int step = 0, restarted, found = 1, files, file, steps;
    long sum = 0;
    const char *own = getenv("HOLDFAST_RANK");
    FILE *stream;

    if (argc != 4 || own == NULL) {
        return 2;
    }
    rank = atoi(own);
    steps = atoi(argv[1]);
    files = atoi(argv[2]);
    snprintf(path, sizeof path, "%.500s/output.%d", argv[3], rank);
    if (freopen(path, "a", stdout) == NULL) {
        return 3;
    }
    printf("rank %d before SCR_Init\n", rank);
    if (SCR_Init() != SCR_SUCCESS) {
        return 4;
    }
    printf("rank %d after SCR_Init\n", rank);
    for (file = 0; file < files; file++) {
        int of_step = 0;
        long of_sum = 0;
        file_name(name, sizeof name, 0, file);
        stream = SCR_Route_file(name, path) == SCR_SUCCESS ? fopen(path, "r") : NULL;
        if (stream == NULL) {
            found = 0;
            continue;
        }
        found = fscanf(stream, "%d %ld", &of_step, &of_sum) == 2 && (file == 0 || of_step == step) && found;
        fclose(stream);
        step = of_step;
        sum = of_sum;
    }
    if (!found) {
        step = 0;
        sum = 0;
    }
    restarted = step;
    while (step < steps) {
        int valid = 1;
        step++;
        sum += (long)step * (rank + 1);
        if (SCR_Start_checkpoint() != SCR_SUCCESS) {
            return 5;
        }
        for (file = 0; file < files; file++) {
            file_name(name, sizeof name, step, file);
            stream = SCR_Route_file(name, path) == SCR_SUCCESS ? fopen(path, "w") : NULL;
            valid = stream != NULL && fprintf(stream, "%d %ld\n", step, sum) > 0 && valid;
            valid = stream != NULL && fclose(stream) == 0 && valid;
        }
        if (SCR_Complete_checkpoint(valid) != SCR_SUCCESS) {
            return 6;
        }
        printf("Completed checkpoint %d.\n", step);
        fflush(stdout);
    }
    snprintf(path, sizeof path, "%.500s/result.%d", argv[3], rank);
    stream = fopen(path, "w");
    if (stream == NULL || fprintf(stream, "%ld %d\n", sum, restarted) < 0 || fclose(stream) != 0) {
        return 7;
    }
    return SCR_Finalize() == SCR_SUCCESS && fclose(stdout) == 0 ? 0 : 8;
}
