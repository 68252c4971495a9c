/* What the functions return that describe a file and the places in it; with the values of SIONlib 1.7. */
#include <sion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IS(value, call) is(value, (long long)(call), #call)

static void is(long long expected, long long returned, const char *call)
{
    if (returned != expected) {
        printf("%s is %lld, not %lld\n", call, returned, expected);
        exit(1);
    }
}

static void pure(void)
{
    int a, b, c, d, numbers[] = {0x01020304, 0x05060708}, swapped[2];
    char odd[] = "abcdef";
    IS(SION_SUCCESS, sion_get_version(&a, &b, &c, &d));
    IS(SION_MAIN_VERSION, a);
    IS(SION_SUB_VERSION, b);
    IS(SION_VERSION_PATCHLEVEL, c);
    IS(SION_FILEFORMAT_VERSION, d);
    sion_swap(swapped, numbers, 4, 2, 1);
    IS(0x04030201, swapped[0]);
    IS(0x08070605, swapped[1]);
    sion_swap(swapped, numbers, 4, 2, 0);
    IS(0x05060708, swapped[1]);
    sion_swap(numbers, numbers, 4, 1, 0);
    IS(0x01020304, numbers[0]);
    sion_swap(numbers, numbers, 4, 1, 1);
    IS(0x04030201, numbers[0]);
    sion_swap(odd, odd, 3, 2, 1);
    IS(0, strcmp(odd, "cbafed"));
    IS(0, strcmp(sion_keyval_type_to_str(SION_KEYVAL_INLINE), "SION_KEYVAL_INLINE"));
    IS(0, strcmp(sion_keyval_type_to_str(7), "unknown"));
    a = 1;
    IS(*(char *)&a == 0, sion_get_endianness());
}

/* Three chunks of task 0, one of task 1. */
static void write_file(const char *mode)
{
    int tasks = 2, files = 1, number[] = {5, 6}, *ranks = number, chunk, chunks, blocks;
    sion_int64 size[] = {512, 100}, *sizes = size, position, skip, tail;
    sion_int64 *bytes, *places, *counts, *its_sizes, *its_ranks;
    sion_int32 block_size = 512, *mapping;
    static char data[512];
    FILE *file;
    int posix = strstr(mode, "posix") != NULL;
    int sid = sion_open("inquiry.sion", mode, &tasks, &files, &sizes, &block_size, &ranks, &file);
    IS(1, sid >= 0);
    IS(posix, file == NULL);
    IS(1, sion_get_fp(sid) == file);
    IS(posix, sion_get_fd(sid) >= 0);
    IS(1, sion_is_serial_opened(sid));
    IS(1, sion_get_number_of_files(sid));
    IS(1, sion_get_filenumber(sid));
    IS(SION_KEYVAL_NONE, sion_get_keyval_mode(sid));
    IS(strstr(mode, "big") != NULL, sion_get_file_endianness(sid));
    IS((strstr(mode, "big") != NULL) != sion_get_endianness(), sion_endianness_swap_needed(sid));
    IS(SION_SUCCESS, sion_get_mapping(sid, &chunk, &mapping, &files));
    IS(-1, chunk);
    IS(1, files);
    IS(1536, sion_get_position(sid));
    IS(2, sion_fwrite(data, 200, 2, sid));
    IS(1936, sion_get_position(sid));
    IS(512, sion_fwrite(data, 1, 512, sid));
    IS(1, sion_fwrite(data, 7, 1, sid));
    IS(919, sion_get_bytes_written(sid));
    IS(-1, sion_get_bytes_read(sid));
    IS(SION_SUCCESS, sion_flush(sid));
    IS(SION_SUCCESS, sion_get_current_location(sid, &chunk, &position, &chunks, &bytes));
    IS(2, chunk);
    IS(7, position);
    IS(3, chunks);
    IS(400, bytes[0]);
    IS(512, bytes[1]);
    IS(7, bytes[2]);
    IS(SION_SUCCESS, sion_seek(sid, 1, SION_CURRENT_BLK, SION_CURRENT_POS));
    IS(3, sion_fwrite(data, 1, 3, sid));
    IS(SION_SUCCESS, sion_seek(sid, 0, SION_CURRENT_BLK, SION_CURRENT_POS));
    IS(1536 + 2 * 1024 + 7, sion_get_position(sid));
    IS(SION_SUCCESS, sion_seek(sid, SION_CURRENT_RANK, SION_CURRENT_BLK, SION_CURRENT_POS));
    IS(SION_SUCCESS, sion_get_current_locations(sid, &tasks, &places, &counts));
    IS(2, tasks);
    IS(1536 + 512 + 3, places[1]);
    IS(0, counts[1]);
    IS(2, counts[0]);
    IS(SION_SUCCESS, sion_get_locations(sid, &tasks, &blocks, &skip, &tail, &its_sizes, &its_ranks, &counts, &bytes));
    IS(3, blocks);
    IS(1024, skip);
    IS(512, its_sizes[1]);
    IS(6, its_ranks[1]);
    IS(SION_SUCCESS, sion_close(sid));
}

