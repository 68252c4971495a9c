/* An MPI program that calls no function of SCR, and in which rank 0 decides for all whether there is a state to
 * continue from: the others wait for its message.
 *
 *     unchanged_mpi RESULTS [MILLISECONDS]
 *
 * It waits for so many milliseconds in each step. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    long numbers[2] = {0, 0}, restarted;
    int rank, found = 0, sum_of_ranks;
    char name[64], result[1024];
    FILE *file;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum_of_ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    snprintf(name, sizeof name, "state_%d.dat", rank);
    if (rank == 0) {
        found = access(name, R_OK) == 0;
    }
    MPI_Bcast(&found, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (found) {
        file = fopen(name, "rb");
        if (file == NULL || fread(numbers, sizeof(long), 2, file) != 2) {
            MPI_Abort(MPI_COMM_WORLD, 7);
        }
        fclose(file);
    }
    restarted = numbers[0];
    while (numbers[0] < 10) {
        if (argc > 2) {
            usleep((useconds_t)atoi(argv[2]) * 1000);
        }
        numbers[0]++;
        numbers[1] += numbers[0] * (rank + 1);
        if (numbers[0] % 2 == 0) {
            file = fopen(name, "wb");
            if (file == NULL || fwrite(numbers, sizeof(long), 2, file) != 2 || fclose(file) != 0) {
                MPI_Abort(MPI_COMM_WORLD, 8);
            }
        }
    }
    snprintf(result, sizeof result, "%s/result.%d", argv[1], rank);
    file = fopen(result, "w");
    if (file == NULL || fprintf(file, "%ld %ld %d\n", numbers[1], restarted, sum_of_ranks) < 0 || fclose(file) != 0) {
        MPI_Abort(MPI_COMM_WORLD, 9);
    }
    MPI_Finalize();
    return 0;
}
