/* Every function of SCR 3.1, for C with the type that programs call it by, and by its name for Fortran compilers:
 * without one of them the program does not compile or link. Prints how many there are. */

#include <stdio.h>

#include "scr.h"

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

/* What Fortran compilers call has no declaration: only the names are checked. */
typedef void Fortran(void);

extern Fortran scr_init_, scr_finalize_, scr_should_exit_, scr_need_checkpoint_, scr_start_checkpoint_;
extern Fortran scr_complete_checkpoint_, scr_complete_restart_, scr_complete_output_, scr_config_, scr_route_file_;
extern Fortran scr_have_restart_, scr_start_restart_, scr_start_output_, scr_get_version_, scr_current_, scr_drop_;
extern Fortran scr_delete_;

static Fortran *const fortran[] = {
    scr_init_,         scr_finalize_,      scr_should_exit_,  scr_need_checkpoint_, scr_start_checkpoint_,
    scr_complete_checkpoint_, scr_complete_restart_, scr_complete_output_, scr_config_, scr_route_file_,
    scr_have_restart_, scr_start_restart_, scr_start_output_, scr_get_version_,     scr_current_,
    scr_drop_,         scr_delete_,
};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

int main(void)
{
    size_t others = (config != NULL) + (configf != NULL) + (route != NULL) + (have != NULL) + (start_restart != NULL) +
                    (start_output != NULL) + (version != NULL);

    printf("%zu %zu\n", COUNT(plain) + COUNT(flag) + COUNT(valid) + COUNT(by_name) + others, COUNT(fortran));
    return 0;
}
