/* Functions and types of FTI that the library does not have. */

#include <fti.h>

#ifdef TYPES
FTIT_complexType definition;
#endif

int FTI_RecoverVar(int id);
int FTI_BitFlip(int dataset);

int main(void)
{
    return FTI_RecoverVar(1) + FTI_BitFlip(1);
}
