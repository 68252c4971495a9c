/*
 * SIONlib's parallel C interface for MPI, version 1.7, by Holdfast: each process writes or reads its tasks of a file.
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

int holdfast_sion_mapped(void *communicators);
void *holdfast_sion_mapped_communicators(int sid);
int holdfast_sion_mapped_plan(int joined, const char *name, const int *set, int tasks, const sion_int64 *entries,
                              const int *mapping, int mapped, struct holdfast_sion_task *to);
int holdfast_sion_mapped_begin(int sid, int joined, int number, const struct holdfast_sion_task *own, int tasks);
int holdfast_sion_mapped_find(const char *name, int *files, int *tasks, sion_int64 **ranks);
int holdfast_sion_mapped_places(const char *name, int tasks, const int *ranks, int *places);
int holdfast_sion_mapped_part(const char *name, const char *mode, int number, int files, int tasks, const int *wanted,
                              struct holdfast_sion_task *to, sion_int64 **bytes);
int holdfast_sion_mapped_read(int sid, const char *name, const char *mode, int number,
                              const struct holdfast_sion_task *own, int tasks, const sion_int64 *bytes);
void holdfast_sion_mapped_file(int sid, FILE **fileptr);
int holdfast_sion_mapped_report(int sid, int number, sion_int64 **to);
int holdfast_sion_mapped_close(int sid, int number, const sion_int64 *report, sion_int64 length);
void holdfast_sion_mapped_end(int sid, int give_up);

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

/* Prints why a file is not opened by the function, on the first process. */
static __inline int holdfast_sion_refuse_by(const char *function, int rank, const char *why)
{
    if (rank == 0)
        fprintf(stderr, "SION: %s: %s\n", function, why);
    return 0;
}

