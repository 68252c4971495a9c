/* Reads a SION file, and writes the streams or values of its tasks to files t_<task> or t_<task>_<key>.
 *
 *     sion_read FILE MODE WAY DIRECTORY
 *
 * WAY: library (sion_fread), file (fread from the FILE), rank (sion_open_rank), records (in the order of writing),
 * keys (by the list of keys), alternating (some bytes of each task in turn). Prints what the file contains. */
#include <inttypes.h>
#include <sion.h>
#include <stdlib.h>
#include <string.h>

static char data[1 << 20];

static FILE *stream(const char *directory, int task, int has_key, uint64_t key)
{
    char name[4096];
    if (has_key)
        snprintf(name, sizeof name, "%s/t_%05d_%012" PRIu64, directory, task, key);
    else
        snprintf(name, sizeof name, "%s/t_%05d", directory, task);
    FILE *to = fopen(name, "a");
    if (to == NULL)
        exit(3);
    return to;
}

static void print(const char *name, int number, const sion_int64 *values)
{
    printf("%s", name);
    for (int i = 0; i < number; i++)
        printf(" %lld", values[i]);
    printf("\n");
}

static void describe(int sid, int files, sion_int32 block_size)
{
    int tasks, blocks, entries, number;
    sion_int64 skip, tail, *sizes, *ranks, *counts, *bytes;
    sion_int32 *mapping;
    if (sion_get_locations(sid, &tasks, &blocks, &skip, &tail, &sizes, &ranks, &counts, &bytes) != SION_SUCCESS)
        exit(4);
    if (sion_get_mapping(sid, &entries, &mapping, &number) != SION_SUCCESS || number != files)
        exit(5);
    printf("tasks %d\nfiles %d\nnumber %d\nblock_size %d\n", tasks, files, sion_get_filenumber(sid), block_size);
    printf("blocks %d\nskip %lld\ntail %lld\n", blocks, skip, tail);
    printf("keyval %d\nendian %d\n", sion_get_keyval_mode(sid), sion_get_file_endianness(sid));
    print("sizes", tasks, sizes);
    print("ranks", tasks, ranks);
    print("counts", tasks, counts);
    print("bytes", tasks * blocks, bytes);
    printf("mapping");
    for (int i = 0; i < 2 * entries; i++)
        printf(" %d", mapping[i]);
    printf("\n");
}

/* At most `most` bytes of the current task; 0 at its end. */
static size_t piece(int sid, size_t most, FILE *from, FILE *to)
{
    if (sion_feof(sid))
        return 0;
    sion_int64 left = sion_bytes_avail_in_block(sid);
    size_t bytes = (size_t)left < most ? (size_t)left : most;
    size_t read = from ? fread(data, 1, bytes, from) : sion_fread(data, 1, bytes, sid);
    if (read != bytes)
        exit(6);
    fwrite(data, 1, bytes, to);
    return bytes;
}

static void copy(int sid, size_t most, FILE *from, FILE *to)
{
    sion_int64 sum = 0, bytes;
    while ((bytes = (sion_int64)piece(sid, most, from, to)) > 0)
        sum += bytes;
    if (sion_get_bytes_read(sid) != sum)
        exit(7);
}

int main(int argc, char **argv)
{
    int tasks, files, *ranks = NULL;
    sion_int64 *sizes = NULL;
    sion_int32 block_size;
    FILE *from;
    const char *way = argv[3], *directory = argv[4];
    if (argc != 5)
        return 2;
    int sid = sion_open(argv[1], argv[2], &tasks, &files, &sizes, &block_size, &ranks, &from);
    if (sid < 0)
        return 8;
    describe(sid, files, block_size);
    if (strcmp(way, "alternating") == 0) {
        int busy = 1;
        while (busy) {
            busy = 0;
            for (int task = 0; task < tasks; task++) {
                FILE *to = stream(directory, task, 0, 0);
                /* 0 for the end of a task */
                if (sion_seek(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS) == SION_SUCCESS)
                    busy |= piece(sid, 7, NULL, to) > 0;
                fclose(to);
            }
        }
    }
    for (int task = 0; task < tasks && strcmp(way, "alternating") != 0; task++) {
        if (strcmp(way, "rank") == 0) {
            sion_int64 size;
            int one = sion_open_rank(argv[1], argv[2], &size, &block_size, &task, &from);
            if (one < 0 || size != sizes[task])
                return 9;
            FILE *to = stream(directory, task, 0, 0);
            copy(one, 100, NULL, to);
            fclose(to);
            if (sion_close(one) != SION_SUCCESS)
                return 10;
            continue;
        }
        if (sion_seek_fp(sid, task, 0, 0, &from) != SION_SUCCESS)
            return 11;
        if (strcmp(way, "records") == 0) {
            uint64_t key;
            size_t bytes;
            while (sion_fread_key_iterator_next(sid, &key, &bytes) == SION_SUCCESS) {
                FILE *to = stream(directory, task, 1, key);
                if (sion_fread_key(data, key, 1, bytes, sid) != bytes)
                    return 12;
                fwrite(data, 1, bytes, to);
                fclose(to);
            }
        } else if (strcmp(way, "keys") == 0) {
            uint64_t key;
            sion_key_stat_t stat;
            if (sion_key_full_scan(sid) != SION_SUCCESS || sion_key_list_iterator_reset(sid) != SION_SUCCESS)
                return 13;
            while (sion_key_list_iterator_next(sid, &key) == SION_SUCCESS) {
                FILE *to = stream(directory, task, 1, key);
                sion_int64 sum = 0;
                size_t read;
                while ((read = sion_fread_key(data, key, 1, 64, sid)) > 0) {
                    fwrite(data, 1, read, to);
                    sum += (sion_int64)read;
                }
                fclose(to);
                if (sion_key_get_stat(sid, key, &stat) != SION_SUCCESS || stat.total_size != sum || stat.key != key)
                    return 14;
            }
        } else {
            FILE *to = stream(directory, task, 0, 0);
            copy(sid, 100, strcmp(way, "file") == 0 ? from : NULL, to);
            fclose(to);
        }
    }
    free(sizes);
    free(ranks);
    return sion_close(sid) == SION_SUCCESS ? 0 : 15;
}
