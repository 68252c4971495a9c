/*
 * SIONlib's serial C interface, version 1.7, by Holdfast: files with the streams of many tasks. The functions for MPI
 * are in sion_mpi.h, which is included at the end if mpi.h was included before, or if SION_MPI is defined.
 *
 *     cc program.c -lsion
 *     mpicc -DSION_MPI program.c -lsion
 *
 * Functions that fail return what SIONlib's return, and print on standard error what failed and what to do.
 * docs/libsion.md describes the differences from SIONlib.
 *
 * Not here, and refused by the compiler or the linker: the mapped functions for MPI (sion_paropen_mapped_mpi), the
 * other parallel interfaces (sion_paropen_omp, sion_paropen_ompi, sion_generic_*), sion_dup, sion_dedup,
 * sion_set_second_fp, sion_unset_second_fp, sion_set_fp_closed, sion_optimize_fp_buffer, sion_get_sizeof,
 * sion_get_io_info, sion_using_hints, sion_lock_register_lock_callbacks, and the Fortran interface.
 */

#ifndef SION_H
#define SION_H

#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int sion_int32;
typedef unsigned int sion_uint32;
typedef long long sion_int64;
typedef unsigned long long sion_uint64;

/* return values */
#define SION_SUCCESS 1
#define SION_NOT_SUCCESS 0
#define SION_ID_UNDEF (-1)     /* no handle */
#define SION_ID_NOT_VALID (-1) /* no handle */
#define SION_SIZE_NOT_VALID (-1)
#define SION_ANSI_SIZE_NOT_VALID 0 /* of sion_fread and sion_fwrite */

/* the version whose interface and file format this is */
#define SION_MAIN_VERSION 1
#define SION_SUB_VERSION 7
#define SION_VERSION_PATCHLEVEL 2
#define SION_FILEFORMAT_VERSION 5

/* arguments of the functions that seek */
#define SION_CURRENT_RANK (-101)
#define SION_CURRENT_BLK (-102)
#define SION_CURRENT_CHUNK (-102)
#define SION_CURRENT_BLOCK (-102)
#define SION_CURRENT_POS (-103)
#define SION_ABSOLUTE_POS (-104) /* for a chunk: the position is one in the whole stream */
#define SION_END_POS (-105)      /* for a chunk: the position, 0 or negative, is one from the end of the stream */

/* key-value modes; SIONlib writes only the first two, too */
#define SION_KEYVAL_NONE 50
#define SION_KEYVAL_INLINE 51
#define SION_KEYVAL_META 52
#define SION_KEYVAL_HASH 53
#define SION_KEYVAL_UNKNOWN 54
#define SION_KEYVAL_NOTSET 55

#define SION_MAX_FSBLOCKSIZE (32 * 1024 * 1024)
#define SION_DEFAULT_FSBLOCKSIZE (2 * 1024 * 1024)
#define SION_FILENAME_LENGTH 1024

/* -- open and close -- */

/* Opens a file for all its tasks. `mode`: "wb" or "rb", and after commas "keyval=inline", "endianness=big" (or
 * "little"), "posix" (no FILE). Returns a handle, or -1. The current task is the first.
 *
 * To write, one file is created: `ntasks` tasks, `nfiles` 1, with these chunk sizes (bytes) and global ranks.
 * `fsblksize`: the alignment of chunks in bytes; 0 or -1 is replaced by that of the file system.
 *
 * To read, all these are set; a file set is opened by its first file. `*chunksizes` and `*globalranks` may be arrays
 * that are large enough, or NULL: then they are allocated, and to be freed by the program.
 *
 * `fileptr`: the FILE with which the program can read and write by itself; may be NULL. */
int sion_open(char *fname, const char *mode, int *ntasks, int *nfiles, sion_int64 **chunksizes, sion_int32 *fsblksize,
              int **globalranks, FILE **fileptr);

/* Opens a file to read the stream of one task. */
int sion_open_rank(char *fname, const char *mode, sion_int64 *chunksize, sion_int32 *fsblksize, int *rank,
                   FILE **fileptr);

/* Closes a file. One that was written is complete now, and can be read. The handle is invalid also after an error. */
int sion_close(int sid);

/* -- read and write -- */

/* Writes to the current task, all items in one chunk: a new one, if this has no room for them. Returns `nitems`, or 0:
 * they are larger than a chunk. */
size_t sion_fwrite(const void *data, size_t size, size_t nitems, int sid);

/* Reads items from the current chunk, or at its end from the next one. Returns their number; 0 at the end of the
 * stream, and if the chunk has fewer bytes left. */
size_t sion_fread(void *data, size_t size, size_t nitems, int sid);

/* sion_fwrite and sion_fread: each task writes and reads by itself, also with "collective" in the mode. */
size_t sion_coll_fwrite(const void *data, size_t size, size_t nitems, int sid);
size_t sion_coll_fread(void *data, size_t size, size_t nitems, int sid);

/* Makes room for so many bytes, which must fit into a chunk, before the program writes them to its FILE. */
int sion_ensure_free_space(int sid, sion_int64 bytes);

