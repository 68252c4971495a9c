/*
 * SIONlib's parallel C interface for MPI, version 1.7, by Holdfast: each process writes or reads one task of a file.
 *
 * sion.h includes it if mpi.h was included before, or if SION_MPI is defined:
 *
 *     mpicc -DSION_MPI program.c -lsion
 *
 * The library contains no MPI: what needs a communicator is defined here, and compiled by the MPI of the program.
 * Functions that fail do so on all processes, return what SIONlib's return, and print on standard error what failed
 * and what to do. docs/libsion_mpi.md describes the differences from SIONlib.
 */

#ifndef SION_MPI_H
#define SION_MPI_H

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "sion.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- of the library, for the functions below; programs do not use it -- */

/* What a process needs to know of its task. All zero: the first task of the file failed. */
struct holdfast_sion_task {
    sion_int64 start, chunk_size, block_skip, global_rank, length, chunks;
    int valid, local_rank, files, number, block_size, records, big_metadata, big_data;
};

int holdfast_sion_mode(const char *mode);
int holdfast_sion_create(const char *name, int number, int *block_size, sion_uint64 *mark);
int holdfast_sion_join(const char *name, const char *mode, int number, sion_uint64 mark, int local_rank);
int holdfast_sion_plan(int sid, const char *name, const int *set, int tasks, const sion_int64 *requested,
                       const sion_int64 *ranks, const int *mapping, int mapped, struct holdfast_sion_task *to);
int holdfast_sion_begin(int sid, const struct holdfast_sion_task *task, void *communicators, FILE **fileptr);
void holdfast_sion_discard(int sid);
void *holdfast_sion_communicators(int sid, const char *function);
int holdfast_sion_is_written(int sid);
int holdfast_sion_chunks(int sid);
int holdfast_sion_chunk_bytes(int sid, sion_int64 *to);
int holdfast_sion_close(int sid, int tasks, const int *chunks, const sion_int64 *bytes);
int holdfast_sion_is_untouched(int sid);
int holdfast_sion_resize(int sid, int tasks, const sion_int64 *requested, const sion_int64 *ranks,
                         struct holdfast_sion_task *to);
int holdfast_sion_move(int sid, const struct holdfast_sion_task *task);
int holdfast_sion_places(const char *name, int processes, int *files, int *places);
int holdfast_sion_part(const char *name, const char *mode, int number, int files, int tasks, const int *ranks,
                       struct holdfast_sion_task *to, sion_int64 **bytes);
int holdfast_sion_read(const char *name, const char *mode, int number, const struct holdfast_sion_task *task,
                       const sion_int64 *bytes, void *communicators, FILE **fileptr);

/* The communicators of an open file: that of the program, and that of the tasks of one physical file. */
struct holdfast_sion_group {
    MPI_Comm global, local;
    int rank, ranks;   /* in the first */
    int task, tasks;   /* in the second */
    int number, files; /* the physical file, and how many there are */
};

/* 1 if it is 1 on all processes. */
static __inline int holdfast_sion_agree(int value, MPI_Comm communicator)
{
    int all = 0;
    return MPI_Allreduce(&value, &all, 1, MPI_INT, MPI_MIN, communicator) == MPI_SUCCESS && all == 1;
}

/* Memory for so many elements, also for none. */
static __inline void *holdfast_sion_memory(size_t elements, size_t bytes)
{
    return calloc(elements > 0 ? elements : 1, bytes);
}

/* Prints why a file is not opened, on the first process. */
static __inline int holdfast_sion_refuse(int rank, const char *why)
{
    if (rank == 0)
        fprintf(stderr, "SION: sion_paropen_mpi: %s\n", why);
    return 0;
}

/* Makes the communicator of a physical file. The task has the rank `index` there. */
static __inline int holdfast_sion_split(struct holdfast_sion_group *group, int index)
{
    int made = MPI_Comm_split(group->global, group->number, index, &group->local) == MPI_SUCCESS;
    if (made)
        made = MPI_Comm_rank(group->local, &group->task) == MPI_SUCCESS
               && MPI_Comm_size(group->local, &group->tasks) == MPI_SUCCESS;
    return made;
}

