/*
 * Checkpoints of variables in memory, carried out by Holdfast's agents.
 *
 *     cc program.c -lholdfast_variables
 *     holdfast run job.yaml                      (with `checkpoint: {source: variables}`)
 *
 * The program protects its variables once; a checkpoint saves their current content, and after a failure
 * holdfast_recover loads it. Rank and number of ranks come from the launcher's environment: no MPI is needed.
 * Collective functions are marked; all ranks call them in the same order. Several threads may call the library; calls
 * are serialised.
 *
 * Functions that return an int return HOLDFAST_SUCCESS, or another value of those below. After an error, holdfast_error
 * returns its text, which is also printed on standard error.
 */

#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* return values */
#define HOLDFAST_SUCCESS 0
#define HOLDFAST_FAILURE 1
#define HOLDFAST_NO_CHECKPOINT 2 /* holdfast_recover: no checkpoint is usable, start from the beginning */
#define HOLDFAST_NOT_KEPT 3      /* holdfast_checkpoint: dropped on all ranks, or level 4 was not copied; older
                                    checkpoints are kept */

/* types of elements; holdfast_define_type returns further ones */
#define HOLDFAST_CHAR 0
#define HOLDFAST_SHORT 1
#define HOLDFAST_INT 2
#define HOLDFAST_LONG 3
#define HOLDFAST_UNSIGNED_CHAR 4
#define HOLDFAST_UNSIGNED_SHORT 5
#define HOLDFAST_UNSIGNED_INT 6
#define HOLDFAST_UNSIGNED_LONG 7
#define HOLDFAST_FLOAT 8
#define HOLDFAST_DOUBLE 9
#define HOLDFAST_LONG_DOUBLE 10

/* levels of a checkpoint; each protects against more than the one before it */
#define HOLDFAST_LEVEL_LOCAL 1   /* in the node's cache only */
#define HOLDFAST_LEVEL_PARTNER 2 /* a copy on another node */
#define HOLDFAST_LEVEL_PARITY 3  /* parity over a group of nodes */
#define HOLDFAST_LEVEL_PREFIX 4  /* copied to the prefix directory */

/* ---- begin and end ---- */

/* Joins the run. Collective. Ends the program with exit code 0 if the run must end before it begins. */
int holdfast_init(void);

/* The program is finished: the newest checkpoint is copied to the prefix directory, and the job is not relaunched.
 * Collective. Does nothing in a process that was forked from the one that called holdfast_init; all other calls fail
 * there. */
int holdfast_finalize(void);

/* After holdfast_init: this process's rank, and the number of ranks. Either pointer may be NULL. */
int holdfast_rank(int *rank, int *ranks);

/* ---- variables ---- */

/* Defines a type by the size of its elements, for example of a struct. Sets *type. */
int holdfast_define_type(size_t bytes, int *type);

/* Protects `count` elements at `address` as variable `id`, any number that is unique in the process. `name` is for
 * messages; it may be NULL. Call it again whenever the variable has moved, grown or shrunk. The memory must be valid
 * until the variable is unprotected or protected again, or the library is finalized. */
int holdfast_protect(int id, const char *name, void *address, size_t count, int type);

/* Declarations with which another number of ranks can recover a variable, where the job allows that (`checkpoint:
 * {restart: {ranks: any}}`). They are the same on all ranks, and hold until the variable is unprotected.
 *
 * holdfast_distribute: the variables of this id on all ranks are the blocks of one array, in the order of the ranks.
 * shape[0] to shape[dimensions - 1] is the shape of this rank's block in row-major order. The blocks differ in the size
 * of `dimension` only (from 0), which is not used: it follows from the bytes of the variable.
 *
 * holdfast_uniform: the variable has the same value on all ranks. */
int holdfast_distribute(int id, int dimensions, const size_t *shape, int dimension);
int holdfast_uniform(int id);

/* Ends the protection: later checkpoints do not contain the variable. */
int holdfast_unprotect(int id);

/* ---- restart ---- */

/* Sets *flag to 1 if there is a checkpoint to recover from. Equal on all ranks. */
int holdfast_have_checkpoint(int *flag);

/* Sets *bytes to the size of the variable in the newest checkpoint: that to recover from, or the last one that this
 * process has taken. 0 if it is not there. If another number of ranks wrote that checkpoint: the size of this rank's
 * block, where all blocks are equally long; 0 if the variable is not distributed or uniform. */
int holdfast_stored_size(int id, size_t *bytes);

/* For a protected variable whose memory is from malloc: gives it the size that it has in the checkpoint to recover
 * from, and protects it again. Returns its new address, or `address` if there is nothing to change. NULL after an
 * error: the memory is then unchanged. */
void *holdfast_realloc(int id, void *address);

/* Loads the newest checkpoint whose files are intact on all ranks. Every protected variable must have its size in the
 * checkpoint. If another number of ranks wrote it, the blocks of each distributed variable must have the size of its
 * array in all, and every protected variable must be distributed or uniform. Sets *id to the id that
 * holdfast_checkpoint was given, unless `id` is NULL. Collective. */
int holdfast_recover(int *id);

/* ---- checkpoints ---- */

/* Saves all variables as checkpoint `id` (0 or greater, chosen by the program), protected as `level` demands. Equal
 * arguments on all ranks. If a halt condition holds, the program ends here with exit code 0, unless it has called
 * holdfast_should_exit. Collective. */
int holdfast_checkpoint(int id, int level);

/* Saves all variables if a checkpoint is due by the intervals of the job; sets *taken to 1 if so, otherwise to 0,
 * unless it is NULL. As holdfast_checkpoint otherwise. Collective. */
int holdfast_snapshot(int *taken);

/* Sets *flag to 1 if the program must end: a halt condition was set, or the allocation ends. Collective. */
int holdfast_should_exit(int *flag);

/* ---- errors ---- */

/* The text of the last error in this thread; empty if there was none. Valid until the thread's next error; not to be
 * freed. */
const char *holdfast_error(void);

/* Whether errors are printed on standard error, too: 1 (from the beginning) or 0. */
void holdfast_print_errors(int print);

#ifdef __cplusplus
}
#endif

#endif
