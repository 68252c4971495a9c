/* For programs that fork. */

#ifndef FORKED_H
#define FORKED_H

#include <stdio.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends the program with 1 if the condition does not hold, without functions of `atexit`. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s line %d: %s\n", __FILE__, __LINE__, #condition);                                       \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* The exit code of a child. */
static int ends_with(pid_t child)
{
    int status = -1;

    EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

#endif