static void read_file(const char *mode)
{
    int tasks, files, number[2], *ranks = number, chunk, chunks;
    sion_int64 *sizes = NULL, position, *bytes, *places, *counts;
    sion_int32 block_size;
    static char data[512];
    FILE *file, *again;
    int posix = strstr(mode, "posix") != NULL;
    int sid = sion_open("inquiry.sion", mode, &tasks, &files, &sizes, &block_size, &ranks, &file);
    IS(1, sid >= 0);
    IS(2, tasks);
    IS(1, files);
    IS(512, sizes[1]);
    IS(6, number[1]);
    IS(512, block_size);
    IS(posix, sion_get_fd(sid) >= 0);
    IS(SION_SUCCESS, sion_seek_fp(sid, 0, 1, 12, &again));
    IS(1, again == file && sion_get_fp(sid) == file);
    IS(posix, file == NULL);
    IS(500, sion_bytes_avail_in_chunk(sid));
    IS(412, sion_get_bytes_read(sid));
    IS(-1, sion_get_bytes_written(sid));
    IS(50, sion_fread(data, 2, 50, sid));
    IS(1536 + 1024 + 112, sion_get_position(sid));
    IS(SION_SUCCESS, sion_get_current_location(sid, &chunk, &position, &chunks, &bytes));
    IS(1, chunk);
    IS(112, position);
    IS(3, chunks);
    IS(7, bytes[2]);
    IS(SION_SUCCESS, sion_seek(sid, SION_CURRENT_RANK, SION_CURRENT_BLK, 500));
    IS(12, sion_bytes_avail_in_chunk(sid));
    IS(SION_SUCCESS, sion_seek(sid, 1, SION_END_POS, -1));
    IS(1, sion_bytes_avail_in_chunk(sid));
    IS(SION_SUCCESS, sion_seek(sid, 0, SION_ABSOLUTE_POS, 400));
    IS(0, sion_bytes_avail_in_chunk(sid));
    IS(0, sion_feof(sid));
    IS(512, sion_bytes_avail_in_chunk(sid));
    IS(SION_SUCCESS, sion_get_current_locations(sid, &tasks, &places, &counts));
    IS(1536 + 512 + 2, places[1]);
    IS(0, counts[1]);
    IS(SION_SUCCESS, sion_close(sid));
    free(sizes);
}

int main(void)
{
    pure();
    write_file("wb");
    read_file("rb");
    write_file("wb,endianness=big,posix");
    read_file("rb,posix");
    unlink("inquiry.sion");
#ifdef HOLDFAST_ONLY
    /* Without threads, SIONlib itself returns 0. */
    IS(1, sion_is_thread_safe());
#endif
    return 0;
}