/* Distributes the processes over so many files, the rest to the last one. */
static __inline int holdfast_sion_distribute(struct holdfast_sion_group *group, int files)
{
    int share = group->ranks / files;
    if (share == 0)
        return holdfast_sion_refuse(group->rank, "there are more files than processes: give numFiles up to their "
                                                 "number");
    group->files = files;
    group->number = group->rank / share < files ? group->rank / share : files - 1;
    return holdfast_sion_split(group, group->rank);
}

/* One file for each of the program's communicators, in the order of the ranks of their first processes. */
static __inline int holdfast_sion_adopt(struct holdfast_sion_group *group, MPI_Comm given)
{
    int index = 0, members = 0, first[2], sums[2], valid;
    valid = MPI_Comm_rank(given, &index) == MPI_SUCCESS && MPI_Comm_size(given, &members) == MPI_SUCCESS;
    first[0] = index == 0;
    first[1] = index == 0 ? members : 0;
    valid = MPI_Allreduce(first, sums, 2, MPI_INT, MPI_SUM, group->global) == MPI_SUCCESS && valid;
    if (!valid || sums[1] != group->ranks)
        return holdfast_sion_refuse(group->rank, "the local communicators do not have each process once: split the "
                                                 "global communicator, and give each process its part");
    group->files = sums[0];
    group->number = 0;
    valid = MPI_Exscan(&first[0], &group->number, 1, MPI_INT, MPI_SUM, group->global) == MPI_SUCCESS;
    if (group->rank == 0)
        group->number = 0;
    valid = MPI_Bcast(&group->number, 1, MPI_INT, 0, given) == MPI_SUCCESS && valid;
    return holdfast_sion_split(group, index) && valid;
}

/* Creates the file, and begins to write. Returns the handle, or -1. */
static __inline int holdfast_sion_create_mpi(const char *name, const char *mode, struct holdfast_sion_group *group,
                                             sion_int64 requested, sion_int32 *block_size, FILE **fileptr)
{
    struct {
        sion_uint64 mark;
        int created, block_size;
    } file;
    struct holdfast_sion_task own, *tasks = NULL;
    sion_int64 rank = group->rank, *sizes = NULL, *ranks = NULL;
    int place[2], *mapping = NULL, set[3], sid = -1, valid = 1, candidate, receiver = 0;

    memset(&file, 0, sizeof file);
    memset(&own, 0, sizeof own);
    place[0] = group->number;
    place[1] = group->task;
    /* The first task of the first file stores the places of all tasks. */
    candidate = group->number == 0 && group->task == 0 ? group->rank : group->ranks;
    MPI_Allreduce(&candidate, &receiver, 1, MPI_INT, MPI_MIN, group->global);
    if (group->task == 0) {
        sizes = (sion_int64 *)holdfast_sion_memory((size_t)group->tasks, sizeof *sizes);
        ranks = (sion_int64 *)holdfast_sion_memory((size_t)group->tasks, sizeof *ranks);
        tasks = (struct holdfast_sion_task *)holdfast_sion_memory((size_t)group->tasks, sizeof *tasks);
        valid = sizes != NULL && ranks != NULL && tasks != NULL;
        file.block_size = *block_size;
        file.created = holdfast_sion_create(name, group->number, &file.block_size, &file.mark) == SION_SUCCESS;
    }
    if (group->files > 1 && group->rank == receiver) {
        mapping = (int *)holdfast_sion_memory((size_t)group->ranks, 2 * sizeof *mapping);
        valid = valid && mapping != NULL;
    }
    MPI_Bcast(&file, (int)sizeof file, MPI_BYTE, 0, group->local);
    if (file.created)
        sid = holdfast_sion_join(name, mode, group->number, file.mark, group->task);
    if (holdfast_sion_agree(valid && sid >= 0, group->global)) {
        MPI_Gather(&requested, 1, MPI_LONG_LONG, sizes, 1, MPI_LONG_LONG, 0, group->local);
        MPI_Gather(&rank, 1, MPI_LONG_LONG, ranks, 1, MPI_LONG_LONG, 0, group->local);
        if (group->files > 1)
            MPI_Gather(place, 2, MPI_INT, mapping, 2, MPI_INT, receiver, group->global);
        if (group->task == 0) {
            set[0] = group->files;
            set[1] = group->number;
            set[2] = file.block_size;
            holdfast_sion_plan(sid, name, set, group->tasks, sizes, ranks, mapping, group->ranks, tasks);
        }
        MPI_Scatter(tasks, (int)sizeof own, MPI_BYTE, &own, (int)sizeof own, MPI_BYTE, 0, group->local);
        valid = own.valid && holdfast_sion_begin(sid, &own, group, fileptr) == SION_SUCCESS;
        valid = holdfast_sion_agree(valid, group->global);
    } else {
        valid = 0;
    }
    free(sizes);
    free(ranks);
    free(tasks);
    free(mapping);
    if (!valid) {
        if (sid >= 0)
            holdfast_sion_discard(sid);
        return SION_ID_UNDEF;
    }
    *block_size = file.block_size;
    return sid;
}

