/* What fti.h needs of an MPI, for ranks that do not communicate: the library fits any MPI. MPI_COMM_SELF is a
 * communicator of other ranks than the run. MPI_COMM_PART has every second rank: the heads of two ranks a node, or the
 * others. */

#ifndef MPI_STUB_H
#define MPI_STUB_H

#include <stdlib.h>

typedef enum { MPI_COMM_NULL, MPI_COMM_WORLD, MPI_COMM_SELF, MPI_COMM_PART } MPI_Comm;

#define MPI_SUCCESS 0

/* A number of the environment; 0 and 1 for MPI_COMM_SELF are those of a single rank. */
static __inline int mpi_stub(MPI_Comm communicator, const char *name, int alone)
{
    int number = atoi(getenv(name));
    return communicator == MPI_COMM_WORLD ? number : communicator == MPI_COMM_PART ? number / 2 : alone;
}

static __inline int MPI_Comm_rank(MPI_Comm communicator, int *rank)
{
    *rank = mpi_stub(communicator, "HOLDFAST_RANK", 0);
    return MPI_SUCCESS;
}

static __inline int MPI_Comm_size(MPI_Comm communicator, int *ranks)
{
    *ranks = mpi_stub(communicator, "HOLDFAST_RANKS", 1);
    return MPI_SUCCESS;
}

static __inline int MPI_Comm_split(MPI_Comm communicator, int color, int key, MPI_Comm *part)
{
    (void)communicator;
    (void)color;
    (void)key;
    *part = MPI_COMM_PART;
    return MPI_SUCCESS;
}

static __inline int MPI_Finalize(void)
{
    return MPI_SUCCESS;
}

#endif
