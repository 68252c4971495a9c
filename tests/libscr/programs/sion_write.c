/* Writes a SION file, a write of each task in turn.
 *
 *     sion_write FILE MODE BLOCK_SIZE WAY TASK...
 *
 * WAY: library (sion_fwrite), file (fwrite to the FILE), without (sion_fwrite, and no FILE is asked for).
 * TASK: RANK:CHUNK:TOTAL:STEP, or RANK:CHUNK:K[,KEY,LENGTH]... for records. */
#include <assert.h>
#include <sion.h>
#include <stdlib.h>
#include <string.h>

#define MOST 100

struct task {
    char *rest;
    unsigned long long total, step, done;
    int records;
};

/* The formula of the fixtures. */
static void fill(unsigned char *to, unsigned long long rank, unsigned long long key, unsigned long long from,
                 unsigned long long bytes)
{
    for (unsigned long long i = 0; i < bytes; i++) {
        unsigned long long at = from + i;
        to[i] = (unsigned char)(17 + 131 * rank + 37 * key + 7 * at + 13 * (at / 256) + 29 * (at / 65536));
    }
}

int main(int argc, char **argv)
{
    static unsigned char data[1 << 20];
    struct task tasks[MOST];
    sion_int64 sizes[MOST], *chunk_sizes = sizes;
    int ranks[MOST], *global_ranks = ranks;
    int number = argc - 5, files = 1, busy = 1;
    sion_int32 block_size = atoi(argv[3]);
    FILE *file = NULL;
    int with_file = strcmp(argv[4], "file") == 0;
    assert(number <= MOST);
    for (int i = 0; i < number; i++) {
        char *text = argv[5 + i];
        ranks[i] = (int)strtol(text, &text, 10);
        sizes[i] = strtoll(text + 1, &text, 10);
        tasks[i].done = 0;
        tasks[i].records = text[1] == 'K';
        tasks[i].rest = text + 2;
        if (!tasks[i].records) {
            tasks[i].total = strtoull(text + 1, &text, 10);
            tasks[i].step = strtoull(text + 1, &text, 10);
        }
    }
    int sid = sion_open(argv[1], argv[2], &number, &files, &chunk_sizes, &block_size, &global_ranks,
                        strcmp(argv[4], "without") == 0 ? NULL : &file);
    if (sid < 0)
        return 3;
    while (busy) {
        busy = 0;
        for (int i = 0; i < number; i++) {
            struct task *task = &tasks[i];
            if (sion_seek_fp(sid, i, SION_CURRENT_BLK, SION_CURRENT_POS, &file) != SION_SUCCESS)
                return 4;
            if (task->records) {
                if (*task->rest != ',')
                    continue;
                unsigned long long key = strtoull(task->rest + 1, &task->rest, 10);
                unsigned long long bytes = strtoull(task->rest + 1, &task->rest, 10);
                fill(data, (unsigned long long)ranks[i], key, 0, bytes);
                if (sion_fwrite_key(data, key, 1, bytes, sid) != bytes)
                    return 5;
            } else {
                unsigned long long left = task->total - task->done;
                unsigned long long bytes = left < task->step ? left : task->step;
                if (bytes == 0)
                    continue;
                fill(data, (unsigned long long)ranks[i], 0, task->done, bytes);
                if (with_file) {
                    if (sion_ensure_free_space(sid, (sion_int64)bytes) != SION_SUCCESS)
                        return 6;
                    if (fwrite(data, 1, bytes, file) != bytes)
                        return 7;
                } else if (sion_fwrite(data, bytes, 1, sid) != 1) {
                    return 8;
                }
                task->done += bytes;
                if (sion_get_bytes_written(sid) != (sion_int64)task->done)
                    return 9;
            }
            busy = 1;
        }
    }
    if (sion_close(sid) != SION_SUCCESS)
        return 10;
    printf("%d\n", block_size);
    return 0;
}
