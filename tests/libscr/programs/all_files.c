/* Each rank reads the files of all ranks when it restarts, in the directory that it gets for its own: with
 * SCR_GLOBAL_RESTART=1, or SCR_CACHE_BYPASS=1, they are all there.
 *
 *     all_files STEPS RESULTS
 *
 * Each step is a checkpoint. At the end each rank writes RESULTS/result.<rank>: the step that it restarted from, the
 * ranks whose files it found then, and the directory in which the last checkpoint was written. */

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scr.h"

int main(int argc, char **argv)
{
    char name[64], path[SCR_MAX_FILENAME] = "", other[SCR_MAX_FILENAME + 64], directory[SCR_MAX_FILENAME] = "";
    int rank, ranks, found = 0, step = 0, restarted = 0, read = 0, of;
    FILE *file;

    if (argc != 3 || SCR_Init() != SCR_SUCCESS)
        return 2;
    HOLDFAST_Rank(&rank, &ranks);
    snprintf(name, sizeof name, "rank_%d.txt", rank);
    SCR_Have_restart(&found, NULL);
    if (found) {
        SCR_Start_restart(NULL);
        if (SCR_Route_file(name, path) != SCR_SUCCESS)
            return 3;
        snprintf(directory, sizeof directory, "%s", path);
        for (of = 0; of < ranks; of++) {
            snprintf(other, sizeof other, "%s/rank_%d.txt", dirname(strcpy(directory, path)), of);
            file = fopen(other, "r");
            if (file != NULL) {
                read += fscanf(file, "%d", &restarted) == 1;
                fclose(file);
            }
        }
        if (SCR_Complete_restart(1) != SCR_SUCCESS)
            return 4;
        step = restarted;
    }
    while (step < atoi(argv[1])) {
        int valid = 0;
        step++;
        SCR_Start_checkpoint();
        if (SCR_Route_file(name, path) == SCR_SUCCESS) {
            file = fopen(path, "w");
            valid = file != NULL && fprintf(file, "%d\n", step) > 0;
            valid = file != NULL && fclose(file) == 0 && valid;
        }
        SCR_Complete_checkpoint(valid);
    }
    snprintf(other, sizeof other, "%s/result.%d", argv[2], rank);
    file = fopen(other, "w");
    fprintf(file, "%d %d %s\n", restarted, read, dirname(strcpy(directory, path)));
    fclose(file);
    SCR_Finalize();
    return 0;
}