/* Opens the file to read. Returns the handle, or -1. */
static __inline int holdfast_sion_read_mpi(const char *name, const char *mode, struct holdfast_sion_group *group,
                                           sion_int64 *chunk_size, sion_int32 *block_size, FILE **fileptr)
{
    struct holdfast_sion_task own, *tasks = NULL;
    sion_int64 *own_bytes, *bytes = NULL;
    int found[2] = {0, 0}, place[2], *places = NULL, *ranks = NULL, *counts = NULL, *starts = NULL;
    int sid = -1, valid = 1;

    memset(&own, 0, sizeof own);
    if (group->rank == 0) {
        places = (int *)holdfast_sion_memory((size_t)group->ranks, 2 * sizeof *places);
        found[0] = places != NULL && holdfast_sion_places(name, group->ranks, &found[1], places) == SION_SUCCESS;
    }
    MPI_Bcast(found, 2, MPI_INT, 0, group->global);
    if (!found[0]) {
        free(places);
        return SION_ID_UNDEF;
    }
    group->files = found[1];
    MPI_Scatter(places, 2, MPI_INT, place, 2, MPI_INT, 0, group->global);
    free(places);
    group->number = place[0];
    valid = holdfast_sion_split(group, place[1]);
    if (group->task == 0) {
        ranks = (int *)holdfast_sion_memory((size_t)group->tasks, sizeof *ranks);
        counts = (int *)holdfast_sion_memory((size_t)group->tasks, sizeof *counts);
        starts = (int *)holdfast_sion_memory((size_t)group->tasks, sizeof *starts);
        tasks = (struct holdfast_sion_task *)holdfast_sion_memory((size_t)group->tasks, sizeof *tasks);
        valid = valid && ranks != NULL && counts != NULL && starts != NULL && tasks != NULL;
    }
    valid = holdfast_sion_agree(valid, group->global);
    if (valid) {
        MPI_Gather(&group->rank, 1, MPI_INT, ranks, 1, MPI_INT, 0, group->local);
        if (group->task == 0
            && holdfast_sion_part(name, mode, group->number, group->files, group->tasks, ranks, tasks, &bytes)
                   == SION_SUCCESS) {
            int i, sum = 0;
            for (i = 0; i < group->tasks; i++) {
                counts[i] = (int)tasks[i].chunks;
                starts[i] = sum;
                sum += counts[i];
            }
        }
        MPI_Scatter(tasks, (int)sizeof own, MPI_BYTE, &own, (int)sizeof own, MPI_BYTE, 0, group->local);
        own_bytes = (sion_int64 *)holdfast_sion_memory((size_t)own.chunks, sizeof *own_bytes);
        valid = holdfast_sion_agree(own.valid && own_bytes != NULL, group->global);
        if (valid) {
            MPI_Scatterv(bytes, counts, starts, MPI_LONG_LONG, own_bytes, (int)own.chunks, MPI_LONG_LONG, 0,
                         group->local);
            sid = holdfast_sion_read(name, mode, group->number, &own, own_bytes, group, fileptr);
            valid = holdfast_sion_agree(sid >= 0, group->global);
        }
        free(own_bytes);
    }
    free(ranks);
    free(counts);
    free(starts);
    free(tasks);
    free(bytes);
    if (!valid) {
        if (sid >= 0)
            holdfast_sion_discard(sid);
        return SION_ID_UNDEF;
    }
    *chunk_size = own.chunk_size;
    *block_size = own.block_size;
    return sid;
}

