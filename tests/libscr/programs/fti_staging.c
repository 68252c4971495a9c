/* A program for FTI that stages files.
 *
 *     fti_staging REMOTE RESULTS CONFIGURATION [ANYTHING]
 *
 * REMOTE: an existing directory, for the files `small.<rank>`, `large.<rank>` and `last.<rank>`. Without CONFIGURATION
 * staging is disabled.
 *
 * RESULTS/result.<rank>: the directory on the node. Ends with 1 where a condition does not hold. */

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <fti.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fti_staging.c line %d: %s\n", __LINE__, #condition);                                      \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { LARGE = 48 << 20 };

static int create(const char *path, int rank, long bytes)
{
    FILE *file = fopen(path, "w");

    EXPECT(file != NULL && fprintf(file, "file of rank %d\n", rank) > 0);
    EXPECT(fflush(file) == 0 && ftruncate(fileno(file), bytes) == 0 && fclose(file) == 0);
    return 0;
}

/* Waits for the end of a request; returns how it ended. */
static int end_of(int request)
{
    const struct timespec pause = {0, 1000000};
    int status;

    while ((status = FTI_GetStageStatus(request)) == FTI_SI_PEND || status == FTI_SI_ACTV)
        nanosleep(&pause, NULL);
    return status;
}

int main(int count, char **arguments)
{
    static char directory[PATH_MAX], local[PATH_MAX + 64], other[PATH_MAX + 64], remote[PATH_MAX + 64];
    int rank, small, large, failed, step = 1;
    FILE *file;

    if (count < 4)
        return 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    EXPECT(FTI_GetStageDir(directory, PATH_MAX) == FTI_NSCS && FTI_SendFile("a", "b") == FTI_NSCS);
    EXPECT(FTI_Init(arguments[3], MPI_COMM_WORLD) == FTI_SCES);
    if (*arguments[3] == 0) {
        EXPECT(FTI_GetStageDir(directory, PATH_MAX) == FTI_NSCS && FTI_SendFile("a", "b") == FTI_NSCS);
        EXPECT(FTI_GetStageStatus(0) == FTI_NSCS);
        return FTI_Finalize() == FTI_SCES ? 0 : 1;
    }
    EXPECT(FTI_GetStageDir(NULL, PATH_MAX) == FTI_NSCS && FTI_GetStageDir(directory, 3) == FTI_NSCS);
    EXPECT(FTI_GetStageDir(directory, -1) == FTI_NSCS && FTI_GetStageDir(directory, PATH_MAX) == FTI_SCES);
    EXPECT(FTI_GetStageDir(other, (int)strlen(directory)) == FTI_NSCS);
    snprintf(local, sizeof local, "%s/small", directory);
    EXPECT(create(local, rank, 20) == 0);
    /* The same directory again, with the file. */
    EXPECT(FTI_GetStageDir(other, (int)strlen(directory) + 1) == FTI_SCES && strcmp(directory, other) == 0);

    EXPECT(FTI_SendFile(NULL, "b") == FTI_NSCS && FTI_SendFile(local, NULL) == FTI_NSCS);
    EXPECT(FTI_SendFile("/nonexistent/file", arguments[1]) == FTI_NSCS);
    EXPECT(FTI_SendFile(directory, arguments[1]) == FTI_NSCS && FTI_SendFile(local, arguments[1]) == FTI_NSCS);
    EXPECT(FTI_SendFile(local, "/nonexistent/directory/file") == FTI_NSCS);
    EXPECT(FTI_GetStageStatus(12345) == FTI_SI_NINI && FTI_GetStageStatus(-1) == FTI_SI_NINI);

    /* The first file is sent twice: the second time it replaces the other one. A file that cannot be read fails. */
    snprintf(remote, sizeof remote, "%s/small.%d", arguments[1], rank);
    small = FTI_SendFile(local, remote);
    EXPECT(small >= 0 && end_of(small) == FTI_SI_SCES && FTI_GetStageStatus(small) == FTI_SI_NINI);
    EXPECT(create(local, rank, 30) == 0);
    snprintf(other, sizeof other, "%s/large", directory);
    EXPECT(create(other, rank, LARGE) == 0);
    small = FTI_SendFile(local, remote);
    snprintf(remote, sizeof remote, "%s/unreadable.%d", arguments[1], rank);
    failed = FTI_SendFile("/proc/self/mem", remote);
    snprintf(remote, sizeof remote, "%s/large.%d", arguments[1], rank);
    large = FTI_SendFile(other, remote);
    EXPECT(small >= 0 && failed > small && large > failed);
    EXPECT(end_of(failed) == FTI_SI_FAIL && end_of(small) == FTI_SI_SCES && end_of(large) == FTI_SI_SCES);
    EXPECT(access(local, F_OK) == 0);

    /* FTI_Finalize copies it. */
    snprintf(remote, sizeof remote, "%s/last.%d", arguments[1], rank);
    EXPECT(FTI_SendFile(other, remote) > large);
    EXPECT(FTI_Protect(0, &step, 1, FTI_INTG) == FTI_SCES && FTI_Checkpoint(1, 1) == FTI_DONE);
    EXPECT(FTI_Finalize() == FTI_SCES);
    EXPECT(access(remote, F_OK) == 0 && access(local, F_OK) != 0);
    snprintf(remote, sizeof remote, "%s/result.%d", arguments[2], rank);
    file = fopen(remote, "w");
    EXPECT(file != NULL && fprintf(file, "%s\n", directory) > 0 && fclose(file) == 0);
    return 0;
}
