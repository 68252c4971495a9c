/* Calls of the functions for MPI that fail on all processes, and those that need a certain order. Run by 4 ranks. */
#include <mpi.h>
#include <sion.h>
#include <stdlib.h>
#include <string.h>

static int rank;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #condition);                                     \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                              \
        }                                                                                                              \
    } while (0)

static sion_int32 block;

static int opened_as(char *name, const char *mode, int files, MPI_Comm *local, sion_int64 chunk, FILE **file)
{
    block = 64;
    return sion_paropen_mpi(name, mode, &files, MPI_COMM_WORLD, local, &chunk, &block, NULL, file, NULL);
}

/* Each of these fails on all ranks, and none waits for ever. */
static void refused(void)
{
    MPI_Comm half, none = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 3, rank, &half);

    EXPECT(opened_as("x.sion", "wb,buddy", 1, NULL, 64, NULL) == SION_ID_UNDEF);
    EXPECT(opened_as("x.sion", rank == 2 ? "wb,cmerge" : "wb", 1, NULL, 64, NULL) == SION_ID_UNDEF);
    EXPECT(opened_as("x.sion", rank == 1 ? "rb" : "wb", 1, NULL, 64, NULL) == SION_ID_UNDEF);
    EXPECT(opened_as("x.sion", "wb", rank == 0 ? 2 : 1, NULL, 64, NULL) == SION_ID_UNDEF);
    EXPECT(opened_as("x.sion", "wb", 5, NULL, 64, NULL) == SION_ID_UNDEF);
    EXPECT(opened_as("x.sion", "wb", -1, NULL, 64, NULL) == SION_ID_UNDEF);
    EXPECT(opened_as("x.sion", "wb", -1, rank == 3 ? &none : &half, 64, NULL) == SION_ID_UNDEF);
    EXPECT(opened_as("x.sion", "wb", 1, NULL, rank == 3 ? -1 : 64, NULL) == SION_ID_UNDEF);
    EXPECT(opened_as(rank == 3 ? NULL : (char *)"x.sion", "wb", 1, NULL, 64, NULL) == SION_ID_UNDEF);
    EXPECT(opened_as("/nonexistent/x.sion", "wb", 1, NULL, 64, NULL) == SION_ID_UNDEF);
    EXPECT(opened_as("x.sion", "rb", 1, NULL, 64, NULL) == SION_ID_UNDEF);
    EXPECT(sion_parclose_mpi(1000) == SION_ID_NOT_VALID && sion_parreinit_mpi(1000, 1) == SION_ID_NOT_VALID);
    MPI_Comm_free(&half);
}

/* A communicator that does not exist stands for all processes. */
static void one_file_without_communicator(void)
{
    MPI_Comm none = MPI_COMM_NULL;
    int sid = opened_as("none.sion", "wb", -1, &none, 8, NULL);
    EXPECT(sid >= 0 && sion_get_number_of_files(sid) == 1 && sion_get_mapping(sid, &(int){0}, NULL, &(int){0}));
    EXPECT(sion_parclose_mpi(sid) == SION_SUCCESS);
}

/* That of the first process of each physical file; 0 and -1 are those of the file system. */
static void block_sizes(void)
{
    static const sion_int32 asked[] = {64, 0, -1};
    sion_int32 found[3];

    for (int i = 0; i < 3; i++) {
        sion_int64 chunk = 8;
        int files = 1, sid;
        found[i] = rank == 0 ? asked[i] : 128;
        sid = sion_paropen_mpi("blocks.sion", "wb", &files, MPI_COMM_WORLD, NULL, &chunk, &found[i], NULL, NULL, NULL);
        EXPECT(sid >= 0 && sion_parclose_mpi(sid) == SION_SUCCESS);
    }
    EXPECT(found[0] == 64 && found[1] >= 512 && found[2] == found[1]);
}

