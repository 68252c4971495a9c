/* A program that calls no function of SCR. One state file a rank, every second step.
 *
 *     unchanged HOW STEPS RESULTS
 *
 *     stdio      fopen, as most programs do
 *     rename     a temporary file that is renamed, stat before reading
 *     update     one file that is kept open for update (O_RDWR), in two parts
 *     two        two files: part_<rank>.bin of every rank, and index.txt of rank 0 only
 *     limit      as stdio; rank 1 cannot write its file in step 4, and ignores that
 *     fail       as stdio; rank 1 ends with code 3 after the last step of its first launch
 *     killed     as stdio; all ranks are killed by a signal when they have read their files the first time
 *
 * At the end each rank writes RESULTS/result.<rank>: the sum, and the step that it restarted from. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "unchanged.c line %d, rank %d: %s\n", __LINE__, rank, #condition);                         \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)

static int rank;
static char name[64];

/* ---- stdio ---- */

static void read_stdio(long *numbers)
{
    FILE *file = fopen(name, "r");
    if (file == NULL) {
        EXPECT(errno == ENOENT && access(name, F_OK) != 0);
        return;
    }
    EXPECT(fscanf(file, "%ld %ld", &numbers[0], &numbers[1]) == 2);
    fclose(file);
}

/* What a program may do besides, while the file is open. */
static void other_processes(FILE *file)
{
    char test[256];
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        /* Neither of these is a file of the rank. */
        FILE *own = fopen(name, "w");
        close(fileno(file));
        _exit(own == NULL || fclose(own) != 0 || unlink(name) != 0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    snprintf(test, sizeof test, "test ! -e %s && ! cat %s 2>/dev/null", name, name);
    EXPECT(system(test) == 0);
}

static int write_stdio(const long *numbers)
{
    FILE *file = fopen(name, "w");
    EXPECT(file != NULL);
    other_processes(file);
    fprintf(file, "%ld %ld\n", numbers[0], numbers[1]);
    return fclose(file);
}

/* ---- a temporary file ---- */

static void read_renamed(long *numbers)
{
    struct stat found;
    int descriptor;

    if (stat(name, &found) != 0) {
        EXPECT(errno == ENOENT);
        return;
    }
    EXPECT(found.st_size == 2 * sizeof(long));
    descriptor = open(name, O_RDONLY);
    EXPECT(descriptor >= 0 && read(descriptor, numbers, 2 * sizeof(long)) == 2 * sizeof(long));
    close(descriptor);
}

static void write_renamed(const long *numbers)
{
    char temporary[80];
    struct stat found;
    int descriptor, other;

    snprintf(temporary, sizeof temporary, "new_%d.part", rank);
    descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0640);
    EXPECT(descriptor >= 0);
    other = dup(descriptor);
    EXPECT(write(descriptor, numbers, sizeof(long)) == sizeof(long));
    EXPECT(write(other, numbers + 1, sizeof(long)) == sizeof(long));
    EXPECT(fchmod(descriptor, 0640) == 0 && fsync(descriptor) == 0 && close(descriptor) == 0 && close(other) == 0);
    EXPECT(rename(temporary, name) == 0);
    EXPECT(stat(temporary, &found) != 0 && stat(name, &found) == 0);
    EXPECT(found.st_size == 2 * sizeof(long) && (found.st_mode & 0777) == 0640);
}

/* ---- update ---- */

static void read_update(long *numbers)
{
    /* As Fortran's OPEN does, although it is only read. */
    int descriptor = open(name, O_RDWR);
    if (descriptor >= 0) {
        EXPECT(pread(descriptor, numbers, 2 * sizeof(long), 8) == 2 * sizeof(long));
        close(descriptor);
    }
}

static void write_update(const long *numbers)
{
    int descriptor = open(name, O_RDWR | O_CREAT, 0600), duplicate;
    char header[8] = "header:";

    EXPECT(descriptor >= 0);
    if (numbers[0] > 2) {
        /* The rest of the file is as it was. */
        EXPECT(read(descriptor, header, 8) == 8 && strcmp(header, "header:") == 0);
        duplicate = dup(descriptor);
        EXPECT(duplicate >= 0 && close(descriptor) == 0);
        EXPECT(write(duplicate, numbers, 2 * sizeof(long)) == 2 * sizeof(long));
        EXPECT(close(duplicate) == 0);
        return;
    }
    EXPECT(write(descriptor, header, 8) == 8);
    EXPECT(write(descriptor, numbers, 2 * sizeof(long)) == 2 * sizeof(long) && close(descriptor) == 0);
}

