/* A program that calls no function of SCR, and whose threads write the files of a checkpoint at the same time. Two of
 * them write to temporary files that they rename. Meanwhile the program starts children, which write files of the same
 * names: those belong to the working directory.
 *
 *     unchanged_threads STEPS RESULTS
 *     unchanged_threads child FILE
 *
 * At the end each rank writes RESULTS/result.<rank>: the sum over all threads, and the step that it restarted from. */

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "unchanged_threads.c line %d, rank %d: %s\n", __LINE__, rank, #condition);                 \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { THREADS = 4, NUMBERS = 20000 };

struct part {
    int number;
    char name[64];
    long numbers[NUMBERS];
};

static int rank;
static long step;
static struct part parts[THREADS];
static atomic_int writing;

static void *save(void *argument)
{
    struct part *part = argument;
    char temporary[80];
    int renames = part->number % 2;
    FILE *file;

    snprintf(temporary, sizeof temporary, "%s%s", part->name, renames ? ".new" : "");
    file = fopen(temporary, "w");
    EXPECT(file != NULL);
    EXPECT(fwrite(part->numbers, sizeof(long), NUMBERS, file) == NUMBERS);
    EXPECT(fclose(file) == 0);
    if (renames)
        EXPECT(rename(temporary, part->name) == 0);
    atomic_fetch_sub(&writing, 1);
    return NULL;
}

static int write_as_child(const char *name)
{
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    return file >= 0 && write(file, "child", 5) == 5 && close(file) == 0 ? 0 : 1;
}

/* A child that is forked, or started as a program of its own. */
static void start_child(char *program, int is_program)
{
    int status;
    pid_t child = fork();

    EXPECT(child >= 0);
    if (child == 0) {
        if (is_program) {
            execl(program, program, "child", parts[0].name, (char *)NULL);
            _exit(8);
        }
        alarm(60);
        _exit(write_as_child(parts[1].name));
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments)
{
    const char *rank_text = getenv("HOLDFAST_RANK");
    pthread_t threads[THREADS];
    long restarted, sum = 0;
    char result[4096];
    FILE *file;
    int at, i, children = 0;

    if (count == 3 && strcmp(arguments[1], "child") == 0) {
        alarm(60);
        return write_as_child(arguments[2]);
    }
    EXPECT(count == 3 && rank_text != NULL);
    rank = atoi(rank_text);
    for (at = 0; at < THREADS; at++) {
        parts[at].number = at;
        snprintf(parts[at].name, sizeof parts[at].name, "part_%d_%d", rank, at);
        file = fopen(parts[at].name, "r");
        if (file != NULL) {
            EXPECT(fread(parts[at].numbers, sizeof(long), NUMBERS, file) == NUMBERS && fclose(file) == 0);
        }
        EXPECT(parts[at].numbers[0] == parts[0].numbers[0]);
    }
    restarted = step = parts[0].numbers[0];
    while (step < atol(arguments[1])) {
        step++;
        atomic_store(&writing, THREADS);
        for (at = 0; at < THREADS; at++) {
            parts[at].numbers[0] = step;
            for (i = 1; i < NUMBERS; i++)
                parts[at].numbers[i] += step * (at + 1);
            EXPECT(pthread_create(&threads[at], NULL, save, &parts[at]) == 0);
        }
        do {
            start_child(arguments[0], children++ % 2);
        } while (atomic_load(&writing) > 0);
        for (at = 0; at < THREADS; at++)
            EXPECT(pthread_join(threads[at], NULL) == 0);
    }
    for (at = 0; at < THREADS; at++) {
        for (i = 1; i < NUMBERS; i++)
            EXPECT(parts[at].numbers[i] == parts[at].numbers[1]);
        sum += parts[at].numbers[1];
    }
    snprintf(result, sizeof result, "%s/result.%d", arguments[2], rank);
    file = fopen(result, "w");
    EXPECT(file != NULL && fprintf(file, "%ld %ld\n", sum, restarted) > 0 && fclose(file) == 0);
    return 0;
}
