/* Written for SCR v1.1-8: only the functions of its manual, two files a rank.
 *
 *     old_style STEPS RESULTS
 *
 * Every second step is a checkpoint. At the end each rank writes RESULTS/result.<rank>: the sum, and the step that it
 * restarted from. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scr.h"

static int rank_of_this_process(void)
{
    const char *text = getenv("HOLDFAST_RANK");
    return text == NULL ? 0 : atoi(text);
}

static int read_numbers(const char *name, long *numbers, int count)
{
    char path[SCR_MAX_FILENAME];
    FILE *file;
    int i, good = 1;

    if (SCR_Route_file(name, path) != SCR_SUCCESS) {
        return 0;
    }
    file = fopen(path, "r");
    if (file == NULL) {
        return 0;
    }
    for (i = 0; i < count; i++) {
        good = good && fscanf(file, "%ld", &numbers[i]) == 1;
    }
    fclose(file);
    return good;
}

static int write_numbers(const char *name, const long *numbers, int count)
{
    char path[SCR_MAX_FILENAME];
    FILE *file;
    int i, good = 1;

    if (SCR_Route_file(name, path) != SCR_SUCCESS) {
        return 0;
    }
    file = fopen(path, "w");
    if (file == NULL) {
        return 0;
    }
    for (i = 0; i < count; i++) {
        good = good && fprintf(file, "%ld\n", numbers[i]) > 0;
    }
    return fclose(file) == 0 && good;
}

int main(int argc, char **argv)
{
    char step_file[64], sum_file[64], result[SCR_MAX_FILENAME];
    long step = 0, sum = 0, restarted = 0, steps;
    int rank = rank_of_this_process();
    FILE *file;

    if (argc != 3 || SCR_Init() != SCR_SUCCESS) {
        return 2;
    }
    steps = atol(argv[1]);
    sprintf(step_file, "ckpt/step_%d.txt", rank);
    sprintf(sum_file, "ckpt/sum_%d.txt", rank);
    if (read_numbers(step_file, &step, 1) && read_numbers(sum_file, &sum, 1)) {
        restarted = step;
    } else {
        step = sum = 0;
    }
    while (step < steps) {
        int needed = 0;
        step++;
        sum += step * (rank + 1);
        if (step % 2 == 0 && SCR_Need_checkpoint(&needed) == SCR_SUCCESS && needed) {
            int valid;
            if (SCR_Start_checkpoint() != SCR_SUCCESS) {
                return 3;
            }
            valid = write_numbers(step_file, &step, 1);
            valid = write_numbers(sum_file, &sum, 1) && valid;
            if (SCR_Complete_checkpoint(valid) != SCR_SUCCESS) {
                return 4;
            }
        }
    }
    snprintf(result, sizeof result, "%s/result.%d", argv[2], rank);
    file = fopen(result, "w");
    if (file == NULL) {
        return 5;
    }
    fprintf(file, "%ld %ld\n", sum, restarted);
    fclose(file);
    return SCR_Finalize() == SCR_SUCCESS ? 0 : 6;
}