/* ---- two files ---- */

static void read_two(long *numbers)
{
    FILE *file = fopen(name, "rb");
    if (file == NULL) {
        return;
    }
    EXPECT(fread(numbers, sizeof(long), 2, file) == 2);
    fclose(file);
    if (rank == 0) {
        long step = 0;
        file = fopen("index.txt", "r");
        EXPECT(file != NULL && fscanf(file, "%ld", &step) == 1 && step == numbers[0]);
        fclose(file);
    }
}

static void write_two(const long *numbers)
{
    FILE *file = fopen(name, "wb");
    EXPECT(file != NULL && fwrite(numbers, sizeof(long), 2, file) == 2 && fclose(file) == 0);
    if (rank == 0) {
        file = fopen("index.txt", "w");
        EXPECT(file != NULL && fprintf(file, "%ld\n", numbers[0]) > 0 && fclose(file) == 0);
    }
}

/* ---- errors ---- */

static void write_limited(const long *numbers)
{
    struct rlimit all, none;

    if (rank != 1 || numbers[0] != 4) {
        EXPECT(write_stdio(numbers) == 0);
        return;
    }
    EXPECT(getrlimit(RLIMIT_FSIZE, &all) == 0);
    none = all;
    none.rlim_cur = 0;
    signal(SIGXFSZ, SIG_IGN);
    EXPECT(setrlimit(RLIMIT_FSIZE, &none) == 0);
    {
        FILE *file = fopen(name, "w");
        EXPECT(file != NULL && fprintf(file, "%ld %ld\n", numbers[0], numbers[1]) > 0);
        fclose(file);
    }
    EXPECT(setrlimit(RLIMIT_FSIZE, &all) == 0);
}

int main(int argc, char **argv)
{
    long numbers[2] = {0, 0}, restarted, steps;
    const char *how = argc == 4 ? argv[1] : "", *own_rank = getenv("HOLDFAST_RANK");
    char result[1024];
    FILE *file;

    EXPECT(argc == 4 && own_rank != NULL);
    rank = atoi(own_rank);
    steps = atol(argv[2]);
    snprintf(name, sizeof name, strcmp(how, "two") == 0 ? "part_%d.bin" : "state_%d.dat", rank);
    if (strcmp(how, "rename") == 0) {
        read_renamed(numbers);
    } else if (strcmp(how, "update") == 0) {
        read_update(numbers);
    } else if (strcmp(how, "two") == 0) {
        read_two(numbers);
    } else {
        read_stdio(numbers);
    }
    restarted = numbers[0];
    if (strcmp(how, "killed") == 0) {
        snprintf(result, sizeof result, "%s/killed.%d", argv[3], rank);
        if (access(result, F_OK) != 0) {
            file = fopen(result, "w");
            EXPECT(file != NULL && fclose(file) == 0);
            raise(SIGKILL);
        }
    }
    while (numbers[0] < steps) {
        numbers[0]++;
        numbers[1] += numbers[0] * (rank + 1);
        if (numbers[0] % 2 != 0) {
            continue;
        }
        if (strcmp(how, "rename") == 0) {
            write_renamed(numbers);
        } else if (strcmp(how, "update") == 0) {
            write_update(numbers);
        } else if (strcmp(how, "two") == 0) {
            write_two(numbers);
        } else if (strcmp(how, "limit") == 0) {
            write_limited(numbers);
        } else {
            EXPECT(write_stdio(numbers) == 0);
        }
    }
    if (strcmp(how, "fail") == 0 && rank == 1 && restarted == 0) {
        return 3;
    }
    snprintf(result, sizeof result, "%s/result.%d", argv[3], rank);
    file = fopen(result, "w");
    EXPECT(file != NULL);
    fprintf(file, "%ld %ld\n", numbers[1], restarted);
    return fclose(file) == 0 ? 0 : 8;
}
