/* What fti.h needs of an MPI, for ranks that do not communicate: the library fits any MPI. MPI_COMM_SELF is a
 * communicator of other ranks than the run. */

#ifndef MPI_STUB_H
#define MPI_STUB_H

#include <stdlib.h>

typedef enum { MPI_COMM_WORLD, MPI_COMM_SELF } MPI_Comm;

#define MPI_SUCCESS 0

static __inline int MPI_Comm_rank(MPI_Comm communicator, int *rank)
{
    *rank = communicator == MPI_COMM_WORLD ? atoi(getenv("HOLDFAST_RANK")) : 0;
    return MPI_SUCCESS;
}

static __inline int MPI_Comm_size(MPI_Comm communicator, int *ranks)
{
    *ranks = communicator == MPI_COMM_WORLD ? atoi(getenv("HOLDFAST_RANKS")) : 1;
    return MPI_SUCCESS;
}

#endif
