/* A program that calls no function of SCR, and writes its state file in another way in each step.
 *
 *     unchanged_ways STEPS
 *
 * Step n uses way n of the list below; its file has 64 bytes: the step and the rank. */

#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 64
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "unchanged_ways.c line %d, rank %d: %s: %s\n", __LINE__, rank, #condition,                 \
                    strerror(errno));                                                                                  \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)

static int rank;
static char name[64], temporary[64], text[SIZE + 1];

/* ---- a new file ---- */

static void rename_while_open(void)
{
    FILE *file = fopen(temporary, "w");
    EXPECT(file != NULL && fputs(text, file) >= 0);
    EXPECT(rename(temporary, name) == 0 && access(temporary, F_OK) != 0);
    EXPECT(fclose(file) == 0);
}

/* The checkpoint cannot be complete. */
static void rename_while_a_child_writes(void)
{
    int descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644), ends[2], status = -1;
    pid_t child;

    EXPECT(descriptor >= 0 && write(descriptor, text, SIZE / 2) == SIZE / 2 && pipe(ends) == 0);
    child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0 || write(descriptor, text + SIZE / 2, SIZE / 2) != SIZE / 2);
    }
    EXPECT(child > 0 && close(descriptor) == 0 && rename(temporary, name) == 0);
    EXPECT(close(ends[1]) == 0 && waitpid(child, &status, 0) == child && status == 0 && close(ends[0]) == 0);
}

static void link_without_a_name(void)
{
    int descriptor = open(".", O_TMPFILE | O_RDWR, 0644);
    EXPECT(descriptor >= 0 && write(descriptor, text, SIZE / 2) == SIZE / 2);
    EXPECT(unlink(name) == 0);
    EXPECT(linkat(descriptor, "", AT_FDCWD, name, AT_EMPTY_PATH) == 0);
    EXPECT(write(descriptor, text + SIZE / 2, SIZE / 2) == SIZE / 2 && close(descriptor) == 0);
}

static char *mapped_after_close(size_t pages)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int descriptor = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    char *memory;

    EXPECT(descriptor >= 0 && ftruncate(descriptor, SIZE) == 0);
    memory = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    EXPECT(memory != MAP_FAILED && close(descriptor) == 0);
    return memory;
}

static void map(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mapped_after_close(2);

    EXPECT(munmap(memory + page, page) == 0);
    memcpy(memory, text, SIZE);
    EXPECT(munmap(memory, SIZE) == 0);
}

static void map_elsewhere(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mapped_after_close(1), *other;

    other = mremap(memory, page, 4 * page, MREMAP_MAYMOVE);
    EXPECT(other != MAP_FAILED);
    memcpy(other, text, SIZE);
    EXPECT(munmap(other, 4 * page) == 0);
}

static void map_until_the_end(void)
{
    memcpy(mapped_after_close(1), text, SIZE);
}

/* ---- the old file, opened for update ---- */

static int update(void)
{
    int descriptor = open(name, O_RDWR);
    char old[SIZE];
    EXPECT(descriptor >= 0 && pread(descriptor, old, SIZE, 0) == SIZE && memcmp(old, text, SIZE) != 0);
    return descriptor;
}

/* A descriptor of another file with the text. */
static int source(void)
{
    int descriptor = open(temporary, O_RDWR | O_CREAT | O_TRUNC, 0600);
    EXPECT(descriptor >= 0 && write(descriptor, text, SIZE) == SIZE && lseek(descriptor, 0, SEEK_SET) == 0);
    EXPECT(unlink(temporary) == 0);
    return descriptor;
}

static void update_by_map(void)
{
    int descriptor = update();
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    EXPECT(memory != MAP_FAILED && close(descriptor) == 0);
    memcpy(memory, text, SIZE);
    EXPECT(munmap(memory, SIZE) == 0);
}

static void update_by_dprintf(void)
{
    int descriptor = update(), size;
    /* More arguments than there are registers for them. */
    size = dprintf(descriptor, "%s%c%.1f%.1f%.1f%.1f%.1f%.1f%.1f%.1f%.1f%d%d%d%d%d", "", text[0], 1.5, 2.5, 3.5, 4.5,
                   5.5, 6.5, 7.5, 8.5, 9.5, 1, 2, 3, 4, 5);
    EXPECT(size == 33);
    EXPECT(lseek(descriptor, 0, SEEK_SET) == 0);
    {
        char written[34] = "";
        EXPECT(read(descriptor, written, 33) == 33);
        EXPECT(strcmp(written + 1, "1.52.53.54.55.56.57.58.59.512345") == 0);
    }
    EXPECT(lseek(descriptor, 0, SEEK_SET) == 0 && dprintf(descriptor, "%s", text) == SIZE);
    EXPECT(close(descriptor) == 0);
}

