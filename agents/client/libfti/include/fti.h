/*
 * FTI's C interface, version 1.1 and parts of later ones, carried out by Holdfast's agents.
 *
 *     mpicc program.c -lfti
 *     holdfast run job.yaml                      (with `checkpoint: {source: variables}`)
 *
 * The library contains no MPI: what has an MPI_Comm is defined here, and compiled by the MPI of the program. Functions
 * that fail print on standard error what failed and what to do. docs/libfti.md describes the differences from FTI.
 *
 * FTI_InitGroup, FTI_RenameGroup, FTI_DefineDataset (HDF5) and FTI_BitFlip fail, and say why. Not here: the types that
 * FTI uses inside (FTIFF_*, FTIT_execution and others).
 */

#ifndef FTI_H
#define FTI_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* return values */
#define FTI_DONE 1  /* a checkpoint was taken */
#define FTI_SCES 0  /* success */
#define FTI_NSCS (-1) /* failure */
#define FTI_NREC (-2) /* the recovery failed */
#define FTI_HEAD 2    /* this is a head process, and the run has ended */

/* the size of buffers in FTI's programs */
#define FTI_BUFS 256
/* the size of a word of FTI's Reed-Solomon code */
#define FTI_WORD 16

/* the status of a request of FTI_SendFile */
#define FTI_SI_FAIL 0x4 /* the file was not copied */
#define FTI_SI_SCES 0x3 /* the file was copied */
#define FTI_SI_ACTV 0x2 /* the file is being copied */
#define FTI_SI_PEND 0x1 /* others are copied before it */
#define FTI_SI_NINI 0x0 /* there is no such request */

/* levels of messages */
#define FTI_DBUG 1
#define FTI_INFO 2
#define FTI_WARN 3
#define FTI_EROR 4

/* what processes send to the head process of their node in FTI; here no process receives it */
#define FTI_BASE 990
#define FTI_CKTW 991
#define FTI_XORW 992
#define FTI_RSEW 993
#define FTI_PFSW 994
#define FTI_ENDW 995
#define FTI_REJW 996

/* ckpt_io of the configuration file, plus 1000; here always FTI-FF */
#define FTI_IO_POSIX 1001
#define FTI_IO_MPI 1002
#define FTI_IO_FTIFF 1003
#define FTI_IO_HDF5 1005

/* A type of elements, by FTI_InitType or FTI_InitComplexType, or one of the basic types below. */
typedef struct FTIT_type {
    int id;
    int size; /* bytes of an element */
} FTIT_type;

/* The name of the type from FTI 1.5 on. */
typedef FTIT_type fti_id_t;

/* A field of a structure. */
typedef struct FTIT_typeField {
    int typeID; /* FTIT_type.id */
    int offset; /* in the structure, bytes */
    int rank;   /* dimensions */
    int dimLength[32];
    char name[FTI_BUFS];
} FTIT_typeField;

/* A structure: by FTI_AddSimpleField and FTI_AddComplexField. */
typedef struct FTIT_complexType {
    char name[FTI_BUFS];
    int length; /* fields */
    FTIT_typeField field[FTI_BUFS];
} FTIT_complexType;

/* What FTI_SetAttribute sets; both with `|`. */
typedef enum {
    FTI_ATTRIBUTE_NAME = 1,
    FTI_ATTRIBUTE_DIM = 2
} FTIT_attributeFlag;

/* A shape: the elements along each dimension, the one that is contiguous in memory first. */
typedef struct FTIT_dimension {
    int ndims; /* 1 to 32 */
    int64_t count[32];
} FTIT_dimension;

/* The attributes of a variable. */
typedef struct FTIT_attribute {
    FTIT_dimension dim;
    char name[FTI_BUFS];
} FTIT_attribute;

/* A group of an HDF5 file. There are none. */
typedef struct FTIT_H5Group {
    int id;
    char name[FTI_BUFS];
    int childrenNo;
    int childrenID[FTI_BUFS];
} FTIT_H5Group;

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

