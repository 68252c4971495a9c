/* Written for SCR 3.1: named checkpoints, read back by the restart functions; with `shared` all ranks write one file,
 * with `careless` they do without reporting it, with `even` every second one does.
 *
 *     named (own|shared|careless|even) STEPS RESULTS
 *
 * RESULTS/result.<rank>: the sum, the step that it restarted from, and the name of that checkpoint. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scr.h"

/* Bytes of a rank's part of the shared file. */
enum { PART = 64 };

static int number(const char *variable)
{
    const char *text = getenv(variable);
    return text == NULL ? 0 : atoi(text);
}

int main(int argc, char **argv)
{
    char name[SCR_MAX_FILENAME], file_name[SCR_MAX_FILENAME + 32], path[SCR_MAX_FILENAME];
    char loaded[SCR_MAX_FILENAME] = "-";
    char part[PART];
    long step = 0, sum = 0, restarted = 0, steps;
    int rank = number("HOLDFAST_RANK"), shared, bypass, have = 0, leave = 0;
    FILE *file;
    const char *value;

    if (argc != 4) {
        return 2;
    }
    bypass = strcmp(argv[1], "shared") == 0;
    shared = bypass || strcmp(argv[1], "careless") == 0 || (strcmp(argv[1], "even") == 0 && rank % 2 == 0);
    steps = atol(argv[2]);
    free((void *)SCR_Configf("SCR_CACHE_BYPASS=%d", bypass));
    value = SCR_Config("SCR_CACHE_BYPASS");
    if (value == NULL || atoi(value) != bypass) {
        return 3;
    }
    free((void *)value);
    if (strcmp(SCR_Get_version(), SCR_VERSION) != 0 || SCR_Init() != SCR_SUCCESS) {
        return 4;
    }
    if (SCR_Have_restart(&have, name) != SCR_SUCCESS) {
        return 5;
    }
    while (have) {
        int valid = 0;
        if (SCR_Start_restart(loaded) != SCR_SUCCESS || strcmp(name, loaded) != 0) {
            return 6;
        }
        if (shared) {
            snprintf(file_name, sizeof file_name, "%s/all.txt", name);
        } else {
            snprintf(file_name, sizeof file_name, "%s/rank_%d.txt", name, rank);
        }
        if (SCR_Route_file(file_name, path) == SCR_SUCCESS && (file = fopen(path, "r")) != NULL) {
            if (shared) {
                fseek(file, (long)rank * PART, SEEK_SET);
            }
            valid = fscanf(file, "%ld %ld", &step, &sum) == 2;
            fclose(file);
        }
        if (SCR_Complete_restart(valid) == SCR_SUCCESS) {
            restarted = step;
            break;
        }
        step = sum = 0;
        strcpy(loaded, "-");
        if (SCR_Have_restart(&have, name) != SCR_SUCCESS) {
            return 7;
        }
    }
    while (step < steps && !leave) {
        int valid = 0;
        step++;
        sum += step * (rank + 1);
        snprintf(name, sizeof name, "step.%ld", step);
        if (SCR_Start_output(name, SCR_FLAG_CHECKPOINT) != SCR_SUCCESS) {
            return 8;
        }
        memset(part, ' ', sizeof part);
        snprintf(part, sizeof part, "%ld %ld\n", step, sum);
        snprintf(file_name, sizeof file_name, shared ? "%s/all.txt" : "%s/rank_%d.txt", name, rank);
        if (SCR_Route_file(file_name, path) == SCR_SUCCESS) {
            /* No rank truncates the file that the others are writing. */
            file = fopen(path, "a");
            if (file != NULL) {
                fclose(file);
                file = fopen(path, "r+");
            }
            if (file != NULL) {
                valid = (!shared || fseek(file, (long)rank * PART, SEEK_SET) == 0) &&
                        fwrite(part, 1, sizeof part, file) == sizeof part;
                valid = fclose(file) == 0 && valid;
            }
        }
        if (SCR_Complete_output(valid) != SCR_SUCCESS) {
            return 9;
        }
        if (SCR_Should_exit(&leave) != SCR_SUCCESS) {
            return 10;
        }
    }
    snprintf(path, sizeof path, "%s/result.%d", argv[3], rank);
    file = fopen(path, "w");
    if (file == NULL) {
        return 11;
    }
    fprintf(file, "%ld %ld %s\n", sum, restarted, loaded);
    fclose(file);
    return SCR_Finalize() == SCR_SUCCESS ? 0 : 12;
}
