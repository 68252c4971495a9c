/*
 * SCR's C interface, version 3.1, carried out by Holdfast's agents.
 *
 *     cc program.c -lscr
 *     holdfast run -- ./a.out
 *
 * Rank and number of ranks come from the launcher's environment: no MPI is needed. Functions are collective, except
 * SCR_Route_file, SCR_Get_version and SCR_Config. They return SCR_SUCCESS, or print on standard error what failed and
 * what to do, and return another value. Several threads may call them; calls are serialised.
 */

#ifndef SCR_H
#define SCR_H

#ifdef __cplusplus
extern "C" {
#endif

/* version of the interface */
#define SCR_MAJOR_VERSION "3"
#define SCR_MINOR_VERSION "1"
#define SCR_PATCH_VERSION "0"
#define SCR_VERSION "v3.1.0"

/* return values */
#define SCR_SUCCESS (0)
#define SCR_FAILURE (1)

/* bytes of a buffer for a path or a name, NUL included */
#define SCR_MAX_FILENAME 1024

/* kind of a dataset; combine with | */
#define SCR_FLAG_NONE       (0)      /* initial value of a variable */
#define SCR_FLAG_CHECKPOINT (1 << 0) /* a run can restart from it */
#define SCR_FLAG_OUTPUT     (1 << 1) /* it must be flushed to the parallel file system */

/* ---- begin and end ---- */

/* Joins the run. Afterwards SCR_Have_restart reports whether there is a checkpoint to restart from. */
int SCR_Init(void);

/* The program is finished. The newest checkpoint is copied to the prefix directory, and the job is not relaunched. Does
 * nothing in a process that was forked from the one that called SCR_Init; all other calls fail there. */
int SCR_Finalize(void);

/* ---- settings ---- */

/* Sets ("KEY=value", "CKPT=0 TYPE=XOR"), unsets ("KEY=") or reads ("KEY", "CKPT=0 TYPE") a parameter. Set parameters
 * before SCR_Init. Returns the value that was read, which the caller frees, or NULL: there is none, or one was set. */
const char *SCR_Config(const char *config);

/* SCR_Config with a printf format. */
const char *SCR_Configf(const char *format, ...)
#if defined(__GNUC__) || defined(__clang__)
    __attribute__((format(printf, 1, 2)))
#endif
    ;

/* The version of the interface. Do not free it. */
char *SCR_Get_version(void);

/* Sets *flag to 1 if the program must end: a halt condition was set, or the allocation ends. */
int SCR_Should_exit(int *flag);

/* ---- files ---- */

/* Sets `file` (SCR_MAX_FILENAME bytes) to the path where the file `name` is written (between start and completion of an
 * output) or read (between start and completion of a restart). Fails if a file to be read does not exist. */
int SCR_Route_file(const char *name, char *file);

/* ---- restart ---- */

/* Sets *flag to 1 if there is a checkpoint to restart from. Sets `name` to its name, unless `name` is NULL. */
int SCR_Have_restart(int *flag, char *name);

/* Begins the restart. Sets `name` to the checkpoint's name, unless `name` is NULL. */
int SCR_Start_restart(char *name);

/* Ends the restart. `valid`: this process could read its files. If any process could not, this fails in all of them;
 * then call SCR_Have_restart again: there may be an older checkpoint. */
int SCR_Complete_restart(int valid);

/* ---- checkpoints ---- */

/* Sets *flag to 1 if a checkpoint is due. */
int SCR_Need_checkpoint(int *flag);

/* Starts a checkpoint without a name. */
int SCR_Start_checkpoint(void);

/* Ends the checkpoint. `valid`: this process wrote its files without error. If a halt condition holds, the program ends
 * here with exit code 0, unless it calls SCR_Should_exit or sets SCR_HALT_EXIT=0. */
int SCR_Complete_checkpoint(int valid);

/* ---- output: any dataset, with a name ---- */

/* Begins a dataset. `name` may be NULL. `flags`: SCR_FLAG_… The files of an output lie below the prefix directory at
 * the paths that SCR_Route_file is given. */
int SCR_Start_output(const char *name, int flags);

/* Ends the dataset, as SCR_Complete_checkpoint does, but ends the program only if SCR_HALT_EXIT=1 is set. */
int SCR_Complete_output(int valid);

/* ---- datasets on the parallel file system, by name ---- */

/* The functions below have no effect, and succeed, if there is no dataset of the name. */

/* Declares that the program restarted from this checkpoint by itself: datasets that follow are newer. Before
 * SCR_Have_restart: selects the checkpoint to restart from. */
int SCR_Current(const char *name);

/* Removes the dataset from the index; its files are kept. */
int SCR_Drop(const char *name);

/* Deletes the dataset in cache and on the parallel file system. */
int SCR_Delete(const char *name);

/* ---- beyond SCR ---- */

/* After SCR_Init: this process's rank, and the number of ranks. Either pointer may be NULL. */
int HOLDFAST_Rank(int *rank, int *ranks);

/* After SCR_Init, before the first SCR_Start_output: lists the files of the checkpoint to restart from that this
 * process can route: its own, or, where another number of ranks wrote the checkpoint (checkpoint.restart.ranks: any),
 * those of all ranks. Sets the number of ranks that wrote it, and the number of files. Either pointer may be NULL. */
int HOLDFAST_Restart_files(int *ranks, int *files);

/* One of the files that were listed, by index from 0: its name for SCR_Route_file, a buffer of SCR_MAX_FILENAME, and
 * the rank that wrote it. Either pointer may be NULL. */
int HOLDFAST_Restart_file(int index, char *name, int *rank);

#ifdef __cplusplus
}
#endif

#endif
