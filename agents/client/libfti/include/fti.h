/*
 * FTI's C interface, version 1.1, carried out by Holdfast's agents.
 *
 *     mpicc program.c -lfti
 *     holdfast run job.yaml                      (with `checkpoint: {source: variables}`)
 *
 * The library contains no MPI: what has an MPI_Comm is defined here, and compiled by the MPI of the program. Functions
 * that fail print on standard error what failed and what to do. docs/libfti.md describes the differences from FTI.
 *
 * Not here, and refused by the compiler or the linker: FTI_InitComplexType, FTI_AddSimpleField, FTI_AddComplexField,
 * FTI_InitGroup, FTI_RenameGroup, FTI_DefineDataset (HDF5), FTI_BitFlip, FTI_RecoverVar, and the internal types.
 */

#ifndef FTI_H
#define FTI_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* return values */
#define FTI_DONE 1  /* a checkpoint was taken */
#define FTI_SCES 0  /* success */
#define FTI_NSCS (-1) /* failure */
#define FTI_NREC (-2) /* the recovery failed */

/* the size of buffers in FTI's programs */
#define FTI_BUFS 256

/* A type of elements, by FTI_InitType, or one of the basic types below. */
typedef struct FTIT_type {
    int id;
    int size; /* bytes of an element */
} FTIT_type;

extern FTIT_type FTI_CHAR; /* char */
extern FTIT_type FTI_SHRT; /* short */
extern FTIT_type FTI_INTG; /* int */
extern FTIT_type FTI_LONG; /* long */
extern FTIT_type FTI_UCHR; /* unsigned char */
extern FTIT_type FTI_USHT; /* unsigned short */
extern FTIT_type FTI_UINT; /* unsigned int */
extern FTIT_type FTI_ULNG; /* unsigned long */
extern FTIT_type FTI_SFLT; /* float */
extern FTIT_type FTI_DBLE; /* double */
extern FTIT_type FTI_LDBE; /* long double */

/* The processes of the application: all, as there are no head processes. */
#define FTI_COMM_WORLD MPI_COMM_WORLD

/* Of the library, for FTI_Init. */
int holdfast_fti_init(const char *configuration, int rank, int ranks);

/* Joins the run. `configuration`: FTI's file, of which the intervals Ckpt_L1 to Ckpt_L4 take effect; NULL for none.
 * `communicator`: MPI_COMM_WORLD, or one with the same ranks; otherwise it fails on all ranks, and can be called again.
 * Collective. */
static __inline int FTI_Init(const char *configuration, MPI_Comm communicator)
{
    int rank, ranks;
    if (MPI_Comm_rank(communicator, &rank) != MPI_SUCCESS || MPI_Comm_size(communicator, &ranks) != MPI_SUCCESS) {
        return FTI_NSCS;
    }
    return holdfast_fti_init(configuration, rank, ranks);
}

/* 1 if there is a checkpoint to recover from, else 0. */
int FTI_Status(void);

/* Initialises a type by the bytes of an element. */
int FTI_InitType(FTIT_type *type, int size);

/* Protects `count` elements at `address` as variable `id`. Call it again when the variable has moved or changed its
 * size. */
int FTI_Protect(int id, void *address, long count, FTIT_type type);

/* The bytes of the variable in the newest checkpoint; 0 if it is not there. */
long FTI_GetStoredSize(int id);

/* In a restart: gives the memory of a protected variable, which is from malloc, its size in the checkpoint, and
 * protects it again. Returns its address, after an error the address that was given, as FTI does; NULL only if there is
 * no memory. */
void *FTI_Realloc(int id, void *address);

/* Saves all variables as checkpoint `id` of level 1 (node), 2 (partner), 3 (parity) or 4 (prefix directory). Returns
 * FTI_DONE. If a halt condition holds, the program ends here with exit code 0. Collective. */
int FTI_Checkpoint(int id, int level);

/* Loads the newest checkpoint that is intact on all ranks. Returns FTI_NREC if there is none, or if on any rank its
 * variables or their sizes are not those that are protected: then nothing is loaded on any rank, and it can be called
 * again. Returns FTI_NSCS before FTI_Init. Collective. */
int FTI_Recover(void);

/* In a restart, the first call is FTI_Recover. Any other takes a checkpoint if one is due by the intervals, and then
 * returns FTI_DONE; otherwise FTI_SCES. Collective. */
int FTI_Snapshot(void);

/* The program is finished: the newest checkpoint is copied to the prefix directory, and the job is not relaunched.
 * Collective. Does nothing in a process that was forked from the one that called FTI_Init; all other calls fail
 * there. */
int FTI_Finalize(void);

#ifdef __cplusplus
}
#endif

#endif
