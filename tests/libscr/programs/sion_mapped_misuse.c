/* Calls of the mapped functions that fail on all processes. Run by 3 ranks. */
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

/* The arguments of a call: one task for each process, all in one file. */
struct call {
    char *name;
    const char *mode;
    int files, tasks, ranks[2], file_of[2], indexes[2];
    int *rank, *of, *index;
    sion_int64 sizes[2], *size;
    sion_int32 block;
};

static struct call *good(void)
{
    static struct call call;
    memset(&call, 0, sizeof call);
    call.name = "x.sion";
    call.mode = "wb";
    call.files = 1;
    call.tasks = 1;
    call.ranks[0] = call.indexes[0] = rank;
    call.rank = call.ranks;
    call.of = call.file_of;
    call.index = call.indexes;
    call.sizes[0] = call.sizes[1] = 64;
    call.size = call.sizes;
    call.block = 64;
    return &call;
}

static int opened(struct call *call)
{
    return sion_paropen_mapped_mpi(call->name, call->mode, &call->files, MPI_COMM_WORLD, &call->tasks, &call->rank,
                                   &call->size, &call->of, &call->index, &call->block, NULL);
}

static void refused_to_write(void)
{
    struct call *call = good();
    EXPECT(sion_paropen_mapped_mpi(rank == 1 ? NULL : (char *)"x.sion", "wb", &call->files, MPI_COMM_WORLD,
                                   &call->tasks, &call->rank, &call->size, &call->of, &call->index, &call->block, NULL)
           == SION_ID_UNDEF);
    EXPECT(sion_paropen_mapped_mpi("x.sion", "wb", &call->files, MPI_COMM_WORLD, &call->tasks, &call->rank,
                                   &call->size, &call->of, &call->index, rank == 2 ? NULL : &call->block, NULL)
           == SION_ID_UNDEF);
    (call = good())->size = NULL;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->file_of[0] = rank == 0 ? 1 : 0;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->mode = rank == 1 ? "rb" : "wb";
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->files = rank + 1;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->files = -1;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->files = 2;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->indexes[0] = rank == 2 ? 1 : rank;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->ranks[0] = rank == 2 ? 7 : rank;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->sizes[0] = rank == 2 ? -1 : 64;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->name = "/nonexistent/x.sion";
    EXPECT(opened(call) == SION_ID_UNDEF);
}

static void refused_to_read(void)
{
    struct call *call = good();
    call->mode = "rb";
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->mode = "rb";
    call->tasks = rank == 0 ? -1 : 1;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->mode = "rb";
    call->tasks = rank == 0 ? -1 : 0;
    call->rank = call->of = call->index = NULL;
    call->size = NULL;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->mode = "rb";
    call->tasks = rank == 0 ? -1 : 1;
    call->rank = rank == 0 ? NULL : call->ranks;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->mode = "rb";
    call->name = "good.sion";
    call->ranks[0] = rank == 1 ? 9 : rank;
    EXPECT(opened(call) == SION_ID_UNDEF);
    (call = good())->mode = "rb";
    call->name = "good.sion";
    call->tasks = rank == 0 ? 2 : 1;
    EXPECT(opened(call) == SION_ID_UNDEF);
}

/* The last process has no task. */
static void wrong_calls(void)
{
    sion_int64 *table, skip, start;
    int tasks, blocks, sid;
    struct call *call = good();

    call->name = "good.sion";
    sid = opened(call);
    EXPECT(sid >= 0);
    EXPECT(rank != 0 || sion_seek(sid, 2, SION_CURRENT_BLK, SION_CURRENT_POS) == SION_NOT_SUCCESS);
    EXPECT(sion_close(sid) == SION_NOT_SUCCESS && sion_parclose_mpi(sid) == SION_ID_NOT_VALID);
    EXPECT(sion_get_locations(sid, &tasks, &blocks, &skip, &start, &table, &table, &table, &table) == 0);
    EXPECT(sion_fwrite("a", 1, 1, sid) == 1 && sion_get_bytes_written(sid) == 1);
    EXPECT(sion_parclose_mapped_mpi(sid) == SION_SUCCESS && sion_parclose_mapped_mpi(1000) == SION_ID_NOT_VALID);

    call = good();
    call->name = "one.sion";
    call->tasks = rank < 2;
    sid = opened(call);
    EXPECT(sid >= 0 && sion_fwrite("a", 1, 1, sid) == (rank < 2));
    EXPECT(sion_parclose_mapped_mpi(sid) == SION_SUCCESS);

    sid = sion_open("one.sion", "rb", &tasks, &blocks, NULL, &call->block, NULL, NULL);
    EXPECT(sid >= 0 && sion_parclose_mapped_mpi(sid) == SION_ID_NOT_VALID && sion_close(sid) == SION_SUCCESS);
}

/* Writes to the FILE without asking for room. */
static void beyond_the_chunk(void)
{
    static char data[100];
    struct call *call = good();
    FILE *file = NULL;
    int sid;

    memset(data, 'x', sizeof data);
    call->name = "beyond.sion";
    sid = opened(call);
    EXPECT(sid >= 0 && sion_seek_fp(sid, rank, SION_CURRENT_BLK, SION_CURRENT_POS, &file) == SION_SUCCESS);
    EXPECT(rank != 1 || fwrite(data, 1, sizeof data, file) == sizeof data);
    EXPECT(sion_parclose_mapped_mpi(sid) == SION_NOT_SUCCESS);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    refused_to_write();
    wrong_calls();
    refused_to_read();
    beyond_the_chunk();
    MPI_Finalize();
    return 0;
}