static void update_by_sendfile(void)
{
    int descriptor = update(), from = source();
    EXPECT(sendfile(descriptor, from, NULL, 2 * SIZE) == SIZE && sendfile(descriptor, from, NULL, SIZE) == 0);
    EXPECT(close(from) == 0 && close(descriptor) == 0);
}

static void update_by_copy(void)
{
    int descriptor = update(), from = source();
    ssize_t copied = copy_file_range(from, NULL, descriptor, NULL, SIZE, 0);
    /* Some file systems cannot. */
    if (copied < 0) {
        EXPECT(errno == EXDEV || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL);
        copied = write(descriptor, text, SIZE);
    }
    EXPECT(copied == SIZE && close(from) == 0 && close(descriptor) == 0);
}

static void update_by_splice(void)
{
    int descriptor = update(), ends[2];
    EXPECT(pipe(ends) == 0 && write(ends[1], text, SIZE) == SIZE);
    EXPECT(splice(ends[0], NULL, descriptor, NULL, SIZE, 0) == SIZE);
    EXPECT(close(ends[0]) == 0 && close(ends[1]) == 0 && close(descriptor) == 0);
}

static void update_by_pwritev2(void)
{
    int descriptor = update();
    struct iovec parts[2] = {{text, 10}, {text + 10, SIZE - 10}};
    EXPECT(pwritev2(descriptor, parts, 2, 0, 0) == SIZE && close(descriptor) == 0);
}

static void update_by_aio(void)
{
    int descriptor = update();
    struct aiocb request;
    const struct aiocb *const requests[1] = {&request};

    memset(&request, 0, sizeof request);
    request.aio_fildes = descriptor;
    request.aio_buf = text;
    request.aio_nbytes = SIZE;
    EXPECT(aio_write(&request) == 0);
    while (aio_error(&request) == EINPROGRESS) {
        (void)aio_suspend(requests, 1, NULL);
    }
    EXPECT(aio_return(&request) == SIZE && close(descriptor) == 0);
}

static void update_by_listio(void)
{
    int descriptor = update();
    struct aiocb request;
    struct aiocb *const requests[1] = {&request};

    memset(&request, 0, sizeof request);
    request.aio_fildes = descriptor;
    request.aio_lio_opcode = LIO_WRITE;
    request.aio_buf = text;
    request.aio_nbytes = SIZE;
    EXPECT(lio_listio(LIO_WAIT, requests, 1, NULL) == 0);
    EXPECT(aio_return(&request) == SIZE && close(descriptor) == 0);
}

/* ---- other names of the file ---- */

static void write_to(const char *path)
{
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void by_a_linked_directory(void)
{
    char link[32], path[128];
    snprintf(link, sizeof link, "link_%d", rank);
    snprintf(path, sizeof path, "%s/./%s", link, name);
    EXPECT(symlink(".", link) == 0);
    write_to(path);
    EXPECT(unlink(link) == 0);
}

static void from_another_directory(void)
{
    char directory[32], path[128];
    snprintf(directory, sizeof directory, "below_%d", rank);
    snprintf(path, sizeof path, "../%s", name);
    EXPECT(mkdir(directory, 0700) == 0 && chdir(directory) == 0);
    write_to(path);
    EXPECT(chdir("..") == 0 && rmdir(directory) == 0);
}

/* The last one is complete at the end of the program. */
static void (*const ways[])(void) = {
    rename_while_open,      update_by_map,         update_by_dprintf,   update_by_sendfile,
    update_by_copy,         update_by_splice,      update_by_pwritev2,  update_by_aio,
    update_by_listio,       by_a_linked_directory, update_by_pwritev2,  from_another_directory,
    update_by_pwritev2,     link_without_a_name,   map,                 map_elsewhere,
    rename_while_a_child_writes, map_until_the_end,
};

int main(int argc, char **argv)
{
    const int count = sizeof ways / sizeof ways[0];
    const char *own_rank = getenv("HOLDFAST_RANK");
    int step;

    EXPECT(argc == 2 && atoi(argv[1]) == count && own_rank != NULL);
    rank = atoi(own_rank);
    snprintf(name, sizeof name, "state_%d.dat", rank);
    snprintf(temporary, sizeof temporary, "new_%d.part", rank);
    EXPECT(access(name, F_OK) != 0);
    for (step = 1; step <= count; step++) {
        char read_back[SIZE + 1] = "";
        FILE *file;

        snprintf(text, sizeof text, "%-31d %-31d\n", step, rank);
        ways[step - 1]();
        if (ways[step - 1] == rename_while_a_child_writes) {
            continue;
        }
        file = fopen(name, "r");
        EXPECT(file != NULL && fread(read_back, 1, SIZE, file) == SIZE && fclose(file) == 0);
        if (strcmp(read_back, text) != 0) {
            fprintf(stderr, "rank %d: way %d was read as %s\n", rank, step, read_back);
            return 8;
        }
    }
    return 0;
}