/* -- open and close -- */

/* Opens a file with one task for each process of `gComm`, which must exist until the file is closed. Collective.
 * Returns a handle for the functions of sion.h, or -1 on all processes. `mode`: see docs/libsion_mpi.md; the same on
 * all.
 *
 * To write: `*numFiles` physical files, the processes distributed over them. Or -1: one for each communicator `*lComm`,
 * of which each process of `gComm` has one; `*numFiles` is set. `*chunksize`: of this process, in bytes. `*fsblksize`:
 * the alignment of chunks; 0 or -1 is replaced by that of the file system.
 *
 * To read, by as many processes as wrote it, all these are set. `lComm` is not used, and may be NULL.
 *
 * `*globalrank` is set to the rank in `gComm`, and `*fileptr` to the FILE; `*newfname` to the name of the physical
 * file, to be freed by the program. These may be NULL.
 *
 * All processes of a physical file need one file system. Each file has the name that is given there. */
static __inline int sion_paropen_mpi(const char *fname, const char *file_mode, int *numFiles, MPI_Comm gComm,
                                     const MPI_Comm *lComm, sion_int64 *chunksize, sion_int32 *fsblksize,
                                     int *globalrank, FILE **fileptr, char **newfname)
{
    struct holdfast_sion_group *group = (struct holdfast_sion_group *)holdfast_sion_memory(1, sizeof *group);
    int rank = 0, writes, given, own[8], least[8], sid = SION_ID_UNDEF, valid;
    char *name = NULL;

    MPI_Comm_rank(gComm, &rank);
    writes = holdfast_sion_mode(file_mode);
    given = lComm != NULL && *lComm != MPI_COMM_NULL;
    valid = fname != NULL && numFiles != NULL && chunksize != NULL && fsblksize != NULL;
    if (!valid)
        fprintf(stderr, "SION: sion_paropen_mpi: a pointer is NULL: give the name, and pointers to the number of "
                        "files, the chunk size and the block size\n");
    if (valid && newfname != NULL)
        name = (char *)holdfast_sion_memory(strlen(fname) + 16, 1);
    /* The least and, negated, the largest value of all processes. */
    own[0] = valid && group != NULL && writes >= 0 && (newfname == NULL || name != NULL);
    own[1] = writes;
    own[2] = -writes;
    own[3] = numFiles == NULL || *numFiles < 0 ? 0 : *numFiles;
    own[4] = -own[3];
    own[5] = given;
    own[6] = -given;
    own[7] = writes != 1 || own[3] > 0 || lComm != NULL;
    valid = MPI_Allreduce(own, least, 8, MPI_INT, MPI_MIN, gComm) == MPI_SUCCESS && least[0] == 1;
    if (valid && least[1] != -least[2])
        valid = holdfast_sion_refuse(rank, "some processes write, and others read: give all of them the same mode");
    else if (valid && writes && (least[3] != -least[4] || (least[3] == 0 && least[5] != -least[6])))
        valid = holdfast_sion_refuse(rank, "the processes differ in numFiles, or in whether they have a local "
                                           "communicator");
    else if (valid && !least[7])
        valid = holdfast_sion_refuse(rank, "numFiles is -1, and there is no local communicator: give one, or the "
                                           "number of files");
    if (valid) {
        group->global = gComm;
        group->local = MPI_COMM_NULL;
        MPI_Comm_rank(gComm, &group->rank);
        MPI_Comm_size(gComm, &group->ranks);
        if (!writes) {
            sid = holdfast_sion_read_mpi(fname, file_mode, group, chunksize, fsblksize, fileptr);
        } else {
            valid = own[3] > 0 ? holdfast_sion_distribute(group, own[3])
                               : holdfast_sion_adopt(group, given ? *lComm : gComm);
            if (holdfast_sion_agree(valid, gComm))
                sid = holdfast_sion_create_mpi(fname, file_mode, group, *chunksize, fsblksize, fileptr);
        }
        if (sid < 0 && group->local != MPI_COMM_NULL)
            MPI_Comm_free(&group->local);
    }
    if (sid < 0) {
        free(group);
        free(name);
        return SION_ID_UNDEF;
    }
    *numFiles = group->files;
    if (globalrank != NULL)
        *globalrank = group->rank;
    if (name != NULL) {
        strcpy(name, fname);
        if (group->number > 0)
            sprintf(name + strlen(name), ".%06d", group->number);
        *newfname = name;
    }
    return sid;
}

