/* Where the library differs from SIONlib 1.7: the table of docs/libsion.md.
 *
 *     sion_differences PLAIN RECORDS PART     ser4_fs512, kv4, and the second file of a set */
#include <sion.h>
#include <stdlib.h>

#define IS(value, call) is(value, (long long)(call), #call)

static char data[4096];

static void is(long long expected, long long returned, const char *call)
{
    if (returned != expected) {
        printf("%s is %lld, not %lld\n", call, returned, expected);
        exit(1);
    }
}

static int create(const char *mode, int tasks, sion_int64 chunk)
{
    sion_int64 size[] = {chunk, 100}, *sizes = size;
    int number[] = {0, 1}, *ranks = number, files = 1;
    sion_int32 block_size = 64;
    return sion_open("new.sion", mode, &tasks, &files, &sizes, &block_size, &ranks, NULL);
}

static int open_to_read(char *name, const char *mode)
{
    int tasks, files;
    sion_int32 block_size;
    return sion_open(name, mode, &tasks, &files, NULL, &block_size, NULL, NULL);
}

static int open_rank(char *name, int rank)
{
    sion_int64 size;
    sion_int32 block_size;
    return sion_open_rank(name, "rb", &size, &block_size, &rank, NULL);
}

int main(int argc, char **argv)
{
    int sid, two[] = {2, 1};
    if (argc != 4)
        return 2;
    /* files that cannot be, and modes */
    IS(-1, create("wb", 0, 64));
    IS(-1, create("wb", 2, -1));
    IS(-1, create("wb,keyval=meta", 2, 64));
    IS(-1, create("wb,endianness=middle", 2, 64));
    IS(-1, open_rank(argv[3], 0));
    IS(-1, open_rank(argv[1], 4));
    IS(-1, open_rank(argv[1], -1));
    IS(-1, sion_open(NULL, "rb", two, two, NULL, two, NULL, NULL));
    IS(-1, sion_open(argv[1], NULL, two, two, NULL, two, NULL, NULL));
    IS(-1, sion_open(argv[1], "rb", NULL, two, NULL, two, NULL, NULL));
    IS(-1, sion_open("new.sion", "wb", &two[0], &two[1], NULL, &two[1], NULL, NULL));

    /* more chunks than SIONlib allocates; a place in another chunk; items of 0 bytes */
    sid = create("wb,keyval=inline", 2, 64);
    for (int i = 0; i < 300; i++)
        IS(1, sion_fwrite(data, 64, 1, sid));
    IS(0, sion_seek(sid, 1, 0, 0));
    IS(-1, (long long)sion_fwrite_key(data, 1, 0, 1, sid));
    IS(0, sion_bytes_avail_in_chunk(sid));
    IS(SION_SUCCESS, sion_seek(sid, 1, SION_CURRENT_BLK, SION_CURRENT_POS));
    IS(0, sion_flush(sid));
    IS(1, sion_fwrite(data, 10, 1, sid));
    IS(SION_SUCCESS, sion_flush(sid));
    IS(SION_SUCCESS, sion_close(sid));
    sid = open_rank("new.sion", 1);
    IS(1, sid >= 0);
    IS(1, sion_fread(data, 10, 1, sid));
    IS(SION_SUCCESS, sion_close(sid));
    sid = open_rank("new.sion", 0);
    for (int i = 0; i < 300; i++)
        IS(1, sion_fread(data, 64, 1, sid));
    IS(1, sion_feof(sid));
    IS(SION_SUCCESS, sion_close(sid));

    /* all chunks of a rank that has more than rank 0 */
    sid = open_rank(argv[1], 3);
    for (int i = 0; i < 4; i++)
        IS(1250, sion_fread(data, 1, 1250, sid));
    IS(1, sion_feof(sid));
    IS(SION_SUCCESS, sion_close(sid));

    /* a chunk with fewer bytes than are wanted; a flush; the end of a rank of one chunk */
    sid = open_to_read(argv[1], "rb,keyval=inline");
    IS(1, sid >= 0);
    IS(SION_SUCCESS, sion_seek(sid, 0, 1, 900));
    IS(0, sion_fread(data, 1, 900, sid));
    IS(800, sion_fread(data, 1, 800, sid));
    IS(0, sion_flush(sid));
    IS(SION_SUCCESS, sion_seek(sid, 2, SION_CURRENT_BLK, SION_CURRENT_POS));
    IS(SION_SUCCESS, sion_close(sid));
    sid = create("wb", 2, 64);
    IS(1, sion_fwrite(data, 10, 1, sid));
    IS(SION_SUCCESS, sion_close(sid));
    sid = open_to_read("new.sion", "rb");
    IS(1, sion_fread(data, 10, 1, sid));
    IS(SION_SUCCESS, sion_seek(sid, 1, SION_CURRENT_BLK, SION_CURRENT_POS));
    IS(SION_SUCCESS, sion_seek(sid, 0, SION_CURRENT_BLK, SION_CURRENT_POS));
    IS(1, sion_feof(sid));
    IS(SION_SUCCESS, sion_close(sid));

    /* keys without a scan; records of length 0 */
    uint64_t key;
    size_t bytes;
    sion_key_stat_t stat;
    sid = open_to_read(argv[2], "rb");
    IS(SION_SUCCESS, sion_key_get_stat(sid, 9, &stat));
    IS(2000, stat.total_size);
    IS(SION_SUCCESS, sion_key_list_iterator_next(sid, &key));
    IS(7, key);
    IS(SION_SUCCESS, sion_key_list_iterator_next(sid, &key));
    IS(9, key);
    IS(SION_SUCCESS, sion_key_list_iterator_reset(sid));
    IS(SION_SUCCESS, sion_key_list_iterator_next(sid, &key));
    IS(7, key);
    IS(SION_SUCCESS, sion_fread_key_iterator_next(sid, &key, &bytes));
    IS(SION_SUCCESS, sion_fread_key_iterator_next(sid, &key, &bytes));
    IS(9, key);
    IS(SION_SUCCESS, sion_fread_key_iterator_reset(sid));
    IS(SION_SUCCESS, sion_fread_key_iterator_next(sid, &key, &bytes));
    IS(7, key);
    IS(0, sion_fread_key(data, 7, 0, 1, sid));
    IS(SION_SUCCESS, sion_seek(sid, 3, SION_CURRENT_BLK, SION_CURRENT_POS));
    IS(SION_SUCCESS, sion_key_get_stat(sid, 2, &stat));
    IS(0, stat.total_size);
    IS(1, stat.num_blocks);
    IS(SION_SUCCESS, sion_close(sid));
    return 0;
}
