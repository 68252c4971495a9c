/* A world of ranks that compute together: who is where, and does all of it reach everybody?
 *
 *   world                 print it, and end
 *   world forever         in the first generation, go on until something happens
 *   world MODE RANK       the rank: "abort", "segfault", "exit" with code 3
 *   world spin SECONDS    compute together for this time, without a pause
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int sum_of_ranks(int rank) {
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

static void meet_all(int rank, int ranks) {
    for (int distance = 1; distance < ranks; distance++) {
        int given = rank, taken = -1;
        MPI_Sendrecv(&given, 1, MPI_INT, (rank + distance) % ranks, 0, &taken, 1, MPI_INT,
                     (rank + ranks - distance) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    int argument = argc > 2 ? atoi(argv[2]) : -1;
    int spins = strcmp(mode, "spin") == 0, culprit = spins ? -1 : argument;
    const char *generation = getenv("HOLDFAST_GENERATION");
    const char *greeting = getenv("GREETING");
    char host[256] = "";
    int rank, ranks;

    MPI_Init(&argc, &argv);
    /* Open MPI 4.1 over TCP crashes in MPI_Init if another rank, whose MPI_Init has ended, sends it a message: under
     * plain srun --mpi=pmix, too, about once in 40 starts on a busy machine. */
    usleep(500000);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    gethostname(host, sizeof host - 1);
    int sum = sum_of_ranks(rank);
    /* Under srun, Slurm's number is Holdfast's. */
    const char *number = getenv("HOLDFAST_RANK") ? getenv("HOLDFAST_RANK") : getenv("SLURM_PROCID");
    printf("world %s: %d of %d on %s, sum %d, holdfast says %s, %s\n", generation, rank, ranks, host, sum,
           number, greeting ? greeting : "no greeting");
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);

    double end = MPI_Wtime() + argument;
    for (int go_on = spins; go_on; sum_of_ranks(rank)) {
        /* The clock of rank 0 decides. */
        go_on = MPI_Wtime() < end;
        MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    int first = generation != NULL && strcmp(generation, "1") == 0;
    while (first && strcmp(mode, "forever") == 0) {
        sum_of_ranks(rank);
        usleep(20000);
    }
    if (first && rank == culprit) {
        if (strcmp(mode, "abort") == 0)
            MPI_Abort(MPI_COMM_WORLD, 5);
        if (strcmp(mode, "segfault") == 0) {
            signal(SIGSEGV, SIG_DFL);
            raise(SIGSEGV);
        }
        if (strcmp(mode, "exit") == 0)
            _exit(3);
    }
    if (first && culprit >= 0)
        MPI_Barrier(MPI_COMM_WORLD);
    meet_all(rank, ranks);
    MPI_Barrier(MPI_COMM_WORLD);
#ifdef MPICH_VERSION
    /* Debian's MPICH 4.0 over UCX often waits for ever in MPI_Finalize between containers, under any launcher. What
     * mpiexec has to know of the end is this line. */
    const char *mpiexec = getenv("PMI_FD");
    char answer[256];
    if (mpiexec != NULL && write(atoi(mpiexec), "cmd=finalize\n", 13) == 13)
        (void)!read(atoi(mpiexec), answer, sizeof answer);
    _exit(0);
#endif
    MPI_Finalize();
    return 0;
}