/* Calls for one process, while the file is open. */
static void wrong_calls(void)
{
    sion_int64 *table, skip, start;
    int tasks, blocks;
    char byte = (char)rank;
    int sid = opened_as("calls.sion", "wb", 1, NULL, 64, NULL);

    EXPECT(sid >= 0 && block == 64);
    EXPECT(sion_close(sid) == SION_NOT_SUCCESS);
    EXPECT(sion_seek(sid, (rank + 1) % 4, SION_CURRENT_BLK, SION_CURRENT_POS) == SION_NOT_SUCCESS);
    EXPECT(sion_seek(sid, rank, SION_CURRENT_BLK, SION_CURRENT_POS) == SION_SUCCESS);
    EXPECT(sion_get_locations(sid, &tasks, &blocks, &skip, &start, &table, &table, &table, &table) == 0);
    EXPECT(sion_fwrite(&byte, 1, 1, sid) == 1 && sion_get_bytes_written(sid) == 1);
    EXPECT(sion_parreinit_mpi(sid, 128) == SION_NOT_SUCCESS);
    EXPECT(sion_parclose_mpi(sid) == SION_SUCCESS && sion_parclose_mpi(sid) == SION_ID_NOT_VALID);

    sid = opened_as("calls.sion", "rb", 0, NULL, 0, NULL);
    EXPECT(sid >= 0 && block == 64);
    EXPECT(sion_seek(sid, rank, 0, 0) == SION_SUCCESS && sion_seek(sid, SION_CURRENT_RANK, 0, 0) == SION_SUCCESS);
    EXPECT(sion_seek(sid, (rank + 1) % 4, 0, 0) == SION_NOT_SUCCESS);
    EXPECT(sion_parreinit_mpi(sid, 128) == SION_NOT_SUCCESS);
    EXPECT(sion_fread(&byte, 1, 1, sid) == 1 && byte == rank && sion_feof(sid) == 1);
    EXPECT(sion_parclose_mpi(sid) == SION_SUCCESS);
}

static void older_names(void)
{
    int files = 7, sid;
    sion_int64 chunk = 8;
    char byte = (char)rank;

    block = 64;
    sid = sion_paropen_comms_mpi("old.sion", "wb,collective", &files, MPI_COMM_WORLD, MPI_COMM_SELF, &chunk, &block,
                                 NULL, NULL, NULL);
    EXPECT(sid >= 0 && files == 4 && sion_get_filenumber(sid) == rank);
    EXPECT(sion_coll_fwrite_mpi(&byte, 1, 1, sid) == 1 && sion_parclose_mpi(sid) == SION_SUCCESS);
    sid = sion_paropen_multi_mpi("old.sion", "rb", &files, MPI_COMM_WORLD, NULL, &chunk, &block, NULL, NULL, NULL);
    EXPECT(sid >= 0 && files == 4 && sion_get_filenumber(sid) == rank);
    byte = 99;
    EXPECT(sion_coll_fread_mpi(&byte, 1, 1, sid) == 1 && byte == rank && sion_parclose_mpi(sid) == SION_SUCCESS);
}

/* As a file that was opened with these chunks. */
static void other_chunks(void)
{
    static char data[300];
    int sid;

    memset(data, 'a' + rank, sizeof data);
    sid = opened_as("direct.sion", "wb", 2, NULL, 100 * (rank + 1), NULL);
    EXPECT(sid >= 0 && sion_fwrite(data, 1, 90, sid) == 90 && sion_parclose_mpi(sid) == SION_SUCCESS);
    /* The name is stored: the same one, in another directory. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        EXPECT(rename("direct.sion", "first.sion") == 0 && rename("direct.sion.000001", "first.sion.000001") == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    sid = opened_as("direct.sion", "wb", 2, NULL, 5, NULL);
    EXPECT(sid >= 0 && sion_parreinit_mpi(sid, 100 * (rank + 1)) == SION_SUCCESS);
    EXPECT(sion_fwrite(data, 1, 90, sid) == 90 && sion_parclose_mpi(sid) == SION_SUCCESS);
}

/* One rank writes into the chunk of another one: no rank succeeds, and the file is not complete. */
static void beyond_a_chunk(void)
{
    static char data[100];
    FILE *file;
    int sid = opened_as("beyond.sion", "wb", 1, NULL, 64, &file);

    EXPECT(sid >= 0 && file != NULL);
    memset(data, 'x', sizeof data);
    if (rank == 1)
        EXPECT(fwrite(data, 1, 100, file) == 100);
    EXPECT(sion_parclose_mpi(sid) == SION_NOT_SUCCESS);
    EXPECT(opened_as("beyond.sion", "rb", 0, NULL, 0, NULL) == SION_ID_UNDEF);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    refused();
    one_file_without_communicator();
    block_sizes();
    wrong_calls();
    older_names();
    other_chunks();
    beyond_a_chunk();
    MPI_Finalize();
    return 0;
}
