/* Writes or reads a SION file by processes of MPI that have several tasks each.
 *
 *     sion_mapped write FILE MODE BLOCK_SIZE FILES TASK...
 *     sion_mapped read FILE MODE DIRECTORY equal|RANK...
 *
 * TASK: FILE:INDEX:CHUNK:TOTAL:STEP, the first for global rank 0, and so on; dealt to the processes in turn.
 * RANKS that are read: an equal share; or those given, dealt in turn, and each process reads the first of them, too.
 * A FILE with %d has the rank of the process there. Read, each stream is a file in the directory. */
#include <mpi.h>
#include <sion.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static int rank, ranks;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #condition);                                     \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                              \
        }                                                                                                              \
    } while (0)

/* The formula of the fixtures. */
static void fill(unsigned char *to, int task, unsigned long long from, unsigned long long bytes)
{
    for (unsigned long long i = 0; i < bytes; i++) {
        unsigned long long at = from + i;
        to[i] = (unsigned char)(17 + 131 * task + 7 * at + 13 * (at / 256) + 29 * (at / 65536));
    }
}

/* Exits with 3 if the file cannot be opened on any process. */
static int write_file(char *name, char *mode, char *block, char *files, char **given, int number)
{
    static unsigned char data[1 << 20];
    int own = 0, left, numfiles = atoi(files);
    int ids[MOST], file_of[MOST], index_of[MOST], *id = ids, *of = file_of, *index = index_of;
    sion_int64 sizes[MOST], *size = sizes;
    unsigned long long total[MOST], step[MOST], done[MOST] = {0};
    sion_int32 block_size = atoi(block);
    FILE *file = NULL, *current = NULL;

    for (int task = 0; task < number; task++)
        if (task % ranks == rank) {
            long long chunk;
            EXPECT(own < MOST);
            ids[own] = task;
            EXPECT(sscanf(given[task], "%d:%d:%lld:%llu:%llu", &file_of[own], &index_of[own], &chunk, &total[own],
                          &step[own]) == 5);
            sizes[own++] = chunk;
        }
    int sid = sion_paropen_mapped_mpi(name, mode, &numfiles, MPI_COMM_WORLD, &own, &id, &size, &of, &index,
                                      &block_size, &file);
    if (sid < 0)
        return 3;
    EXPECT(sion_is_serial_opened(sid) == 0);
    EXPECT(own == 0 || (file == NULL) == (strstr(mode, "posix") != NULL));
    EXPECT(own == 0 || sion_get_number_of_files(sid) == atoi(files));
    left = own;
    /* All tasks advance together, so that each seek returns to one that was left. */
    for (int turn = 0; left > 0; turn++) {
        left = own;
        for (int i = 0; i < own; i++) {
            unsigned long long bytes = total[i] - done[i] < step[i] ? total[i] - done[i] : step[i];
            EXPECT(sion_seek_fp(sid, ids[i], SION_CURRENT_BLK, SION_CURRENT_POS, &current) == SION_SUCCESS);
            EXPECT(sion_get_filenumber(sid) == file_of[i] && sion_get_bytes_written(sid) == (sion_int64)done[i]);
            fill(data, ids[i], done[i], bytes);
            if (turn % 2 == 0 || current == NULL)
                EXPECT(sion_fwrite(data, 1, bytes, sid) == bytes);
            else
                EXPECT(sion_ensure_free_space(sid, (sion_int64)bytes) && fwrite(data, 1, bytes, current) == bytes);
            done[i] += bytes;
            left -= done[i] == total[i];
        }
    }
    EXPECT(sion_parclose_mapped_mpi(sid) == SION_SUCCESS);
    if (rank == 0)
        printf("files %d\n", numfiles);
    return 0;
}

static int read_file(char *name, char *mode, char *directory, char **given, int number)
{
    static char data[1 << 20];
    int own = -1, ids[MOST], *id = NULL, *of = NULL, *index = NULL, files = 0;
    sion_int64 *size = NULL;
    FILE *file = NULL;

    if (strcmp(given[0], "equal") != 0) {
        own = 0;
        for (int i = 0; i < number; i++)
            if (i == 0 || i % ranks == rank) {
                EXPECT(own < MOST);
                ids[own++] = atoi(given[i]);
            }
        id = ids;
    }
    int sid = sion_paropen_mapped_mpi(name, mode, &files, MPI_COMM_WORLD, &own, &id, &size, &of, &index, NULL, &file);
    if (sid < 0)
        return 3;
    EXPECT(own >= 0 && size != NULL && of != NULL && index != NULL);
    for (int i = 0; i < own; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/t_%05d", directory, id[i]);
        EXPECT(sion_seek(sid, id[i], SION_CURRENT_BLK, SION_CURRENT_POS) == SION_SUCCESS);
        EXPECT(sion_get_number_of_files(sid) == files && of[i] < files && index[i] >= 0);
        FILE *copy = fopen(path, "wb");
        EXPECT(copy != NULL);
        while (!sion_feof(sid)) {
            size_t bytes = (size_t)sion_bytes_avail_in_chunk(sid);
            EXPECT(bytes > 0 && bytes <= (size_t)size[i] && sion_fread(data, 1, bytes, sid) == bytes);
            EXPECT(fwrite(data, 1, bytes, copy) == bytes);
        }
        EXPECT(fclose(copy) == 0);
    }
    EXPECT(sion_parclose_mapped_mpi(sid) == SION_SUCCESS);
    if (id != ids)
        free(id);
    free(size);
    free(of);
    free(index);
    if (rank == 0)
        printf("files %d\n", files);
    return 0;
}

int main(int argc, char **argv)
{
    char name[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    snprintf(name, sizeof name, argv[2], rank);
    int code = strcmp(argv[1], "write") == 0
                   ? write_file(name, argv[3], argv[4], argv[5], argv + 6, argc - 6)
                   : read_file(name, argv[3], argv[4], argv + 5, argc - 5);
    MPI_Finalize();
    return code;
}