/* Closes a file; one that was written is complete now, and can be read. Collective. The handle is invalid also after an
 * error. A file of which a process could not write its part is not completed. */
static __inline int sion_parclose_mpi(int sid)
{
    struct holdfast_sion_group *group
        = (struct holdfast_sion_group *)holdfast_sion_communicators(sid, "sion_parclose_mpi");
    int valid = 1;

    if (group == NULL)
        return SION_ID_NOT_VALID;
    if (holdfast_sion_is_written(sid) != 1) {
        valid = holdfast_sion_close(sid, 0, NULL, NULL) == SION_SUCCESS;
    } else {
        int i, sum = 0, chunks = holdfast_sion_chunks(sid), *counts = NULL, *starts = NULL;
        sion_int64 *own = (sion_int64 *)holdfast_sion_memory(chunks > 0 ? (size_t)chunks : 0, sizeof *own), *all = NULL;

        valid = chunks > 0 && own != NULL && holdfast_sion_chunk_bytes(sid, own) == SION_SUCCESS;
        if (group->task > 0)
            valid = holdfast_sion_close(sid, 0, NULL, NULL) == SION_SUCCESS && valid;
        else {
            counts = (int *)holdfast_sion_memory((size_t)group->tasks, sizeof *counts);
            starts = (int *)holdfast_sion_memory((size_t)group->tasks, sizeof *starts);
            valid = valid && counts != NULL && starts != NULL;
        }
        valid = holdfast_sion_agree(valid, group->local);
        if (valid)
            MPI_Gather(&chunks, 1, MPI_INT, counts, 1, MPI_INT, 0, group->local);
        if (valid && group->task == 0) {
            for (i = 0; i < group->tasks; i++) {
                starts[i] = sum;
                sum += counts[i];
            }
            all = (sion_int64 *)holdfast_sion_memory((size_t)sum, sizeof *all);
        }
        valid = holdfast_sion_agree(valid && (group->task > 0 || all != NULL), group->local);
        if (valid)
            MPI_Gatherv(own, chunks, MPI_LONG_LONG, all, counts, starts, MPI_LONG_LONG, 0, group->local);
        if (group->task == 0) {
            if (valid)
                valid = holdfast_sion_close(sid, group->tasks, counts, all) == SION_SUCCESS;
            else
                holdfast_sion_discard(sid);
        }
        free(own);
        free(all);
        free(counts);
        free(starts);
    }
    valid = holdfast_sion_agree(valid, group->global);
    MPI_Comm_free(&group->local);
    free(group);
    return valid ? SION_SUCCESS : SION_NOT_SUCCESS;
}