/* The processes of the application, after FTI_Init; in a head process, the head processes. */
#define FTI_COMM_WORLD (*(MPI_Comm *)holdfast_fti_communicator())

/* Of the library, for FTI_Init. */
void *holdfast_fti_communicator(void);
int holdfast_fti_init(const char *configuration, int rank, int ranks);
int holdfast_fti_start(const char *configuration, int rank, int ranks, int *role);
int holdfast_fti_serve(void);

/* Joins the run. In a restart, checkpoints of which a file is damaged are dropped here. `configuration`: FTI's file, of
 * which the intervals Ckpt_L1 to Ckpt_L4 take effect; NULL for none. `communicator`: MPI_COMM_WORLD, or one with the
 * same ranks; otherwise it fails on all ranks, and can be called again. Collective.
 *
 * With Head = 1 in the file, the first rank of each node is its head process. There, FTI_Init does not return: it calls
 * MPI_Finalize at the end of the run, and ends the process with exit code 0. With Keep_heads_alive = 1 it returns
 * FTI_HEAD instead. */
static __inline int FTI_Init(const char *configuration, MPI_Comm communicator)
{
    int rank, ranks, role, served;
    if (MPI_Comm_rank(communicator, &rank) != MPI_SUCCESS || MPI_Comm_size(communicator, &ranks) != MPI_SUCCESS) {
        return FTI_NSCS;
    }
    if (holdfast_fti_start(configuration, rank, ranks, &role) != FTI_SCES) {
        return FTI_NSCS;
    }
    if (role == 0) {
        FTI_COMM_WORLD = communicator;
        return FTI_SCES;
    }
    if (MPI_Comm_split(communicator, role, rank, &FTI_COMM_WORLD) != MPI_SUCCESS) {
        return FTI_NSCS;
    }
    if (role == 1) {
        return FTI_SCES;
    }
    served = holdfast_fti_serve();
    if (served != FTI_HEAD) {
        MPI_Finalize();
        exit(0);
    }
    return served;
}

/* 1 if there is a checkpoint to recover from, else 0. */
int FTI_Status(void);

/* Initialises a type by the bytes of an element. */
int FTI_InitType(FTIT_type *type, int size);

/* Initialises a type by a structure whose fields 0 to `length` - 1 were added to `definition`. The file contains the
 * `size` bytes of each element. `name`: NULL for a default. `group`: NULL. */
int FTI_InitComplexType(FTIT_type *type, FTIT_complexType *definition, int length, size_t size, const char *name,
                        FTIT_H5Group *group);

/* Adds a field, by the numbers 0, 1 and so on: one element, or an array of `rank` dimensions (1 to 32). `offset`: of
 * offsetof. `name`: NULL for a default. After an error, FTI_InitComplexType fails. */
void FTI_AddSimpleField(FTIT_complexType *definition, FTIT_type *type, size_t offset, int id, const char *name);
void FTI_AddComplexField(FTIT_complexType *definition, FTIT_type *type, size_t offset, int rank, int *lengths, int id,
                         const char *name);

/* For HDF5 files: FTI_NSCS. */
int FTI_InitGroup(FTIT_H5Group *group, const char *name, FTIT_H5Group *parent);
int FTI_RenameGroup(FTIT_H5Group *group, const char *name);
int FTI_DefineDataset(int id, int rank, int *lengths, const char *name, FTIT_H5Group *group);

/* Flips no bits: FTI_NSCS. */
int FTI_BitFlip(int id);

/* Protects `count` elements at `address` as variable `id`. Call it again when the variable has moved or changed its
 * size. */
int FTI_Protect(int id, void *address, long count, FTIT_type type);

/* The id of the variable with this identifier: the one of an earlier call, in a restart that of the checkpoint, or else
 * a new one, to be passed to FTI_Protect. FTI_NSCS after an error. */
int FTI_setIDFromString(const char *name);

/* As FTI_setIDFromString, but returns -1 if no variable has this identifier. */
int FTI_getIDFromString(const char *name);

/* Sets name or shape of a protected variable, or both. They are in the file Ckpt<id>-Rank<rank>.names.json of each
 * checkpoint that is taken then, beside the checkpoint file. */
