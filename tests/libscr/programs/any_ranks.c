/* Each rank reads the files of all ranks that wrote the checkpoint, however many there were: it asks for their names.
 *
 *     any_ranks STEPS RESULTS FLAGS
 *
 * Each step is a dataset with these flags. At the end each rank writes RESULTS/result.<rank>: the step that it
 * restarted from, the number of ranks that wrote it, the number of files that it read, and the sum of the ranks in
 * them. */

#include <stdio.h>
#include <stdlib.h>

#include "scr.h"

int main(int argc, char **argv)
{
    char name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    int rank, ranks, found = 0, written = 0, files = 0, sum = 0, step = 0, restarted = 0, index, writer, content;
    FILE *file;

    if (argc != 4 || SCR_Init() != SCR_SUCCESS || HOLDFAST_Rank(&rank, &ranks) != SCR_SUCCESS)
        return 2;
    SCR_Have_restart(&found, NULL);
    if (found) {
        SCR_Start_restart(NULL);
        if (HOLDFAST_Restart_files(&written, &files) != SCR_SUCCESS)
            return 3;
        for (index = 0; index < files; index++) {
            if (HOLDFAST_Restart_file(index, name, &writer) != SCR_SUCCESS || SCR_Route_file(name, path) != SCR_SUCCESS)
                return 4;
            file = fopen(path, "r");
            if (file == NULL || fscanf(file, "%d %d", &restarted, &content) != 2 || content != writer)
                return 5;
            fclose(file);
            sum += content;
        }
        if (HOLDFAST_Restart_file(files, name, &writer) == SCR_SUCCESS)
            return 6;
        if (SCR_Complete_restart(1) != SCR_SUCCESS)
            return 7;
        step = restarted;
    }
    while (step < atoi(argv[1])) {
        int valid = 0;
        step++;
        snprintf(name, sizeof name, "step.%d", step);
        SCR_Start_output(name, atoi(argv[3]));
        snprintf(name, sizeof name, "states/%d/rank_%d.txt", step, rank);
        if (SCR_Route_file(name, path) == SCR_SUCCESS) {
            file = fopen(path, "w");
            valid = file != NULL && fprintf(file, "%d %d\n", step, rank) > 0;
            valid = file != NULL && fclose(file) == 0 && valid;
        }
        SCR_Complete_output(valid);
    }
    snprintf(path, sizeof path, "%s/result.%d", argv[2], rank);
    file = fopen(path, "w");
    fprintf(file, "%d %d %d %d\n", restarted, written, files, sum);
    fclose(file);
    SCR_Finalize();
    return 0;
}
