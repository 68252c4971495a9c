/* Calls that fail, and what SIONlib 1.7 returns.
 *
 *     sion_misuse WAY FILE
 *
 * WAY: handles, writing, reading, rank, damaged, keys. FILE: a new one for `writing`, else ser4_fs512 or kv4. */
#include <sion.h>
#include <stdlib.h>
#include <string.h>

static char data[8192];

#define RETURNS(value, call) returns(value, (long long)(call), #call)

static void returns(long long expected, long long returned, const char *call)
{
    if (returned != expected) {
        printf("%s returns %lld, not %lld\n", call, returned, expected);
        exit(1);
    }
}

static int create(char *name, const char *mode, int tasks, int files, sion_int64 first)
{
    sion_int64 sizes[] = {first, 100, 100, 100}, *chunks = sizes;
    int ranks[] = {0, 1, 2, 3}, *global = ranks;
    sion_int32 block_size = 512;
    return sion_open(name, mode, &tasks, &files, &chunks, &block_size, &global, NULL);
}

static int read_mode(char *name, const char *mode)
{
    int tasks, files;
    sion_int32 block_size;
    return sion_open(name, mode, &tasks, &files, NULL, &block_size, NULL, NULL);
}

static int rank(char *name, const char *mode, int number)
{
    sion_int64 size;
    sion_int32 block_size;
    return sion_open_rank(name, mode, &size, &block_size, &number, NULL);
}

static void handles(int sid)
{
    uint64_t key;
    size_t size;
    sion_key_stat_t stat;
    int a, b;
    sion_int64 c, d, *p;
    sion_int32 *m;
    RETURNS(0, sion_close(sid));
    RETURNS(0, sion_fwrite(data, 1, 1, sid));
    RETURNS(0, sion_fread(data, 1, 1, sid));
    RETURNS(0, sion_fwrite_key(data, 1, 1, 1, sid));
    RETURNS(0, sion_fread_key(data, 1, 1, 1, sid));
    RETURNS(-1, sion_feof(sid));
    RETURNS(-1, sion_bytes_avail_in_block(sid));
    RETURNS(0, sion_ensure_free_space(sid, 1));
    RETURNS(0, sion_flush(sid));
    RETURNS(0, sion_fread_key_iterator_reset(sid));
    RETURNS(0, sion_fread_key_iterator_next(sid, &key, &size));
    RETURNS(0, sion_seek_key(sid, 1, 0, 0));
    RETURNS(0, sion_key_full_scan(sid));
    RETURNS(0, sion_key_list_iterator_reset(sid));
    RETURNS(0, sion_key_list_iterator_next(sid, &key));
    RETURNS(0, sion_key_get_stat(sid, 1, &stat));
    RETURNS(54, sion_get_keyval_mode(sid));
    RETURNS(-1, sion_get_file_endianness(sid));
    RETURNS(-1, sion_get_number_of_files(sid));
    RETURNS(-1, sion_get_filenumber(sid));
    RETURNS(-1, sion_is_serial_opened(sid));
    RETURNS(-1, sion_get_position(sid));
    RETURNS(-1, sion_get_bytes_written(sid));
    RETURNS(-1, sion_get_bytes_read(sid));
    RETURNS(1, sion_get_fp(sid) == NULL);
    RETURNS(-1, sion_get_fd(sid));
    RETURNS(0, sion_get_locations(sid, &a, &b, &c, &d, &p, &p, &p, &p));
    RETURNS(0, sion_get_current_location(sid, &a, &c, &b, &p));
    RETURNS(0, sion_get_current_locations(sid, &a, &p, &p));
    RETURNS(0, sion_get_mapping(sid, &a, &m, &b));
}

