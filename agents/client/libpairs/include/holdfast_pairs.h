/*
 * Main and replica: a program that runs in two copies, of which one is awake. When the main fails, the replica goes on
 * from the newest checkpoint; when the main has been started again, it takes over from the replica.
 *
 *     cc program.c -lholdfast_pairs
 *     holdfast run job.yaml                                              (with `kind: replicated`)
 *
 * Both copies run the same program. It calls ft_init_wait, which returns when it is the copy's turn; reads the newest
 * checkpoint; and stores a new one after each step. The agent of the node starts the copies, and starts them again.
 *
 * The functions in the first part have the names of the Fault-tolerant Scheme for Multiple Jobs on a Single Xavier, and
 * its prototypes where it prints them (tag_job_begin, tag_job_end, ft_init_wait). What it leaves open is described
 * here. The library is not linked together with that of CARSS, which has functions of the same names.
 *
 * Functions return HOLDFAST_PAIRS_SUCCESS, or another value of those below. After an error, holdfast_pairs_error
 * returns its text, which is also printed on standard error. Several threads may call the library; calls are
 * serialised. A process that was created by fork() is not a copy, and must not call it.
 */

#ifndef HOLDFAST_PAIRS_H
#define HOLDFAST_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* return values */
#define HOLDFAST_PAIRS_SUCCESS 0
#define HOLDFAST_PAIRS_FAILURE 1
#define HOLDFAST_PAIRS_NO_CHECKPOINT 2 /* no copy has stored a checkpoint yet: start from the beginning */
#define HOLDFAST_PAIRS_STOP 3          /* holdfast_pairs_init_wait: end with exit code 0 */

/* ---- functions of the Fault-tolerant Scheme ---- */

/* tag_ft_job_begin, then init_ft. Returns when it is this copy's turn. A copy that is told to end before its turn does
 * not return: the process ends with exit code 0, as by exit(0).
 *
 * pid:     getpid(), or 0
 * tid:     not used
 * jobname: begins with "main" or "replica", such as the first argument of the program; compared with the side for which
 *          the agent started the process, so that a wrong command in the spec is found. NULL: not compared
 * index:   `{index}` of the pair in the spec, such as the second argument of the program; compared likewise */
int ft_init_wait(unsigned int pid, unsigned int tid, const char *jobname, int index);

/* Registers this process as a copy, and waits until it is its turn, without using the processor. Ends the process as
 * ft_init_wait does. */
int tag_ft_job_begin(unsigned int pid, unsigned int tid, const char *jobname, int index);

/* Starts the thread that increments the copy's heartbeat each period of the spec (1 ms, unless it says otherwise). */
int init_ft(int index);

/* Increments the heartbeat once. For programs that call tag_ft_job_begin without init_ft, and this function in their
 * own loop: they are also replaced when the loop hangs. Kills the process if the agent has ended this copy. */
int ft_hb(int index);

/* There is work. The arguments after jobname concern CARSS's scheduler, and are not used. */
int tag_job_begin(unsigned int pid, unsigned int tid, const char *jobname, long long slack_time, bool first_flag,
                  bool shareable_flag, unsigned long long required_mem);

/* The work is done: the pair is finished when this process ends with exit code 0. */
int tag_job_end(unsigned int pid, unsigned int tid, const char *jobname);

/* Stores x as the newest checkpoint; `layer` is the step after which it was made. */
int update_checkpoint(long long x, int layer);

/* Reads the newest checkpoint that update_checkpoint has stored, in this copy or the other. `layer` may be NULL.
 * HOLDFAST_PAIRS_NO_CHECKPOINT: there is none, and the variables are unchanged. */
int newest_checkpoint(long long *x, int *layer);

/* ---- general functions ---- */

/* As ft_init_wait, without arguments to compare. A copy that must end before its turn gets HOLDFAST_PAIRS_STOP. */
int holdfast_pairs_init_wait(void);

/* As ft_init_wait, or as tag_ft_job_begin if `beats` is 0; `index` may be NULL: not compared. A copy that must end
 * before its turn gets HOLDFAST_PAIRS_STOP. For other languages, whose own end of a program is to run. */
int holdfast_pairs_wait(unsigned int pid, const char *jobname, const int *index, int beats);

/* Stores `bytes` bytes as the newest checkpoint, with a number of the program's choice. At most `checkpoint.size` of
 * the pair. The memory must not change during the call. */
int holdfast_pairs_update(const void *data, size_t bytes, int64_t tag);

/* Sets *bytes to the size of the newest checkpoint. */
int holdfast_pairs_newest_size(size_t *bytes);

/* Reads the newest checkpoint into memory of `size` bytes. `bytes`, `tag` and `sequence` may be NULL; *sequence counts
 * the checkpoints of the pair from 1. If the memory is too small, the call fails, and *bytes is the size that is
 * needed. A checkpoint that is damaged is skipped: the next older one is read. */
int holdfast_pairs_newest(void *data, size_t size, size_t *bytes, int64_t *tag, uint64_t *sequence);

/* Sets *flag to 1 if the other copy takes over, or the job ends. The process has been sent SIGTERM, too, and is killed
 * after `replication.stop_grace`. */
int holdfast_pairs_stop_requested(int *flag);

/* The text of the last error in this thread; empty if there was none. Valid until the thread's next error; not to be
 * freed. */
const char *holdfast_pairs_error(void);

/* Whether errors are printed on standard error, too: 1 (from the beginning) or 0. */
void holdfast_pairs_print_errors(int print);

#ifdef __cplusplus
}
#endif

#endif
