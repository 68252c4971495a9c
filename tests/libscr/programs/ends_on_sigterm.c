/* Saves its state once, and works on until it gets SIGTERM, or until there is a file `done`. Then it ends with 0. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

int main(void)
{
    char name[64];
    signal(SIGTERM, stop);
    snprintf(name, sizeof name, "state_%s.dat", getenv("HOLDFAST_RANK"));
    FILE *file = fopen(name, "r");
    if (file == NULL) {
        file = fopen(name, "w");
        if (file == NULL || fputs("step 1\n", file) < 0) {
            return 1;
        }
    }
    if (fclose(file) != 0) {
        return 1;
    }
    while (!stopped && access("done", F_OK) != 0) {
        usleep(20000);
    }
    return 0;
}
