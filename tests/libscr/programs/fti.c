/* A program for FTI 1.1 whose variables grow, with checkpoints of levels 2 to 4.
 *
 *     fti STEPS RESULTS CONFIGURATION      FTI_Checkpoint in every step
 *     fti STEPS RESULTS CONFIGURATION s    FTI_Snapshot in every step
 *     fti 0 RESULTS CONFIGURATION          passes other communicators first
 *
 * RESULTS/result.<rank>: the sum, the step that it restarted from, and the number of checkpoints of this launch. Ends
 * with 1 where a condition does not hold. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fti.h>
#include <holdfast.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fti.c line %d: %s\n", __LINE__, #condition);                                              \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

typedef struct {
    double place[3];
    int id;
} Particle;

static void set(Particle *particle, int id)
{
    memset(particle, 0, sizeof *particle);
    particle->place[1] = id / 3.0;
    particle->id = id;
}

int main(int count, char **arguments)
{
    int rank, other = 0, step = 0, restarted = 0, taken = 0, snapshots = count == 5, i, result;
    long sum = 0;
    FTIT_type type;
    Particle *particles;
    char path[FTI_BUFS * 16];
    FILE *file;

    if (count < 4)
        return 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    EXPECT(FTI_Init("/nonexistent/config.fti", MPI_COMM_WORLD) == FTI_NSCS);
    if (atoi(arguments[1]) == 0) {
        EXPECT(FTI_Init(arguments[3], MPI_COMM_SELF) == FTI_NSCS);
        /* Two ranks have changed places: as of FTI_Init with such a communicator. */
        EXPECT(holdfast_fti_init(arguments[3], rank < 2 ? 1 - rank : rank, 6) == FTI_NSCS);
        EXPECT(FTI_Protect(0, &step, 1, FTI_INTG) == FTI_NSCS);
    }
    EXPECT(FTI_Realloc(0, &step) == &step && FTI_Recover() == FTI_NSCS);
    EXPECT(FTI_Init(arguments[3], MPI_COMM_WORLD) == FTI_SCES);
    EXPECT(FTI_COMM_WORLD == MPI_COMM_WORLD);
    EXPECT(FTI_CHAR.size == 1 && FTI_SHRT.size == sizeof(short) && FTI_INTG.size == sizeof(int));
    EXPECT(FTI_LONG.size == sizeof(long) && FTI_UCHR.size == 1 && FTI_USHT.size == sizeof(unsigned short));
    EXPECT(FTI_UINT.size == sizeof(unsigned) && FTI_ULNG.size == sizeof(unsigned long));
    EXPECT(FTI_SFLT.size == sizeof(float) && FTI_DBLE.size == sizeof(double));
    EXPECT(FTI_LDBE.size == sizeof(long double));

    EXPECT(FTI_InitType(&type, sizeof(Particle)) == FTI_SCES);
    particles = malloc(sizeof(Particle));
    set(particles, 0);
    EXPECT(FTI_Protect(0, &step, 1, FTI_INTG) == FTI_SCES);
    EXPECT(FTI_Protect(1, &sum, 1, FTI_LONG) == FTI_SCES);
    EXPECT(FTI_Protect(2, particles, 1, type) == FTI_SCES);
    EXPECT(FTI_Realloc(7, &step) == &step);
    EXPECT(FTI_Protect(3, particles, -1, type) == FTI_NSCS);
    if (FTI_Status() != 0) {
        EXPECT(FTI_GetStoredSize(2) > 0 && FTI_GetStoredSize(7) == 0);
        particles = FTI_Realloc(2, particles);
        EXPECT(particles != NULL);
        /* Another variable on one rank: no rank loads anything, and the recovery can be repeated. */
        EXPECT(rank != 1 || FTI_Protect(9, &other, 1, FTI_INTG) == FTI_SCES);
        EXPECT((snapshots ? FTI_Snapshot() : FTI_Recover()) == FTI_NREC);
        EXPECT(step == 0 && sum == 0 && FTI_Status() == 1);
        EXPECT(rank != 1 || holdfast_unprotect(9) == HOLDFAST_SUCCESS);
        EXPECT((snapshots ? FTI_Snapshot() : FTI_Recover()) == FTI_SCES);
        EXPECT(FTI_GetStoredSize(2) == (long)sizeof(Particle) * (step + 1));
        restarted = step;
    } else {
        EXPECT(FTI_GetStoredSize(2) == 0);
        EXPECT(FTI_Recover() == FTI_NREC);
    }
    EXPECT(FTI_Status() == 0);

    while (step < atoi(arguments[1])) {
        step++;
        sum += step * (rank + 1);
        particles = realloc(particles, sizeof(Particle) * (step + 1));
        set(&particles[step], step);
        EXPECT(FTI_Protect(2, particles, step + 1, type) == FTI_SCES);
        result = snapshots ? FTI_Snapshot() : FTI_Checkpoint(step, 2 + step % 3);
        EXPECT(result == FTI_DONE || (snapshots && result == FTI_SCES));
        taken += result == FTI_DONE;
    }
    EXPECT(FTI_Checkpoint(step, 5) == FTI_NSCS);

    for (i = 0; i <= step; i++)
        EXPECT(particles[i].id == i && particles[i].place[1] == i / 3.0);
    snprintf(path, sizeof path, "%s/result.%d", arguments[2], rank);
    file = fopen(path, "w");
    EXPECT(file != NULL && fprintf(file, "%ld %d %d\n", sum, restarted, taken) > 0 && fclose(file) == 0);
    EXPECT(FTI_Finalize() == FTI_SCES);
    free(particles);
    return 0;
}
