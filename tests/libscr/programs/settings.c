/* Sets parameters that belong to the job, and one that the program may set. */
#include <scr.h>

int main(void)
{
    SCR_Config("SCR_FLUSH=3");
    SCR_Config("SCR_HALT_EXIT=0");
    if (SCR_Init() != SCR_SUCCESS)
        return 1;
    return SCR_Finalize() == SCR_SUCCESS ? 0 : 1;
}
