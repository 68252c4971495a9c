/* Writes or reads a SION file by all processes of MPI.
 *
 *     sion_mpi write FILE MODE BLOCK_SIZE FILES TASK...
 *     sion_mpi read FILE MODE DIRECTORY
 *
 * FILES: a number; or mod N, a communicator for the ranks with the same rest by N; or own, one for each rank.
 * TASK: CHUNK:TOTAL:STEP, or CHUNK:K[,KEY,LENGTH]... for records; the first for rank 0, and so on, and then again.
 * A FILE with %d has the rank there. Read, each stream is a file in the directory. */
#include <mpi.h>
#include <sion.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #condition);                                     \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                              \
        }                                                                                                              \
    } while (0)

/* The formula of the fixtures. */
static void fill(unsigned char *to, unsigned long long key, unsigned long long from, unsigned long long bytes)
{
    for (unsigned long long i = 0; i < bytes; i++) {
        unsigned long long at = from + i;
        to[i] = (unsigned char)(17 + 131 * rank + 37 * key + 7 * at + 13 * (at / 256) + 29 * (at / 65536));
    }
}

/* Exits with 3 if the file cannot be opened on any rank. */
static int write_file(char *name, char *mode, char *block, char *files, char **tasks, int number)
{
    static unsigned char data[1 << 20];
    char *text = tasks[rank % number], *newname = NULL;
    sion_int64 chunk = strtoll(text, &text, 10);
    sion_int32 block_size = atoi(block);
    int numfiles = atoi(files), global = -1;
    MPI_Comm local = MPI_COMM_NULL;
    FILE *file = NULL;

    if (strncmp(files, "mod", 3) == 0)
        MPI_Comm_split(MPI_COMM_WORLD, rank % atoi(files + 3), rank, &local);
    if (strcmp(files, "own") == 0)
        local = MPI_COMM_SELF;
    if (local != MPI_COMM_NULL)
        numfiles = -1;
    int sid = sion_paropen_mpi(name, mode, &numfiles, MPI_COMM_WORLD, &local, &chunk, &block_size, &global, &file,
                               &newname);
    if (sid < 0)
        return 3;
    EXPECT(global == rank && (file == NULL) == (strstr(mode, "posix") != NULL));
    EXPECT(sion_is_serial_opened(sid) == 0 && sion_get_number_of_files(sid) == numfiles);
    EXPECT(strncmp(newname, name, strlen(name)) == 0);
    EXPECT(strlen(newname) == strlen(name) + (sion_get_filenumber(sid) > 0 ? 7 : 0));
    free(newname);
    text++;
    if (*text == 'K') {
        for (text++; *text == ',';) {
            unsigned long long key = strtoull(text + 1, &text, 10), bytes = strtoull(text + 1, &text, 10);
            fill(data, key, 0, bytes);
            EXPECT(sion_fwrite_key(data, key, 1, bytes, sid) == bytes);
        }
    } else {
        unsigned long long total = strtoull(text, &text, 10), step = strtoull(text + 1, &text, 10), done = 0;
        for (int turn = 0; done < total; turn++) {
            unsigned long long bytes = total - done < step ? total - done : step;
            fill(data, 0, done, bytes);
            if (strstr(mode, "collective"))
                EXPECT(sion_coll_fwrite(data, 1, bytes, sid) == bytes);
            else if (turn % 2 == 0 || file == NULL)
                EXPECT(sion_fwrite(data, 1, bytes, sid) == bytes);
            else
                EXPECT(sion_ensure_free_space(sid, (sion_int64)bytes) && fwrite(data, 1, bytes, file) == bytes);
            done += bytes;
        }
    }
    if (rank == 0)
        printf("files %d block_size %d\n", numfiles, block_size);
    EXPECT(sion_parclose_mpi(sid) == SION_SUCCESS);
    if (local != MPI_COMM_NULL && local != MPI_COMM_SELF)
        MPI_Comm_free(&local);
    return 0;
}

static int read_file(char *name, char *mode, char *directory)
{
    static char data[1 << 20];
    sion_int64 chunk = 0;
    sion_int32 block_size = 0;
    int numfiles = 0, global = -1;
    char path[4096];
    FILE *file = NULL, *copy;

    int sid = sion_paropen_mpi(name, mode, &numfiles, MPI_COMM_WORLD, NULL, &chunk, &block_size, &global, &file, NULL);
    if (sid < 0)
        return 3;
    EXPECT(global == rank && sion_is_serial_opened(sid) == 0 && sion_get_number_of_files(sid) == numfiles);
    snprintf(path, sizeof path, "%s/t_%05d", directory, rank);
    copy = fopen(path, "wb");
    EXPECT(copy != NULL);
    while (!sion_feof(sid)) {
        size_t bytes = (size_t)sion_bytes_avail_in_chunk(sid);
        EXPECT(bytes > 0 && bytes <= (size_t)chunk);
        if (strstr(mode, "collective"))
            EXPECT(sion_coll_fread(data, 1, bytes, sid) == bytes);
        else
            EXPECT(sion_fread(data, 1, bytes, sid) == bytes);
        EXPECT(fwrite(data, 1, bytes, copy) == bytes);
    }
    EXPECT(fclose(copy) == 0 && sion_parclose_mpi(sid) == SION_SUCCESS);
    if (rank == 0)
        printf("files %d block_size %d\n", numfiles, block_size);
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
                   : read_file(name, argv[3], argv[4]);
    MPI_Finalize();
    return code;
}
