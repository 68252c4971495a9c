/* Functions and types of FTI that the library does not have. */

#include <fti.h>

#ifdef TYPES
FTIT_complexType definition;
#endif

int FTI_RecoverVar(int id);
int FTI_BitFlip(int dataset);
int FTI_InitComplexType(void *type, void *definition, int length, size_t size, char *name, void *group);
int FTI_AddSimpleField(void *definition, FTIT_type *type, size_t offset, int id, char *name);
int FTI_AddComplexField(void *definition, FTIT_type *type, size_t offset, int rank, int *lengths, int id, char *name);
int FTI_InitGroup(void *group, char *name, void *parent);
int FTI_RenameGroup(void *group, char *name);
int FTI_DefineDataset(int id, int rank, int *lengths, char *name, void *group);

int main(void)
{
    return FTI_RecoverVar(1) + FTI_BitFlip(1) + FTI_InitComplexType(0, 0, 0, 0, 0, 0)
        + FTI_AddSimpleField(0, 0, 0, 0, 0) + FTI_AddComplexField(0, 0, 0, 0, 0, 0, 0)
        + FTI_InitGroup(0, 0, 0) + FTI_RenameGroup(0, 0)
        + FTI_DefineDataset(0, 0, 0, 0, 0);
}