/* 1 at the end of the stream, else 0. At the end of a chunk, goes to the next one. */
int sion_feof(int sid);

/* The bytes of the current chunk that are not read. */
sion_int64 sion_bytes_avail_in_block(int sid);
sion_int64 sion_bytes_avail_in_chunk(int sid);

/* Passes what was written to the system. Returns 0 if the current chunk is empty. */
int sion_flush(int sid);

/* Goes to a task, and to a chunk and a position in it. When writing, only to a task: SION_CURRENT_BLK,
 * SION_CURRENT_POS. The second sets the FILE, which can be another one in a set of several files. */
int sion_seek(int sid, int rank, int currentblocknr, sion_int64 posinblk);
int sion_seek_fp(int sid, int rank, int currentblocknr, sion_int64 posinblk, FILE **fileptr);

/* -- key-value -- */

/* Writes a record. Returns `nitems`; after an error (size_t) -1, or 0 if there is no such handle. */
size_t sion_fwrite_key(const void *data, uint64_t key, size_t size, size_t nitems, int sid);

/* Reads items of the key's current record, and then goes to the key's next record. Returns their number. */
size_t sion_fread_key(void *data, uint64_t key, size_t size, size_t nitems, int sid);

/* The records of the current task in the order of writing. Each becomes the current record of its key. */
int sion_fread_key_iterator_reset(int sid);
int sion_fread_key_iterator_next(int sid, uint64_t *key, size_t *size);

/* Goes to a record of the key, and a position in it. `entrynum`: 0 and up, SION_CURRENT_BLOCK, or SION_ABSOLUTE_POS for
 * a position in all records of the key. */
int sion_seek_key(int sid, uint64_t key, int entrynum, sion_int64 posinentry);

/* Reads the heads of all records of the current task. */
int sion_key_full_scan(int sid);

/* The keys of the current task, in the order of their first records. */
int sion_key_list_iterator_reset(int sid);
int sion_key_list_iterator_next(int sid, uint64_t *key);

struct _sion_key_stat_struct {
    uint64_t key;
    sion_int64 num_blocks; /* records */
    sion_int64 total_size; /* bytes of all of them */
};
typedef struct _sion_key_stat_struct sion_key_stat_t;

/* Returns 0 if the current task has no such key. */
int sion_key_get_stat(int sid, uint64_t key, sion_key_stat_t *stat);

/* SION_KEYVAL_NONE, or SION_KEYVAL_INLINE. */
int sion_get_keyval_mode(int sid);
char *sion_keyval_type_to_str(int type);

/* -- the file -- */

/* 1 if the program's data are declared as big-endian, 0 if not; the library does not convert them. */
int sion_get_file_endianness(int sid);
int sion_endianness_swap_needed(int sid);
int sion_get_endianness(void); /* of this machine */

/* Copies `n` elements of `size` bytes, with their bytes reversed if `do_swap` is not 0. In place or not overlapping. */
void sion_swap(void *target, void *source, int size, int n, int do_swap);

/* Tables of the file: chunk sizes, global ranks and numbers of chunks of each task, and the bytes in each chunk, at
 * [ntasks * chunk + task]. They belong to the library, until sion_close; of a file that is written, until the next
 * call. */
int sion_get_locations(int sid, int *ntasks, int *maxblocks, sion_int64 *globalskip, sion_int64 *start_of_varheader,
                       sion_int64 **chunksizes, sion_int64 **globalranks, sion_int64 **blockcount,
                       sion_int64 **blocksizes);

/* The current task: its chunk, the position there, the number of its chunks, and the bytes used in each. The table is
 * valid until the next call of a function with this handle. */
int sion_get_current_location(int sid, int *currentblock, sion_int64 *currentpos, int *maxchunks,
                              sion_int64 **chunksizes);

/* The position (in its file) and the chunk of each task. The tables are valid until the next call. */
int sion_get_current_locations(int sid, int *ntasks, sion_int64 **currentpos, sion_int64 **currentblocknr);

/* Of a set of several files: for each task its file, and its index there. Otherwise `*mapping_size` is -1. */
int sion_get_mapping(int sid, int *mapping_size, sion_int32 **mapping, int *numfiles);

int sion_get_number_of_files(int sid);
int sion_get_filenumber(int sid);
int sion_is_serial_opened(int sid); /* 0 for a file of sion_paropen_mpi */
sion_int64 sion_get_position(int sid); /* in the physical file */
sion_int64 sion_get_bytes_written(int sid); /* by the current task; -1 when reading */
sion_int64 sion_get_bytes_read(int sid); /* by the current task; -1 when writing */
FILE *sion_get_fp(int sid); /* NULL with "posix" */
int sion_get_fd(int sid); /* -1 without "posix" */

int sion_get_version(int *main_version, int *sub_version, int *patch_level, int *fileformat_version);
int sion_is_thread_safe(void); /* 1: calls of several threads are carried out one after another */

#ifdef __cplusplus
}
#endif

#if defined(MPI_VERSION) || defined(SION_MPI)
#include "sion_mpi.h"
#endif

#endif
