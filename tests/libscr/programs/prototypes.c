/* Every function of SCR 3.1 with the type that programs call it by, in C and as Fortran compilers call it: a function
 * that is missing, or has another type, does not compile or link. Prints how many there are. */

#include <stddef.h>
#include <stdio.h>

#include "scr.h"

extern void scr_init_(int *), scr_finalize_(int *), scr_should_exit_(int *, int *), scr_need_checkpoint_(int *, int *);
extern void scr_start_checkpoint_(int *), scr_complete_checkpoint_(const int *, int *);
extern void scr_complete_restart_(const int *, int *), scr_complete_output_(const int *, int *);
extern void scr_config_(const char *, char *, int *, size_t, size_t);
extern void scr_route_file_(const char *, char *, int *, size_t, size_t);
extern void scr_have_restart_(int *, char *, int *, size_t), scr_start_restart_(char *, int *, size_t);
extern void scr_start_output_(const char *, const int *, int *, size_t), scr_get_version_(char *, int *, size_t);
extern void scr_current_(const char *, int *, size_t), scr_drop_(const char *, int *, size_t);
extern void scr_delete_(const char *, int *, size_t);

typedef void (*Function)(void);

static int (*const plain[])(void) = {SCR_Init, SCR_Finalize, SCR_Start_checkpoint};
static int (*const flag[])(int *) = {SCR_Need_checkpoint, SCR_Should_exit};
static int (*const valid[])(int) = {SCR_Complete_checkpoint, SCR_Complete_output, SCR_Complete_restart};
static int (*const by_name[])(const char *) = {SCR_Current, SCR_Drop, SCR_Delete};
static const char *(*const config)(const char *) = SCR_Config;
static const char *(*const configf)(const char *, ...) = SCR_Configf;
static int (*const route)(const char *, char *) = SCR_Route_file;
static int (*const have)(int *, char *) = SCR_Have_restart;
static int (*const start_restart)(char *) = SCR_Start_restart;
static int (*const start_output)(const char *, int) = SCR_Start_output;
static char *(*const version)(void) = SCR_Get_version;

static const Function fortran[] = {
    (Function)scr_init_,          (Function)scr_finalize_,         (Function)scr_should_exit_,
    (Function)scr_need_checkpoint_, (Function)scr_start_checkpoint_, (Function)scr_complete_checkpoint_,
    (Function)scr_complete_restart_, (Function)scr_complete_output_, (Function)scr_config_,
    (Function)scr_route_file_,    (Function)scr_have_restart_,     (Function)scr_start_restart_,
    (Function)scr_start_output_,  (Function)scr_get_version_,      (Function)scr_current_,
    (Function)scr_drop_,          (Function)scr_delete_,
};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

int main(void)
{
    size_t others = (config != NULL) + (configf != NULL) + (route != NULL) + (have != NULL) + (start_restart != NULL) +
                    (start_output != NULL) + (version != NULL);

    printf("%zu %zu\n", COUNT(plain) + COUNT(flag) + COUNT(valid) + COUNT(by_name) + others, COUNT(fortran));
    return 0;
}