static __inline int holdfast_sion_refuse(int rank, const char *why)
{
    return holdfast_sion_refuse_by("sion_paropen_mpi", rank, why);
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

/* -- several tasks of a process -- */

/* What a process has of an open file of sion_paropen_mapped_mpi. */
struct holdfast_sion_mapped_group {
    MPI_Comm global;
    int rank, ranks, files, writes;
    int *roots; /* of a file that is written: the process with the first task of each physical file */
};

/* The tasks of a process. */
struct holdfast_sion_mapped_tasks {
    int number;
    const int *ranks, *files, *indexes;
    const sion_int64 *sizes;
};

/* How many elements each process has, as the root has it; null elsewhere. */
struct holdfast_sion_counts {
    int *counts, *starts, sum;
};

static __inline int holdfast_sion_mapped_refuse(int rank, const char *why)
{
    return holdfast_sion_refuse_by("sion_paropen_mapped_mpi", rank, why);
}

static __inline void holdfast_sion_mapped_free(struct holdfast_sion_mapped_group *group)
{
    free(group->roots);
    free(group);
}

/* Gathers the numbers of elements. 1 on all processes if the root has memory for them. */
static __inline int holdfast_sion_gather_counts(const struct holdfast_sion_mapped_group *group, int own, int root,
                                                struct holdfast_sion_counts *to)
{
    int i, valid = 1;
    sion_int64 sum = 0;

    memset(to, 0, sizeof *to);
    if (group->rank == root) {
        to->counts = (int *)holdfast_sion_memory((size_t)group->ranks, sizeof *to->counts);
        to->starts = (int *)holdfast_sion_memory((size_t)group->ranks, sizeof *to->starts);
        valid = to->counts != NULL && to->starts != NULL;
    }
    if (!holdfast_sion_agree(valid, group->global))
        return 0;
    MPI_Gather(&own, 1, MPI_INT, to->counts, 1, MPI_INT, root, group->global);
    if (group->rank == root) {
        for (i = 0; i < group->ranks; i++) {
            to->starts[i] = (int)sum;
            sum += to->counts[i];
        }
        valid = sum <= 0x7fffffff;
        if (!valid)
            fprintf(stderr, "SION: too many tasks or chunks in one physical file: use more files\n");
        to->sum = (int)(valid ? sum : 0);
    }
    return holdfast_sion_agree(valid, group->global);
}

static __inline void holdfast_sion_free_counts(struct holdfast_sion_counts *counts)
{
    free(counts->counts);
    free(counts->starts);
}

/* The first process with a task of the file for which `has` is 1; the number of processes if there is none. */
static __inline int holdfast_sion_mapped_root(const struct holdfast_sion_mapped_group *group, int has)
{
    int candidate = has ? group->rank : group->ranks, root = group->ranks;
    MPI_Allreduce(&candidate, &root, 1, MPI_INT, MPI_MIN, group->global);
    return root;
}

/* Elements of `number` values of a type, or of so many bytes. */
static __inline MPI_Datatype holdfast_sion_elements(int number, MPI_Datatype type)
{
    MPI_Datatype elements = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(number, type, &elements);
    MPI_Type_commit(&elements);
    return elements;
}

/* Gathers the places of all tasks on the process that stores them. */
static __inline int holdfast_sion_mapped_gather(const struct holdfast_sion_mapped_group *group, int root,
                                                const struct holdfast_sion_mapped_tasks *tasks, int **to, int *number)
{
    struct holdfast_sion_counts all;
    MPI_Datatype triples;
    int i, valid, *own = (int *)holdfast_sion_memory((size_t)tasks->number, 3 * sizeof *own);

    valid = holdfast_sion_gather_counts(group, tasks->number, root, &all);
    if (valid && group->rank == root) {
        *to = (int *)holdfast_sion_memory((size_t)all.sum, 3 * sizeof **to);
        *number = all.sum;
    }
    valid = holdfast_sion_agree(valid && own != NULL && (group->rank != root || *to != NULL), group->global);
    if (valid) {
        for (i = 0; i < tasks->number; i++) {
            own[3 * i] = tasks->ranks[i];
            own[3 * i + 1] = tasks->files[i];
            own[3 * i + 2] = tasks->indexes[i];
        }
        triples = holdfast_sion_elements(3, MPI_INT);
        MPI_Gatherv(own, tasks->number, triples, *to, all.counts, all.starts, triples, root, group->global);
        MPI_Type_free(&triples);
    }
    holdfast_sion_free_counts(&all);
    free(own);
    return valid;
}

/* Creates a physical file, and begins to write the own tasks there. */
static __inline int holdfast_sion_mapped_create(int sid, const char *name, const char *mode,
                                                struct holdfast_sion_mapped_group *group, int number,
                                                const struct holdfast_sion_mapped_tasks *tasks, sion_int32 block_size)
{
    struct {
        sion_uint64 mark;
        int created, block_size;
    } file;
    struct holdfast_sion_counts all;
    struct holdfast_sion_task *own, *planned = NULL;
    sion_int64 *entries, *gathered = NULL;
    int i, root, own_tasks = 0, first = 0, joined = -1, valid, set[3], *mapping = NULL, mapped = 0;
    MPI_Datatype triples, task_type;
    char why[128];

    memset(&file, 0, sizeof file);
    memset(&all, 0, sizeof all);
    for (i = 0; i < tasks->number; i++) {
        own_tasks += tasks->files[i] == number;
        first = first || (tasks->files[i] == number && tasks->indexes[i] == 0);
    }
    root = holdfast_sion_mapped_root(group, first);
    if (root == group->ranks) {
        sprintf(why, "no process has task 0 of the physical file %d: number the tasks of each file from 0", number);
        return holdfast_sion_mapped_refuse(group->rank, why);
    }
    group->roots[number] = root;
    if (group->rank == root) {
        file.block_size = block_size;
        file.created = holdfast_sion_create(name, number, &file.block_size, &file.mark) == SION_SUCCESS;
    }
    MPI_Bcast(&file, (int)sizeof file, MPI_BYTE, root, group->global);
    if (file.created && own_tasks > 0)
        joined = holdfast_sion_join(name, mode, number, file.mark, group->rank == root ? 0 : 1);
    own = (struct holdfast_sion_task *)holdfast_sion_memory((size_t)own_tasks, sizeof *own);
    entries = (sion_int64 *)holdfast_sion_memory((size_t)own_tasks, 3 * sizeof *entries);
    valid = file.created && (own_tasks == 0 || joined >= 0) && own != NULL && entries != NULL;
    valid = holdfast_sion_agree(valid, group->global) && holdfast_sion_gather_counts(group, own_tasks, root, &all);
    if (valid && number == 0)
        valid = holdfast_sion_mapped_gather(group, root, tasks, &mapping, &mapped);
    if (valid && group->rank == root) {
        gathered = (sion_int64 *)holdfast_sion_memory((size_t)all.sum, 3 * sizeof *gathered);
        planned = (struct holdfast_sion_task *)holdfast_sion_memory((size_t)all.sum, sizeof *planned);
    }
    valid = valid && (group->rank != root || (gathered != NULL && planned != NULL));
    if (holdfast_sion_agree(valid, group->global)) {
        for (i = 0, own_tasks = 0; i < tasks->number; i++)
            if (tasks->files[i] == number) {
                entries[3 * own_tasks] = tasks->indexes[i];
                entries[3 * own_tasks + 1] = tasks->ranks[i];
                entries[3 * own_tasks++ + 2] = tasks->sizes[i];
            }
        triples = holdfast_sion_elements(3, MPI_LONG_LONG);
        task_type = holdfast_sion_elements((int)sizeof *own, MPI_BYTE);
        MPI_Gatherv(entries, own_tasks, triples, gathered, all.counts, all.starts, triples, root, group->global);
        if (group->rank == root) {
            set[0] = group->files;
            set[1] = number;
            set[2] = file.block_size;
            valid = holdfast_sion_mapped_plan(joined, name, set, all.sum, gathered, mapping, mapped, planned)
                    == SION_SUCCESS;
        }
        valid = holdfast_sion_agree(valid, group->global);
        if (valid)
            MPI_Scatterv(planned, all.counts, all.starts, task_type, own, own_tasks, task_type, root, group->global);
        MPI_Type_free(&triples);
        MPI_Type_free(&task_type);
        if (valid && own_tasks > 0) {
            valid = holdfast_sion_mapped_begin(sid, joined, number, own, own_tasks) == SION_SUCCESS;
            joined = -1;
        }
        valid = holdfast_sion_agree(valid, group->global);
    } else {
        valid = 0;
    }
    if (joined >= 0)
        holdfast_sion_discard(joined);
    holdfast_sion_free_counts(&all);
    free(own);
    free(entries);
    free(planned);
    free(gathered);
    free(mapping);
    return valid;
}

/* Opens the own tasks in a physical file to read. */
static __inline int holdfast_sion_mapped_open(int sid, const char *name, const char *mode,
                                              const struct holdfast_sion_mapped_group *group, int number,
                                              const struct holdfast_sion_mapped_tasks *tasks, sion_int64 *sizes)
{
    struct holdfast_sion_counts all, chunks;
    struct holdfast_sion_task *own, *stored = NULL;
    sion_int64 *own_bytes = NULL, *bytes = NULL;
    int i, j, root, own_tasks = 0, own_chunks = 0, valid, *wanted, *gathered = NULL;
    MPI_Datatype pairs, task_type;

    memset(&all, 0, sizeof all);
    memset(&chunks, 0, sizeof chunks);
    for (i = 0; i < tasks->number; i++)
        own_tasks += tasks->files[i] == number;
    root = holdfast_sion_mapped_root(group, own_tasks > 0);
    if (root == group->ranks)
        return 1;
    own = (struct holdfast_sion_task *)holdfast_sion_memory((size_t)own_tasks, sizeof *own);
    wanted = (int *)holdfast_sion_memory((size_t)own_tasks, 2 * sizeof *wanted);
    valid = holdfast_sion_agree(own != NULL && wanted != NULL, group->global)
            && holdfast_sion_gather_counts(group, own_tasks, root, &all);
    if (valid && group->rank == root) {
        gathered = (int *)holdfast_sion_memory((size_t)all.sum, 2 * sizeof *gathered);
        stored = (struct holdfast_sion_task *)holdfast_sion_memory((size_t)all.sum, sizeof *stored);
    }
    valid = holdfast_sion_agree(valid && (group->rank != root || (gathered != NULL && stored != NULL)), group->global);
    if (valid) {
        for (i = 0, j = 0; i < tasks->number; i++)
            if (tasks->files[i] == number) {
                wanted[j++] = tasks->indexes[i];
                wanted[j++] = tasks->ranks[i];
            }
        pairs = holdfast_sion_elements(2, MPI_INT);
        task_type = holdfast_sion_elements((int)sizeof *own, MPI_BYTE);
        MPI_Gatherv(wanted, own_tasks, pairs, gathered, all.counts, all.starts, pairs, root, group->global);
        if (group->rank == root)
            valid = holdfast_sion_mapped_part(name, mode, number, group->files, all.sum, gathered, stored, &bytes)
                    == SION_SUCCESS;
        valid = holdfast_sion_agree(valid, group->global);
        if (valid)
            MPI_Scatterv(stored, all.counts, all.starts, task_type, own, own_tasks, task_type, root, group->global);
        MPI_Type_free(&pairs);
        MPI_Type_free(&task_type);
    }
    if (valid) {
        for (i = 0; i < own_tasks; i++)
            own_chunks += (int)own[i].chunks;
        own_bytes = (sion_int64 *)holdfast_sion_memory((size_t)own_chunks, sizeof *own_bytes);
        valid = holdfast_sion_agree(own_bytes != NULL, group->global)
                && holdfast_sion_gather_counts(group, own_chunks, root, &chunks);
    }
    if (valid) {
        MPI_Scatterv(bytes, chunks.counts, chunks.starts, MPI_LONG_LONG, own_bytes, own_chunks, MPI_LONG_LONG, root,
                     group->global);
        if (own_tasks > 0)
            valid = holdfast_sion_mapped_read(sid, name, mode, number, own, own_tasks, own_bytes) == SION_SUCCESS;
        for (i = 0, j = 0; sizes != NULL && i < tasks->number; i++)
            if (tasks->files[i] == number)
                sizes[i] = own[j++].chunk_size;
        valid = holdfast_sion_agree(valid, group->global);
    }
    holdfast_sion_free_counts(&all);
    holdfast_sion_free_counts(&chunks);
    free(own);
    free(wanted);
    free(gathered);
    free(stored);
    free(own_bytes);
    free(bytes);
    return valid;
}

/* Finds file and index of the own tasks. `places`: two for each. */
static __inline int holdfast_sion_mapped_locate(const char *name, const struct holdfast_sion_mapped_group *group,
                                                int number, const int *ranks, int *places)
{
    struct holdfast_sion_counts all;
    int *gathered = NULL, *found = NULL, valid;
    MPI_Datatype pairs;

    valid = holdfast_sion_gather_counts(group, number, 0, &all);
    if (valid && group->rank == 0) {
        gathered = (int *)holdfast_sion_memory((size_t)all.sum, sizeof *gathered);
        found = (int *)holdfast_sion_memory((size_t)all.sum, 2 * sizeof *found);
    }
    valid = holdfast_sion_agree(valid && (group->rank > 0 || (gathered != NULL && found != NULL)), group->global);
    if (valid) {
        MPI_Gatherv(ranks, number, MPI_INT, gathered, all.counts, all.starts, MPI_INT, 0, group->global);
        if (group->rank == 0)
            valid = holdfast_sion_mapped_places(name, all.sum, gathered, found) == SION_SUCCESS;
        valid = holdfast_sion_agree(valid, group->global);
    }
    if (valid) {
        pairs = holdfast_sion_elements(2, MPI_INT);
        MPI_Scatterv(found, all.counts, all.starts, pairs, places, number, pairs, 0, group->global);
        MPI_Type_free(&pairs);
    }
    holdfast_sion_free_counts(&all);
    free(gathered);
    free(found);
    return valid;
}

/* Gives this process an equal share of the tasks, the last one the rest. `all`: their ranks, on the first process. */
static __inline int holdfast_sion_mapped_share(const struct holdfast_sion_mapped_group *group, int tasks,
                                               const sion_int64 *all, int *number, int **ranks)
{
    struct holdfast_sion_counts counts;
    int i, share = tasks / group->ranks, valid;
    sion_int64 *own;

    *number = group->rank + 1 == group->ranks ? tasks - group->rank * share : share;
    *ranks = (int *)holdfast_sion_memory((size_t)*number, sizeof **ranks);
    own = (sion_int64 *)holdfast_sion_memory((size_t)*number, sizeof *own);
    valid = holdfast_sion_agree(*ranks != NULL && own != NULL, group->global)
            && holdfast_sion_gather_counts(group, *number, 0, &counts);
    if (valid) {
        MPI_Scatterv(all, counts.counts, counts.starts, MPI_LONG_LONG, own, *number, MPI_LONG_LONG, 0, group->global);
        for (i = 0; i < *number; i++)
            (*ranks)[i] = (int)own[i];
        holdfast_sion_free_counts(&counts);
    }
    free(own);
    return valid;
}

/* An array of the program to be set, or one that is allocated for it. */
static __inline void *holdfast_sion_array(void *given, int elements, size_t bytes)
{
    return given != NULL ? given : holdfast_sion_memory((size_t)elements, bytes);
}

/* Finds and opens the own tasks to read. */
static __inline int holdfast_sion_mapped_read_all(int sid, const char *name, const char *mode,
                                                  struct holdfast_sion_mapped_group *group, int *number, int **ranks,
                                                  sion_int64 **sizes, int **files, int **indexes)
{
    struct holdfast_sion_mapped_tasks tasks;
    int found[3] = {0, 0, 0}, i, valid, *places, *file, *index;
    sion_int64 *size, *all = NULL;

    if (group->rank == 0)
        found[0] = holdfast_sion_mapped_find(name, &found[1], &found[2], &all) == SION_SUCCESS;
    MPI_Bcast(found, 3, MPI_INT, 0, group->global);
    if (!found[0])
        return 0;
    group->files = found[1];
    valid = *number >= 0 || holdfast_sion_mapped_share(group, found[2], all, number, ranks);
    free(all);
    if (!valid)
        return 0;
    places = (int *)holdfast_sion_memory((size_t)*number, 2 * sizeof *places);
    size = (sion_int64 *)holdfast_sion_array(sizes == NULL ? NULL : *sizes, *number, sizeof *size);
    file = (int *)holdfast_sion_array(files == NULL ? NULL : *files, *number, sizeof *file);
    index = (int *)holdfast_sion_array(indexes == NULL ? NULL : *indexes, *number, sizeof *index);
    valid = holdfast_sion_agree(valid && places != NULL && size != NULL && file != NULL && index != NULL,
                                group->global)
            && holdfast_sion_mapped_locate(name, group, *number, *ranks, places);
    if (valid) {
        for (i = 0; i < *number; i++) {
            file[i] = places[2 * i];
            index[i] = places[2 * i + 1];
        }
        tasks.number = *number;
        tasks.ranks = *ranks;
        tasks.files = file;
        tasks.indexes = index;
        tasks.sizes = NULL;
        for (i = 0; valid && i < group->files; i++)
            valid = holdfast_sion_mapped_open(sid, name, mode, group, i, &tasks, size);
    }
    /* Arrays that were allocated here are the program's. */
    if (sizes != NULL)
        *sizes = size;
    else
        free(size);
    if (files != NULL)
        *files = file;
    else
        free(file);
    if (indexes != NULL)
        *indexes = index;
    else
        free(index);
    free(places);
    return valid;
}

/* Opens a file with any number of tasks for each process of `gComm`, which must exist until the file is closed.
 * Collective. Returns a handle for the functions of sion.h, or -1 on all processes. `file_mode`: the same on all.
 *
 * To write: `*numFiles` physical files, at least 1. `*nlocaltasks`: the tasks of this process. For each of them: global
 * rank, size of its chunks in bytes, physical file, and index there. The global ranks of all processes are those from
 * 0, each once, and so are the indexes in each file. `*fsblksize`: the alignment of chunks; 0 or -1 stands for that of
 * the file system.
 *
 * To read, by any number of processes: the global ranks of the tasks of this process; or `*nlocaltasks` -1 and
 * `*globalranks` NULL for an equal share, whose ranks are set. The other arrays are set, and allocated where they are
 * NULL; the program frees them. Several processes may read the same task. `*numFiles` is set, `fsblksize` not used.
 *
 * The handle is at the first task in the first physical file that has one of this process. sion_seek goes to a task by
 * its global rank, with sion_seek_fp for its FILE. `*fileptr` is set to the FILE of the first task; it may be NULL. */
static __inline int sion_paropen_mapped_mpi(char *fname, const char *file_mode, int *numFiles, MPI_Comm gComm,
                                            int *nlocaltasks, int **globalranks, sion_int64 **chunksizes,
                                            int **mapping_filenrs, int **mapping_lranks, sion_int32 *fsblksize,
                                            FILE **fileptr)
{
    struct holdfast_sion_mapped_group *group
        = (struct holdfast_sion_mapped_group *)holdfast_sion_memory(1, sizeof *group);
    int rank = 0, i, writes, valid, own[6], least[6], sid = SION_ID_UNDEF;
    const char *wrong = NULL;

    MPI_Comm_rank(gComm, &rank);
    writes = holdfast_sion_mode(file_mode);
    if (fname == NULL || numFiles == NULL || nlocaltasks == NULL || globalranks == NULL)
        wrong = "a pointer is NULL: give the name, and pointers to the number of files, the number of tasks, and the "
                "global ranks";
    else if (writes == 1 && (*nlocaltasks < 0 || chunksizes == NULL || mapping_filenrs == NULL || mapping_lranks == NULL
                             || fsblksize == NULL))
        wrong = "to write, give the number of tasks, and pointers to the chunk sizes, files, indexes and block size";
    else if (*nlocaltasks > 0
             && (*globalranks == NULL
                 || (writes == 1 && (*chunksizes == NULL || *mapping_filenrs == NULL || *mapping_lranks == NULL))))
        wrong = "an array is NULL: give one value for each task of this process";
    else if (writes == 0 && *nlocaltasks < 0 && *globalranks != NULL)
        wrong = "nlocaltasks is negative, and there are global ranks: give their number, or NULL for an equal share";
    else if (writes == 0 && *nlocaltasks < 0
             && ((mapping_filenrs != NULL && *mapping_filenrs != NULL)
                 || (mapping_lranks != NULL && *mapping_lranks != NULL) || (chunksizes != NULL && *chunksizes != NULL)))
        wrong = "nlocaltasks is negative, and an array is not NULL: how many tasks it has room for is not known";
    else if (writes == 1 && *numFiles > 0)
        for (i = 0; i < *nlocaltasks; i++)
            if ((*mapping_filenrs)[i] < 0 || (*mapping_filenrs)[i] >= *numFiles)
                wrong = "the physical file of a task is not one of 0 to numFiles - 1";
    if (wrong != NULL)
        fprintf(stderr, "SION: sion_paropen_mapped_mpi: %s\n", wrong);
    /* The least and, negated, the largest value of all processes. */
    own[0] = wrong == NULL && group != NULL && writes >= 0;
    own[1] = writes;
    own[2] = -writes;
    own[3] = numFiles == NULL ? 0 : *numFiles;
    own[4] = -own[3];
    own[5] = nlocaltasks == NULL || *nlocaltasks >= 0;
    valid = MPI_Allreduce(own, least, 6, MPI_INT, MPI_MIN, gComm) == MPI_SUCCESS && least[0] == 1;
    MPI_Allreduce(&own[5], &i, 1, MPI_INT, MPI_MAX, gComm);
    if (valid && least[1] != -least[2])
        valid = holdfast_sion_mapped_refuse(rank, "some processes write, and others read: give all of them the same "
                                                  "mode");
    else if (valid && writes && (least[3] != -least[4] || least[3] <= 0))
        valid = holdfast_sion_mapped_refuse(rank, "numFiles is not the same positive number on all processes");
    else if (valid && !writes && i != least[5])
        valid = holdfast_sion_mapped_refuse(rank, "nlocaltasks is negative on some processes only: give all of them "
                                                  "their ranks, or none");
    if (valid) {
        group->global = gComm;
        group->rank = rank;
        MPI_Comm_size(gComm, &group->ranks);
        group->writes = writes;
        group->files = writes ? *numFiles : 0;
        group->roots = (int *)holdfast_sion_memory((size_t)group->files, sizeof *group->roots);
        sid = holdfast_sion_mapped(group);
        valid = holdfast_sion_agree(group->roots != NULL && sid >= 0, gComm);
        if (valid && writes) {
            struct holdfast_sion_mapped_tasks tasks;
            tasks.number = *nlocaltasks;
            tasks.ranks = *globalranks;
            tasks.files = *mapping_filenrs;
            tasks.indexes = *mapping_lranks;
            tasks.sizes = *chunksizes;
            for (i = 0; valid && i < group->files; i++)
                valid = holdfast_sion_mapped_create(sid, fname, file_mode, group, i, &tasks, *fsblksize);
        } else if (valid) {
            valid = holdfast_sion_mapped_read_all(sid, fname, file_mode, group, nlocaltasks, globalranks, chunksizes,
                                                  mapping_filenrs, mapping_lranks);
        }
        if (!valid && sid >= 0)
            holdfast_sion_mapped_end(sid, 1);
    }
    if (!valid) {
        if (group != NULL)
            holdfast_sion_mapped_free(group);
        return SION_ID_UNDEF;
    }
    *numFiles = group->files;
    holdfast_sion_mapped_file(sid, fileptr);
    return sid;
}

/* Completes a physical file that was written. */
static __inline int holdfast_sion_mapped_complete(int sid, const struct holdfast_sion_mapped_group *group, int number)
{
    struct holdfast_sion_counts all;
    sion_int64 *own = NULL, *reports = NULL;
    int root = group->roots[number], length = holdfast_sion_mapped_report(sid, number, &own), valid = length >= 0;

    memset(&all, 0, sizeof all);
    if (group->rank != root)
        valid = holdfast_sion_mapped_close(sid, number, NULL, 0) == SION_SUCCESS && valid;
    valid = holdfast_sion_agree(valid, group->global) && holdfast_sion_gather_counts(group, length, root, &all);
    if (valid && group->rank == root)
        reports = (sion_int64 *)holdfast_sion_memory((size_t)all.sum, sizeof *reports);
    valid = holdfast_sion_agree(valid && (group->rank != root || reports != NULL), group->global);
    if (valid) {
        MPI_Gatherv(own, length, MPI_LONG_LONG, reports, all.counts, all.starts, MPI_LONG_LONG, root, group->global);
        if (group->rank == root)
            valid = holdfast_sion_mapped_close(sid, number, reports, all.sum) == SION_SUCCESS;
    }
    holdfast_sion_free_counts(&all);
    free(own);
    free(reports);
    return holdfast_sion_agree(valid, group->global);
}

/* Closes a file of sion_paropen_mapped_mpi; one that was written is complete now, and can be read. Collective. The
 * handle is invalid also after an error. A physical file of which a process could not write its part is not completed.
 */
static __inline int sion_parclose_mapped_mpi(int sid)
{
    struct holdfast_sion_mapped_group *group
        = (struct holdfast_sion_mapped_group *)holdfast_sion_mapped_communicators(sid);
    int number, valid = 1;

    if (group == NULL)
        return SION_ID_NOT_VALID;
    for (number = 0; group->writes && number < group->files; number++)
        valid = holdfast_sion_mapped_complete(sid, group, number) && valid;
    holdfast_sion_mapped_end(sid, 0);
    valid = holdfast_sion_agree(valid, group->global);
    holdfast_sion_mapped_free(group);
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