int FTI_SetAttribute(int id, FTIT_attribute attribute, FTIT_attributeFlag flag);

/* The bytes of the variable in the newest checkpoint; 0 if it is not there. */
long FTI_GetStoredSize(int id);

/* In a restart: gives the memory of a protected variable, which is from malloc, its size in the checkpoint, and
 * protects it again. Returns its address, after an error the address that was given, as FTI does; NULL only if there is
 * no memory. */
void *FTI_Realloc(int id, void *address);

/* Saves all variables as checkpoint `id` of level 1 (node), 2 (partner), 3 (parity) or 4 (prefix directory). Returns
 * FTI_DONE. If a halt condition holds, the program ends here with exit code 0. Collective. */
int FTI_Checkpoint(int id, int level);

/* An incremental checkpoint: FTI_InitICP, then FTI_AddVarICP for each protected variable in any order, as soon as it is
 * ready, then FTI_FinalizeICP. Each variable is saved with the content that it has in its call, and may change
 * afterwards; its size stays the same from FTI_InitICP to FTI_FinalizeICP.
 *
 * FTI_InitICP: as FTI_Checkpoint, if `activate` is true. Otherwise it and the calls up to FTI_FinalizeICP do nothing,
 * and return FTI_SCES. Collective.
 *
 * FTI_AddVarICP: not collective. After FTI_NSCS the checkpoint must still be finalized, on all ranks.
 *
 * FTI_FinalizeICP: FTI_SCES if the checkpoint was kept; FTI_NSCS if a rank has not added all its variables, or could
 * not write its file: it is then dropped on all ranks. If a halt condition holds, the program ends here with exit code
 * 0. Collective. */
int FTI_InitICP(int id, int level, bool activate);
int FTI_AddVarICP(int id);
int FTI_FinalizeICP(void);

/* Loads the newest checkpoint that is intact on all ranks. Returns FTI_NREC if there is none, or if on any rank its
 * variables or their sizes are not those that are protected: then nothing is loaded on any rank, and it can be called
 * again. Returns FTI_NSCS before FTI_Init. Collective. */
int FTI_Recover(void);

/* In a restart: loads the variable `id` alone. It must be protected, with its size in the checkpoint; otherwise
 * FTI_NREC, and the variable is unchanged. The checkpoint stays the one to recover from until the next one is taken.
 * FTI_SCES if there is none. Not collective. */
int FTI_RecoverVar(int id);

/* FTI's later releases need them around FTI_RecoverVar. There is nothing to do: FTI_SCES. */
int FTI_RecoverVarInit(void);
int FTI_RecoverVarFinalize(void);

/* In a restart, the first call is FTI_Recover. Any other takes a checkpoint if one is due by the intervals, and then
 * returns FTI_DONE; otherwise FTI_SCES. Collective. */
int FTI_Snapshot(void);

/* Staging, with Enable_staging = 1 in the configuration file: a thread of the process copies files while the program
 * computes. Not collective.
 *
 * FTI_GetStageDir: the path of a directory on the node, in the cache, for files of this process; FTI_Finalize removes
 * it. `size`: the bytes of the buffer.
 *
 * FTI_SendFile: has the file `local` copied to `remote`, in an existing directory; returns the number of the request,
 * or FTI_NSCS. The file must not change until it is copied, and is not removed. `remote` has its new content when it is
 * complete and on disk. FTI_Finalize waits for all requests.
 *
 * FTI_GetStageStatus: FTI_SI_*. FTI_SI_SCES and FTI_SI_FAIL are returned once, then FTI_SI_NINI. */
int FTI_GetStageDir(char *directory, int size);
int FTI_SendFile(const char *local, const char *remote);
int FTI_GetStageStatus(int request);

/* The program is finished: the newest checkpoint is copied to the prefix directory, and the job is not relaunched.
 * Collective. Does nothing in a process that was forked from the one that called FTI_Init; all other calls fail
 * there. */
int FTI_Finalize(void);

#ifdef __cplusplus
}
#endif

#endif
