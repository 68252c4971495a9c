/* A program for FTI 1.1 with variables of structures, which calls the functions for HDF5 files, too.
 *
 *     fti_types RESULTS RESTARTED
 *
 * RESTARTED: 0 in the first run, 1 in one that recovers the structures; RESULTS/result.<rank> is the same. Ends with 1
 * where a condition does not hold. */

#include <stdio.h>
#include <string.h>

#include <fti.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fti_types.c line %d: %s\n", __LINE__, #condition);                                        \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

typedef struct {
    int number;
    double place[2][3];
    char kind;
} Particle;

enum { PARTICLES = 40 };

static Particle particles[PARTICLES];
static FTIT_complexType definition;

/* Every definition that is refused, with the valid fields 0 and 2 in `definition`. */
static int refuses(int *lengths)
{
    FTIT_type type;
    FTIT_H5Group group = {0, "", 0, {0}};
    int negative[] = {2, -3};

    EXPECT(FTI_InitComplexType(&type, &definition, 3, sizeof(Particle), "particle", NULL) == FTI_NSCS);
    FTI_AddComplexField(&definition, &FTI_DBLE, offsetof(Particle, place), 33, lengths, 1, "place");
    EXPECT(FTI_InitComplexType(&type, &definition, 3, sizeof(Particle), "particle", NULL) == FTI_NSCS);
    FTI_AddComplexField(&definition, &FTI_DBLE, offsetof(Particle, place), 2, negative, 1, "place");
    EXPECT(FTI_InitComplexType(&type, &definition, 3, sizeof(Particle), "particle", NULL) == FTI_NSCS);
    FTI_AddComplexField(&definition, &FTI_DBLE, offsetof(Particle, place), 2, NULL, 1, "place");
    FTI_AddSimpleField(&definition, &FTI_DBLE, (size_t)1 << 40, 1, "place");
    FTI_AddSimpleField(&definition, NULL, 0, 1, "place");
    EXPECT(FTI_InitComplexType(&type, &definition, 3, sizeof(Particle), "particle", NULL) == FTI_NSCS);
    FTI_AddSimpleField(&definition, &FTI_DBLE, 0, FTI_BUFS, "beyond");
    FTI_AddSimpleField(&definition, &FTI_DBLE, 0, -1, "before");
    FTI_AddSimpleField(NULL, &FTI_DBLE, 0, 0, "nothing");

    FTI_AddComplexField(&definition, &FTI_DBLE, offsetof(Particle, place), 2, lengths, 1, "place");
    EXPECT(FTI_InitComplexType(&type, &definition, 0, sizeof(Particle), "particle", NULL) == FTI_NSCS);
    EXPECT(FTI_InitComplexType(&type, &definition, FTI_BUFS, sizeof(Particle), "particle", NULL) == FTI_NSCS);
    EXPECT(FTI_InitComplexType(&type, &definition, 3, 0, "particle", NULL) == FTI_NSCS);
    EXPECT(FTI_InitComplexType(&type, NULL, 3, sizeof(Particle), "particle", NULL) == FTI_NSCS);
    EXPECT(FTI_InitComplexType(NULL, &definition, 3, sizeof(Particle), "particle", NULL) == FTI_NSCS);
    EXPECT(FTI_InitComplexType(&type, &definition, 3, sizeof(Particle), "particle", &group) == FTI_NSCS);
    EXPECT(FTI_InitGroup(&group, "group", NULL) == FTI_NSCS && FTI_RenameGroup(&group, "other") == FTI_NSCS);
    EXPECT(FTI_DefineDataset(0, 2, lengths, "field", NULL) == FTI_NSCS);
    EXPECT(FTI_BitFlip(0) == FTI_NSCS && FTI_BitFlip(0) == FTI_NSCS);
    EXPECT(FTI_ENDW == 995 && FTI_REJW == 996 && FTI_BASE + 4 == FTI_PFSW && FTI_IO_FTIFF == 1003);
    return 0;
}

int main(int count, char **arguments)
{
    int rank, lengths[] = {2, 3}, restarted, i;
    fti_id_t type;
    char path[FTI_BUFS * 16];
    FILE *file;

    if (count != 3)
        return 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    EXPECT(FTI_Init(NULL, MPI_COMM_WORLD) == FTI_SCES);
    FTI_AddSimpleField(&definition, &FTI_INTG, offsetof(Particle, number), 0, "number");
    FTI_AddSimpleField(&definition, &FTI_CHAR, offsetof(Particle, kind), 2, NULL);
    EXPECT(refuses(lengths) == 0);
    EXPECT(definition.field[1].offset == offsetof(Particle, place) && definition.field[1].typeID == FTI_DBLE.id);
    EXPECT(definition.field[1].rank == 2 && definition.field[1].dimLength[1] == 3);
    EXPECT(strcmp(definition.field[1].name, "place") == 0 && strcmp(definition.field[2].name, "T2") == 0);
    EXPECT(FTI_InitComplexType(&type, &definition, 3, sizeof(Particle), "particle", NULL) == FTI_SCES);
    EXPECT(definition.length == 3 && strcmp(definition.name, "particle") == 0 && type.size == sizeof(Particle));
    EXPECT(FTI_Protect(0, particles, PARTICLES, type) == FTI_SCES);
    restarted = FTI_Status();
    EXPECT(restarted == atoi(arguments[2]));
    if (restarted) {
        EXPECT(FTI_GetStoredSize(0) == (long)sizeof particles && FTI_Recover() == FTI_SCES);
        for (i = 0; i < PARTICLES; i++)
            EXPECT(particles[i].number == rank + i && particles[i].place[1][2] == i / 3.0 && particles[i].kind == 'x');
    }
    for (i = 0; i < PARTICLES; i++) {
        particles[i].number = rank + i;
        particles[i].place[1][2] = i / 3.0;
        particles[i].kind = 'x';
    }
    EXPECT(FTI_Checkpoint(1 + restarted, 4) == FTI_DONE);
    snprintf(path, sizeof path, "%s/result.%d", arguments[1], rank);
    file = fopen(path, "w");
    EXPECT(file != NULL && fprintf(file, "%d\n", restarted) > 0 && fclose(file) == 0);
    EXPECT(FTI_Finalize() == FTI_SCES);
    return 0;
}