int main(int argc, char **argv)
{
    char *way = argv[1], *name = argv[2];
    int sid;
    if (argc != 3)
        return 2;
    if (strcmp(way, "handles") == 0) {
        handles(-1);
        handles(7);
        sid = read_mode(name, "rb");
        RETURNS(1, sion_close(sid));
        RETURNS(0, sion_close(sid));
    } else if (strcmp(way, "writing") == 0) {
        RETURNS(-1, create(name, "wb", 4, 2, 100));
        RETURNS(-1, create(name, "wb", -1, 1, 100));
        RETURNS(-1, create("/nonexistent/file.sion", "wb", 4, 1, 100));
        RETURNS(-1, rank(name, "wb", 0));
        sid = create(name, "wb", 4, 1, 600);
        RETURNS(0, sion_fwrite(data, 1, 1025, sid));
        RETURNS(100, sion_fwrite(data, 10, 100, sid));
        RETURNS(0, sion_ensure_free_space(sid, 1025));
        RETURNS(1, sion_ensure_free_space(sid, 1024));
        RETURNS(0, sion_seek(sid, 4, SION_CURRENT_BLK, SION_CURRENT_POS));
        RETURNS(0, sion_seek(sid, -1, SION_CURRENT_BLK, SION_CURRENT_POS));
        RETURNS(0, sion_fread(data, 1, 1, sid));
        RETURNS(-1, sion_fwrite_key(data, 1, 1, 1, sid));
        RETURNS(0, sion_fread_key(data, 1, 1, 1, sid));
        RETURNS(1, sion_feof(sid));
        RETURNS(-1, sion_get_bytes_read(sid));
        RETURNS(1, sion_close(sid));
    } else if (strcmp(way, "reading") == 0) {
        RETURNS(-1, read_mode("/nonexistent/file.sion", "rb"));
        sid = read_mode(name, "rb");
        RETURNS(0, sion_fwrite(data, 1, 1, sid));
        RETURNS(0, sion_ensure_free_space(sid, 1));
        RETURNS(-1, sion_get_bytes_written(sid));
        RETURNS(0, sion_seek(sid, 4, 0, 0));
        RETURNS(0, sion_seek(sid, -1, 0, 0));
        RETURNS(0, sion_seek(sid, 0, 3, 0));
        RETURNS(0, sion_seek(sid, 0, -1, 0));
        RETURNS(0, sion_seek(sid, 0, 0, 901));
        RETURNS(0, sion_seek(sid, 0, 0, -1));
        RETURNS(0, sion_seek(sid, 0, SION_ABSOLUTE_POS, 2601));
        RETURNS(0, sion_seek(sid, 0, SION_END_POS, 1));
        RETURNS(0, sion_seek(sid, 0, SION_END_POS, -2601));
        RETURNS(1, sion_seek(sid, 0, SION_END_POS, -2600));
        RETURNS(900, sion_bytes_avail_in_block(sid));
        RETURNS(1, sion_seek(sid, 0, SION_ABSOLUTE_POS, 1801));
        RETURNS(799, sion_bytes_avail_in_block(sid));
        RETURNS(0, sion_fread(data, 1, 800, sid));
        RETURNS(0, sion_fread(data, 1, 1025, sid));
        RETURNS(0, sion_fread(NULL, 1, 1, sid));
        RETURNS(0, sion_fread(data, 0, 1, sid));
        RETURNS(799, sion_fread(data, 1, 799, sid));
        RETURNS(0, sion_fread(data, 1, 1, sid));
        RETURNS(1, sion_feof(sid));
        RETURNS(0, sion_fread_key(data, 1, 1, 1, sid));
        RETURNS(0, sion_key_full_scan(sid));
        RETURNS(1, sion_seek(sid, 2, SION_CURRENT_BLK, SION_CURRENT_POS));
        RETURNS(1, sion_feof(sid));
        RETURNS(0, sion_seek(sid, 0, SION_CURRENT_BLK, SION_CURRENT_POS));
        RETURNS(1, sion_seek(sid, 0, 0, 0));
        RETURNS(2, sion_fread(data, 450, 2, sid));
        RETURNS(1, sion_close(sid));
    } else if (strcmp(way, "rank") == 0) {
        RETURNS(-1, rank("/nonexistent/file.sion", "rb", 0));
        sid = rank(name, "rb", 1);
        RETURNS(0, sion_seek(sid, 2, 0, 0));
        RETURNS(1, sion_seek(sid, 1, 1, 0));
        RETURNS(800, sion_bytes_avail_in_block(sid));
        RETURNS(1, sion_close(sid));
    } else if (strcmp(way, "damaged") == 0) {
        RETURNS(-1, read_mode(name, "rb"));
        RETURNS(-1, rank(name, "rb", 0));
    } else if (strcmp(way, "keys") == 0) {
        uint64_t key = 99;
        sion_key_stat_t stat;
        sid = read_mode(name, "rb");
        RETURNS(0, sion_fread_key(data, 8, 1, 1, sid));
        RETURNS(1, sion_fread_key(data, 7, 64, 2, sid));
        RETURNS(0, sion_fread_key(data, 7, 64, 2, sid));
        RETURNS(1, sion_fread_key(data, 7, 36, 2, sid));
        RETURNS(30, sion_fread_key(data, 7, 1, 64, sid));
        RETURNS(0, sion_fread_key(data, 7, 1, 64, sid));
        RETURNS(0, sion_seek_key(sid, 7, 2, 0));
        RETURNS(0, sion_seek_key(sid, 7, -1, 0));
        RETURNS(0, sion_seek_key(sid, 7, 0, 100));
        RETURNS(0, sion_seek_key(sid, 7, 0, -1));
        RETURNS(0, sion_seek_key(sid, 7, SION_ABSOLUTE_POS, 130));
        RETURNS(0, sion_seek_key(sid, 8, 0, 0));
        RETURNS(0, sion_seek_key(sid, 7, 0, SION_CURRENT_POS));
        RETURNS(0, sion_seek_key(sid, 7, SION_CURRENT_BLOCK, SION_CURRENT_POS));
        RETURNS(1, sion_seek_key(sid, 7, SION_ABSOLUTE_POS, 110));
        RETURNS(20, sion_fread_key(data, 7, 1, 64, sid));
        RETURNS(1, sion_seek_key(sid, 7, 0, 98));
        RETURNS(2, sion_fread_key(data, 7, 1, 64, sid));
        RETURNS(1, sion_seek_key(sid, 7, SION_CURRENT_BLOCK, 29));
        RETURNS(1, sion_fread_key(data, 7, 1, 64, sid));
        RETURNS(0, sion_key_get_stat(sid, 8, &stat));
        RETURNS(1, sion_seek(sid, 2, SION_CURRENT_BLK, SION_CURRENT_POS));
        RETURNS(0, sion_key_list_iterator_next(sid, &key));
        RETURNS(0, key);
        RETURNS(-1, sion_fwrite_key(data, 1, 1, 1, sid));
        RETURNS(1, sion_close(sid));
    }
    return 0;
}