/* Gives the chunks of this process another size, before anything is written. Collective. */
static __inline int sion_parreinit_mpi(int sid, sion_int64 chunksize)
{
    struct holdfast_sion_group *group
        = (struct holdfast_sion_group *)holdfast_sion_communicators(sid, "sion_parreinit_mpi");
    struct holdfast_sion_task own, *tasks = NULL;
    sion_int64 rank, *sizes = NULL, *ranks = NULL;
    int valid;

    if (group == NULL)
        return SION_ID_NOT_VALID;
    memset(&own, 0, sizeof own);
    rank = group->rank;
    valid = holdfast_sion_is_untouched(sid) == SION_SUCCESS;
    if (group->task == 0) {
        sizes = (sion_int64 *)holdfast_sion_memory((size_t)group->tasks, sizeof *sizes);
        ranks = (sion_int64 *)holdfast_sion_memory((size_t)group->tasks, sizeof *ranks);
        tasks = (struct holdfast_sion_task *)holdfast_sion_memory((size_t)group->tasks, sizeof *tasks);
        valid = valid && sizes != NULL && ranks != NULL && tasks != NULL;
    }
    valid = holdfast_sion_agree(valid, group->global);
    if (valid) {
        MPI_Gather(&chunksize, 1, MPI_LONG_LONG, sizes, 1, MPI_LONG_LONG, 0, group->local);
        MPI_Gather(&rank, 1, MPI_LONG_LONG, ranks, 1, MPI_LONG_LONG, 0, group->local);
        if (group->task == 0)
            holdfast_sion_resize(sid, group->tasks, sizes, ranks, tasks);
        MPI_Scatter(tasks, (int)sizeof own, MPI_BYTE, &own, (int)sizeof own, MPI_BYTE, 0, group->local);
        valid = holdfast_sion_agree(own.valid && holdfast_sion_move(sid, &own) == SION_SUCCESS, group->global);
    }
    free(sizes);
    free(ranks);
    free(tasks);
    return valid ? SION_SUCCESS : SION_NOT_SUCCESS;
}

/* -- older names -- */

/* As sion_paropen_mpi, with a file for each communicator. `newfname` is not used. */
static __inline int sion_paropen_comms_mpi(char *fname, const char *file_mode, int *numFiles, MPI_Comm gComm,
                                           MPI_Comm lComm, sion_int64 *chunksize, sion_int32 *fsblksize,
                                           int *globalrank, FILE **fileptr, char *newfname)
{
    (void)newfname;
    if (numFiles != NULL)
        *numFiles = -1;
    return sion_paropen_mpi(fname, file_mode, numFiles, gComm, &lComm, chunksize, fsblksize, globalrank, fileptr, NULL);
}

/* As sion_paropen_mpi. `newfname` is not used. */
static __inline int sion_paropen_multi_mpi(char *fname, const char *file_mode, int *numFiles, MPI_Comm gComm,
                                           MPI_Comm *lComm, sion_int64 *chunksize, sion_int32 *fsblksize,
                                           int *globalrank, FILE **fileptr, char *newfname)
{
    (void)newfname;
    return sion_paropen_mpi(fname, file_mode, numFiles, gComm, lComm, chunksize, fsblksize, globalrank, fileptr, NULL);
}

/* sion_coll_fwrite and sion_coll_fread. */
static __inline size_t sion_coll_fwrite_mpi(const void *data, size_t size, size_t nitems, int sid)
{
    return sion_coll_fwrite(data, size, nitems, sid);
}

static __inline size_t sion_coll_fread_mpi(void *data, size_t size, size_t nitems, int sid)
{
    return sion_coll_fread(data, size, nitems, sid);
}

#ifdef __cplusplus
}
#endif

#endif
