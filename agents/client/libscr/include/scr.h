/*
 * SCR's C interface, version 3.1, carried out by Holdfast's agents.
 *
 *     cc program.c -lscr
 *     holdfast run -- ./a.out
 *
 * Rank and number of ranks come from the launcher's environment: a program needs no MPI for any of this. Functions are
 * collective, but for SCR_Route_file, SCR_Get_version and SCR_Config. They return SCR_SUCCESS, or another value after
 * they have said on standard error what is wrong and what to do. Threads may call them; they take turns.
 */

#ifndef SCR_H
#define SCR_H

#ifdef __cplusplus
extern "C" {
#endif

/* the interface that this is */
#define SCR_MAJOR_VERSION "3"
#define SCR_MINOR_VERSION "1"
#define SCR_PATCH_VERSION "0"
#define SCR_VERSION "v3.1.0"

/* what functions return */
#define SCR_SUCCESS (0)
#define SCR_FAILURE (1)

/* bytes of a buffer for a path or a name, with its NUL */
#define SCR_MAX_FILENAME 1024

/* what a dataset is for; to be combined with | */
#define SCR_FLAG_NONE       (0)      /* to initialise a variable with */
#define SCR_FLAG_CHECKPOINT (1 << 0) /* a run can restart from it */
#define SCR_FLAG_OUTPUT     (1 << 1) /* it must reach the parallel file system */

/* ---- beginning and end ---- */

/* Joins the run. When it returns, there is a restart, or there is none: see SCR_Have_restart. */
int SCR_Init(void);

/* The program is done. The newest checkpoint is brought to the prefix directory, and the job is not started again. */
int SCR_Finalize(void);

/* ---- settings ---- */

/* Sets ("KEY=value", "CKPT=0 TYPE=XOR"), takes back ("KEY=") or reads ("KEY", "CKPT=0 TYPE") a parameter; setting comes
 * before SCR_Init. Returns the value, to be freed by the caller, or NULL if there is none. */
const char *SCR_Config(const char *config);

/* The same, formatted as by printf. */
const char *SCR_Configf(const char *format, ...)
#if defined(__GNUC__) || defined(__clang__)
    __attribute__((format(printf, 1, 2)))
#endif
    ;

/* The version of the interface; not to be freed. */
char *SCR_Get_version(void);

/* Sets *flag to 1 if the program is to end: somebody asked for it, or the allocation does. */
int SCR_Should_exit(int *flag);

/* ---- files ---- */

/* Says in `file` (SCR_MAX_FILENAME bytes) where the file `name` is to be written, between the start and the completion of
 * an output, or read, between those of a restart. Fails if a file to be read is not there. */
int SCR_Route_file(const char *name, char *file);

/* ---- restart ---- */

/* Sets *flag to 1 if there is something to restart from, and tells its name, unless `name` is NULL. */
int SCR_Have_restart(int *flag, char *name);

/* Begins to read; tells the name, unless `name` is NULL. */
int SCR_Start_restart(char *name);

/* Ends it. `valid`: could this process read its files? If any could not, this fails on all, and an older checkpoint may
 * be there: ask SCR_Have_restart again. */
int SCR_Complete_restart(int valid);

/* ---- checkpoints ---- */

/* Sets *flag to 1 if it is time for a checkpoint. */
int SCR_Need_checkpoint(int *flag);

/* Begins a checkpoint without a name. */
int SCR_Start_checkpoint(void);

/* Ends it. `valid`: did this process write its files well? A halt condition ends the program here, with exit code 0,
 * unless it calls SCR_Should_exit or sets SCR_HALT_EXIT=0. */
int SCR_Complete_checkpoint(int valid);

/* ---- output: any dataset, with a name ---- */

/* Begins a dataset. `name` may be NULL. `flags` says what it is for. */
int SCR_Start_output(const char *name, int flags);

/* Ends it, as SCR_Complete_checkpoint. It ends no program, unless SCR_HALT_EXIT=1 is set. */
int SCR_Complete_output(int valid);

/* ---- datasets on the parallel file system, by name ---- */

/* The program restarted from this checkpoint by itself: what it writes from now on is newer. */
int SCR_Current(const char *name);

/* The index forgets the dataset; its files stay. */
int SCR_Drop(const char *name);

/* The dataset is deleted, in cache and on the parallel file system. */
int SCR_Delete(const char *name);

/* ---- beyond SCR ---- */

/* After SCR_Init: this process's rank, and how many there are. Either pointer may be NULL. */
int HOLDFAST_Rank(int *rank, int *ranks);

#ifdef __cplusplus
}
#endif

#endif
