//! Programs for SIONlib's serial functions, over the files that SIONlib wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use holdfast_testkit::fixtures;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::world::{Link, SCR, SION, World, exits_with, holdfast, needs, output, program_source};

/// The fixtures that SIONlib's serial functions wrote on a machine of this byte order, by this version.
fn written_serially() -> Vec<Value> {
    let is_ours =
        |fixture: &Value| fixture["api"] == "sion_open/sion_fwrite (serial)" && fixture["files"][0]["patchlevel"] == 2;
    intact().into_iter().filter(is_ours).collect()
}

/// The files that SIONlib wrote.
pub fn intact() -> Vec<Value> {
    let manifest = fs::read(fixtures("sion").join("MANIFEST.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    manifest["fixtures"].as_array().unwrap().clone()
}

pub fn named(name: &str) -> Value {
    intact().into_iter().find(|fixture| fixture["name"] == name).unwrap()
}

pub fn first_file(fixture: &Value) -> PathBuf {
    fixture_path(&fixture["files"][0])
}

/// The path of a file of a fixture.
pub fn fixture_path(file: &Value) -> PathBuf {
    fixtures("sion").join(file["path"].as_str().unwrap())
}

pub fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// Numbers of nested arrays, separated by blanks.
fn numbers(value: &Value) -> String {
    match value {
        Value::Array(values) => values.iter().map(|value| format!(" {}", numbers(value).trim_start())).collect(),
        value => value.to_string(),
    }
}

fn compile(world: &World, name: &str) -> PathBuf {
    world.compile_for(SION, &["cc"], &[&program_source(name)], Link::Shared)
}

fn run(program: &Path, arguments: &[&str], directory: &Path) -> Output {
    Command::new(program).args(arguments).current_dir(directory).output().unwrap()
}

/// What a program prints that must succeed, and print no error.
#[track_caller]
fn succeeds(program: &Path, arguments: &[&str], directory: &Path) -> String {
    let ran = run(program, arguments, directory);
    // A program may go to a task at its end, which SIONlib reports, too.
    let errors = String::from_utf8_lossy(&ran.stderr);
    let is_clean = errors.lines().all(|line| line.ends_with("is at the end of its stream"));
    assert!(ran.status.success() && is_clean, "{arguments:?}: {:?}: {}", ran.status.code(), output(&ran));
    String::from_utf8(ran.stdout).unwrap()
}

pub fn new_directory(world: &World, name: &str) -> PathBuf {
    let directory = world.path().join(name);
    fs::create_dir(&directory).unwrap();
    directory
}

/// The files of a directory, by name.
pub fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
}

pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the container of a fixture with the arguments that SIONlib was given, and compares the bytes.
fn writes_the_fixture(world: &World, fixture: &Value, more_mode: &str, way: &str) {
    let name = fixture["name"].as_str().unwrap();
    let file = format!("{name}.sion");
    let mode = format!("{}{more_mode}", fixture["open_mode"].as_str().unwrap());
    let block_size = fixture["fsblksize_requested"].to_string();
    let directory = new_directory(world, &format!("{name}{more_mode}-{way}"));
    let arguments = [&[file.as_str(), &mode, &block_size, way], &texts(&fixture["tasks"])[..]].concat();
    let printed = succeeds(&compile(world, "sion_write.c"), &arguments, &directory);
    assert_eq!(printed.trim(), block_size);
    let (written, expected) = (fs::read(directory.join(&file)).unwrap(), fs::read(first_file(fixture)).unwrap());
    assert!(written == expected, "{name}, {way}: {} bytes, of SIONlib {}", written.len(), expected.len());
}

/// The rank has continued once, after one of the 40 steps of its program.
#[track_caller]
pub fn assert_continued(printed: &str, rank: u32) {
    let continued = format!("rank {rank} continues after step ");
    let steps: Vec<u32> = printed
        .lines()
        .filter_map(|line| line.split_once(&continued))
        .map(|(_, step)| step.trim().parse().unwrap())
        .collect();
    assert!(matches!(steps[..], [1..=40]), "{rank}: {steps:?} {printed}");
}

#[test]
fn files_have_the_bytes_that_the_serial_functions_of_sionlib_write(world: &World) {
    let fixtures = written_serially();
    assert_eq!(fixtures.len(), 11);
    for fixture in fixtures {
        for way in ["library", "file", "without"] {
            writes_the_fixture(world, &fixture, "", way);
        }
        writes_the_fixture(world, &fixture, ",posix", "library");
    }
}

/// As siondefrag does it: the streams, also those of records, as one plain write each.
#[test]
fn streams_of_records_can_be_copied_as_they_are(world: &World) {
    let source = world.path().join("copy.c");
    let program = "
        #include <sion.h>
        int main(int argc, char **argv)
        {
            static char data[100][8192];
            int tasks, files, *ranks = NULL;
            sion_int64 *sizes = NULL;
            sion_int32 block_size;
            int from = sion_open(argv[1], \"rb\", &tasks, &files, &sizes, &block_size, &ranks, NULL);
            for (int task = 0; task < tasks; task++) {
                sizes[task] = 0;
                sion_seek(from, task, 0, 0);
                while (!sion_feof(from)) {
                    size_t bytes = (size_t)sion_bytes_avail_in_block(from);
                    if (sion_fread(data[task] + sizes[task], 1, bytes, from) != bytes)
                        return 3;
                    sizes[task] += (sion_int64)bytes;
                }
            }
            const char *mode = sion_get_keyval_mode(from) == SION_KEYVAL_INLINE ? \"wb,keyval=inline\" : \"wb\";
            files = 1;
            if (argc == 4)
                block_size = 1;
            int to = sion_open(argv[2], mode, &tasks, &files, &sizes, &block_size, &ranks, NULL);
            for (int task = 0; task < tasks; task++) {
                sion_seek(to, task, SION_CURRENT_BLK, SION_CURRENT_POS);
                if (sion_fwrite(data[task], 1, (size_t)sizes[task], to) != (size_t)sizes[task])
                    return 4;
            }
            return sion_close(from) && sion_close(to) ? 0 : 5;
        }";
    fs::write(&source, program).unwrap();
    let program = world.compile_for(SION, &["cc"], &[&source], Link::Shared);
    for (from, to, more) in [
        ("ser4_fs512", "defrag_ser4", None),
        ("ser4_fs512", "defrag_ser4_q1", Some("q1")),
        ("par8_n2", "defrag_par8_q1", Some("q1")),
        ("kv4", "defrag_kv4_q1", Some("q1")),
    ] {
        let (from, name) = (first_file(&named(from)), format!("{to}.sion"));
        let arguments: Vec<&str> = [from.to_str().unwrap(), &name].into_iter().chain(more).collect();
        succeeds(&program, &arguments, world.path());
        let expected = fs::read(first_file(&named(to))).unwrap();
        assert!(fs::read(world.path().join(&name)).unwrap() == expected, "{to}");
    }
}

#[test]
fn block_size_of_the_file_system_is_used_and_returned_if_none_is_given(world: &World) {
    use std::os::unix::fs::MetadataExt;
    let program = compile(world, "sion_write.c");
    for asked in ["-1", "0"] {
        let printed = succeeds(&program, &["auto.sion", "wb", asked, "library", "0:10:25:5", "1:1:1:1"], world.path());
        let file = fs::metadata(world.path().join("auto.sion")).unwrap();
        assert_eq!(printed.trim(), file.blksize().to_string());
        let verified = holdfast(&["verify", "auto.sion"], world.path());
        assert!(verified.status.success(), "{}", output(&verified));
    }
}

/// What `sion_read` prints of a file, by the manifest.
fn described(fixture: &Value) -> String {
    let files = fixture["files"].as_array().unwrap();
    let one = &files[0];
    assert_eq!(files.len(), 1, "a single file");
    let field = |name: &str| numbers(&one[name]);
    let order = one["endianness_bytes"].as_str().unwrap();
    format!(
        "tasks {}\nfiles 1\nnumber {}\nblock_size {}\nblocks {}\nskip {}\ntail {}\nkeyval {}\nendian {}\nsizes{}\n\
         ranks{}\ncounts{}\nbytes{}\nmapping\n",
        field("ntasks"),
        field("filenumber"),
        field("fsblksize"),
        field("maxchunks"),
        field("globalskip"),
        field("start_of_varheader"),
        field("keyval"),
        i32::from(&order[2..4] == "01"),
        field("chunksizes"),
        field("globalranks"),
        field("chunk_counts"),
        field("chunk_bytes"),
    )
}

/// Reads a file in one way. Returns what was printed, and the streams or values.
fn read(world: &World, fixture: &Value, mode: &str, way: &str) -> (String, BTreeMap<String, Vec<u8>>) {
    let name = fixture["name"].as_str().unwrap();
    let to = new_directory(world, &format!("{name}-{mode}-{way}"));
    let file = first_file(fixture);
    let arguments = [file.to_str().unwrap(), mode, way, to.to_str().unwrap()];
    let printed = succeeds(&compile(world, "sion_read.c"), &arguments, world.path());
    (printed, contents(&to))
}

#[test]
fn every_file_of_sionlib_is_read_with_its_tables_and_streams(world: &World) {
    let mut read_in = 0;
    for fixture in intact() {
        let name = &fixture["name"];
        let tasks = fixture["logical_tasks"].as_array().unwrap();
        for (mode, way) in
            [("rb", "library"), ("rb", "file"), ("br,posix", "library"), ("rb", "rank"), ("r", "alternating")]
        {
            let (printed, streams) = read(world, &fixture, mode, way);
            if fixture["files"].as_array().unwrap().len() == 1 {
                assert_eq!(printed, described(&fixture), "{name}");
            }
            assert_eq!(streams.len(), tasks.len(), "{name}");
            for (task, (file, stream)) in tasks.iter().zip(streams) {
                assert_eq!(file, format!("t_{:05}", task["index"].as_u64().unwrap()));
                assert_eq!(hash(&stream), task["sha256"].as_str().unwrap(), "{name} {mode} {way} {file}");
            }
            read_in += 1;
        }
    }
    assert_eq!(read_in, 5 * 31);
}

#[test]
fn files_of_a_set_are_one_file_in_the_order_of_the_ranks(world: &World) {
    let (printed, _) = read(world, &named("map5_n2"), "rb", "library");
    let expected = "tasks 5\nfiles 2\nnumber 0\n";
    assert!(printed.starts_with(expected), "{printed}");
    // Of each task, its file, and its index there.
    let fixture = named("map5_n2");
    let mapping = numbers(&fixture["files"][0]["mapping"]);
    assert!(printed.ends_with(&format!("mapping{mapping}\n")), "{printed} {mapping}");
    let ranks = printed.lines().find(|line| line.starts_with("ranks")).unwrap();
    assert_eq!(ranks, "ranks 0 1 2 3 4");
    // The largest number of chunks of both files; the others are marked as unused.
    let bytes = printed.lines().find(|line| line.starts_with("bytes")).unwrap();
    assert!(bytes.contains(" -1"), "{bytes}");
}

/// The values of the keys of a task, as the original's sionsplit wrote them.
#[test]
fn values_of_keys_are_read_in_the_order_of_writing_and_by_key(world: &World) {
    for name in ["kv4", "kv6_n2", "kv3_be", "defrag_kv4_q1", "kv1_zero_first", "kv1_zero_last"] {
        let fixture = named(name);
        let directory = first_file(&fixture).parent().unwrap().join("split");
        let mut expected = contents(&directory);
        // There the original stopped at a record of length 0, or wrote a neighbour twice.
        if name == "kv1_zero_first" {
            let (_, whole) = read(world, &fixture, "rb,keyval=unknown", "library");
            expected.insert("t_00000_000000000005".to_owned(), whole["t_00000"][32..72].to_vec());
        }
        if name == "kv1_zero_last" {
            let (_, whole) = read(world, &fixture, "rb,keyval=unknown", "library");
            expected.insert("t_00000_000000000006".to_owned(), whole["t_00000"][72..75].to_vec());
            expected.insert("t_00000_000000000008".to_owned(), Vec::new());
        }
        for way in ["records", "keys"] {
            let (_, values) = read(world, &fixture, "rb,keyval=inline", way);
            assert_eq!(values.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{name} {way}");
            assert!(values == expected, "{name} {way}");
        }
    }
}

#[test]
fn wrong_calls_return_what_sionlib_returns_and_say_what_to_do(world: &World) {
    let program = compile(world, "sion_misuse.c");
    let (plain, records) = (first_file(&named("ser4_fs512")), first_file(&named("kv4")));
    let new = world.path().join("new.sion");
    let cases: [(&str, &Path, &[&str]); 5] = [
        ("handles", &plain, &["SION: sion_fread: 7 is not the handle of an open file: pass what sion_open returned"]),
        (
            "writing",
            &new,
            &[
                "the number of files is 2: the serial functions write one file",
                "cannot create /nonexistent/file.sion: No such file or directory (os error 2); check the directory",
                "sion_open_rank cannot write: use sion_open",
                "1025 bytes do not fit into a chunk of task 0, which has 1024",
                "rank 4 is not open: the file has 0 to 3",
                "sion_fread: the file is being written: close it",
                "sion_fwrite_key: the file has no key-value records: write it with \"wb,keyval=inline\"",
            ],
        ),
        (
            "reading",
            &plain,
            &[
                "sion_fwrite: the file was opened to read: open it with \"wb\"",
                "task 0 has no chunk 3: its chunks are 0 to 2",
                "position 901 is not in the chunk, which has 900 bytes",
                "position 2601 is not in the stream of task 0, which has 2600 bytes",
                "800 bytes are wanted, and 799 are left in chunk 2 of task 0",
                "the pointer to the data is NULL",
                "sion_seek: task 0 is at the end of its stream",
            ],
        ),
        ("rank", &plain, &["rank 2 is not open: sion_open_rank opened rank 1 alone"]),
        ("keys", &records, &["sion_fwrite_key: the file was opened to read"]),
    ];
    for (way, file, messages) in cases {
        let ran = run(&program, &[way, file.to_str().unwrap()], world.path());
        let printed = output(&ran);
        assert!(ran.status.success() && ran.stdout.is_empty(), "{way}: {printed}");
        for message in messages {
            assert!(printed.contains(message), "{way}: {message}: {printed}");
        }
        assert!(!printed.contains("please report it"), "{printed}");
    }
}

#[test]
fn places_and_descriptions_are_those_of_sionlib(world: &World) {
    for link in [Link::Shared, Link::Static] {
        let world_of_link = World::new();
        let source = program_source("sion_inquiry.c");
        let program = world_of_link.compile_for(SION, &["cc", "-DHOLDFAST_ONLY"], &[&source], link);
        assert_eq!(succeeds(&program, &[], world.path()), "");
    }
}

#[test]
fn differences_of_the_page_are_as_it_says(world: &World) {
    let program = compile(world, "sion_differences.c");
    let part = fixtures("sion").join("par8_n2/par8_n2.sion.000001");
    let files = [first_file(&named("ser4_fs512")), first_file(&named("kv4")), part];
    let ran = run(&program, &files.each_ref().map(|file| file.to_str().unwrap()), world.path());
    let printed = output(&ran);
    assert!(ran.status.success() && ran.stdout.is_empty(), "{printed}");
    for message in [
        "the number of tasks is 0: give 1 to",
        "a chunk size is -1: give 0 or more",
        "\"keyval=meta\" in the mode cannot be carried out: give keyval=inline",
        "\"endianness=middle\" in the mode cannot be carried out: give endianness=big or endianness=little",
        "par8_n2.sion.000001 is one file of a set: open the first file of the set",
        "the array of chunk sizes is NULL",
        "pass SION_CURRENT_BLK and SION_CURRENT_POS",
        "items of 0 bytes: give the size of an item",
        "has plain streams, contrary to the mode",
        "900 bytes are wanted, and 800 are left in chunk 2 of task 0",
        "sion_flush: the file was opened to read",
    ] {
        assert!(printed.contains(message), "{message}: {printed}");
    }
}

/// Files on which the original ends by a memory fault, or never.
#[test]
fn damaged_files_are_refused_with_the_damage(world: &World) {
    let program = compile(world, "sion_misuse.c");
    let manifest = fs::read(fixtures("sion").join("MANIFEST.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let mut refused = 0;
    for damaged in manifest["damaged"].as_array().unwrap() {
        let name = damaged["name"].as_str().unwrap();
        // Found in records, which are read later, or not at all.
        if damaged["suggested_verdict"] != "reject"
            || ["kv_len_huge", "kv_len_negative", "kv_header_cut"].contains(&name)
        {
            continue;
        }
        let file = first_file(damaged);
        let ran = run(&program, &["damaged", file.to_str().unwrap()], world.path());
        let printed = output(&ran);
        assert!(ran.status.success() && ran.stdout.is_empty(), "{name}: {:?} {printed}", ran.status);
        assert_eq!(printed.lines().filter(|line| line.starts_with("SION: sion_open")).count(), 2, "{name}: {printed}");
        refused += 1;
    }
    assert!(refused >= 45, "{refused}");
}

#[test]
fn damaged_records_are_refused_when_they_are_read(world: &World) {
    for name in ["kv_len_huge", "kv_len_negative", "kv_header_cut"] {
        let file = fixtures("sion").join(format!("damaged/{name}/{name}.sion"));
        let to = new_directory(world, name);
        let arguments = [file.to_str().unwrap(), "rb", "records", to.to_str().unwrap()];
        let printed = output(&run(&compile(world, "sion_read.c"), &arguments, world.path()));
        assert!(
            printed.contains("SION: sion_fread_key_iterator_next") && printed.contains("record"),
            "{name}: {printed}"
        );
    }
}

/// Two of six ranks lose their node, and read files that were rebuilt on another one.
#[test]
fn program_of_the_page_continues_from_rebuilt_files_after_node_loss(world: &World) {
    let source = world.program_of_page("docs/libsion.md", "c", "heat.c");
    let headers = format!("-I{}", SION.include("").display());
    // The linker may drop libraries that are named before the program.
    let compiler = ["cc", &headers, "-Wl,--no-as-needed"];
    let program = world.compile_for(SCR, &compiler, &[&SION.shared(), &source], Link::Shared);
    let ran = world.run(&[program.to_str().unwrap()], "", "{node: 1, during: encode, checkpoint: 40}");
    let printed = exits_with(&ran, 0);
    assert!(printed.contains("node1 down"), "{printed}");
    for rank in 0..6 {
        assert_continued(&printed, rank);
        // 5050 steps in sum, 1000 cells, and twice as much in the second field.
        let line = format!("rank {rank} of 6: {}", (rank + 1) * 5050 * 1000 * 3);
        assert!(printed.contains(&line), "{line}: {printed}");
        let file = world.path().join(format!("prefix/scr.current/rank_{rank}.sion"));
        let inspected = exits_with(&holdfast(&["inspect", file.to_str().unwrap()], world.path()), 0);
        assert!(inspected.contains("SION"), "{inspected}");
        exits_with(&holdfast(&["verify", file.to_str().unwrap()], world.path()), 0);
    }
}

/// As an ended program leaves it: the file was never closed.
#[test]
fn streams_of_a_file_that_was_never_closed_are_recovered(world: &World) {
    let source = world.path().join("ends.c");
    let program = "
        #include <sion.h>
        #include <unistd.h>
        int main(void)
        {
            int tasks = 2, files = 1, number[] = {0, 1}, *ranks = number;
            sion_int64 size[] = {100, 100}, *sizes = size;
            sion_int32 block_size = 512;
            int sid = sion_open(\"open.sion\", \"wb\", &tasks, &files, &sizes, &block_size, &ranks, NULL);
            sion_seek(sid, 1, SION_CURRENT_BLK, SION_CURRENT_POS);
            if (sion_fwrite(\"saved\", 1, 5, sid) != 5 || sion_flush(sid) != SION_SUCCESS)
                return 3;
            if (sion_seek(sid, 0, SION_CURRENT_BLK, SION_CURRENT_POS) != SION_SUCCESS || sion_flush(sid) != 0)
                return 4;
            _exit(0);
        }";
    fs::write(&source, program).unwrap();
    succeeds(&world.compile_for(SION, &["cc"], &[&source], Link::Static), &[], world.path());
    let reading = run(&compile(world, "sion_misuse.c"), &["damaged", "open.sion"], world.path());
    assert!(output(&reading).contains("was never closed"), "{}", output(&reading));
    exits_with(&holdfast(&["extract", "--recover", "open.sion", "--to", "out"], world.path()), 65);
    let streams = contents(&world.path().join("out"));
    assert_eq!(streams["t_00001"], b"saved");
}

/// Each thread has a file of its own.
#[test]
fn several_threads_write_and_read(world: &World) {
    let source = world.path().join("threads.c");
    let program = "
        #include <pthread.h>
        #include <sion.h>
        #include <string.h>
        static void *work(void *name)
        {
            int tasks = 1, files = 1, number[] = {0}, *ranks = number;
            sion_int64 size[] = {64}, *sizes = size;
            sion_int32 block_size = 64;
            char data[8], *file = name;
            memset(data, file[0], 8);
            int sid = sion_open(file, \"wb\", &tasks, &files, &sizes, &block_size, &ranks, NULL);
            for (int i = 0; i < 1000; i++)
                if (sion_fwrite(data, 8, 1, sid) != 1)
                    return name;
            if (sion_close(sid) != SION_SUCCESS)
                return name;
            sid = sion_open(file, \"rb\", &tasks, &files, NULL, &block_size, NULL, NULL);
            for (int i = 0; i < 1000; i++)
                if (sion_fread(data, 8, 1, sid) != 1 || data[7] != file[0])
                    return name;
            return sion_feof(sid) == 1 && sion_close(sid) == SION_SUCCESS ? NULL : name;
        }
        int main(void)
        {
            pthread_t threads[4];
            char *names[] = {\"a.sion\", \"b.sion\", \"c.sion\", \"d.sion\"};
            int failed = 0;
            for (int i = 0; i < 4; i++)
                pthread_create(&threads[i], NULL, work, names[i]);
            for (int i = 0; i < 4; i++) {
                void *name;
                pthread_join(threads[i], &name);
                failed |= name != NULL;
            }
            return failed;
        }";
    fs::write(&source, program).unwrap();
    succeeds(&world.compile_for(SION, &["cc", "-pthread"], &[&source], Link::Shared), &[], world.path());
}

/// A program that writes to the `FILE` without making room reaches into the chunk of another task.
#[test]
fn writes_beyond_a_chunk_are_found(world: &World) {
    let source = world.path().join("beyond.c");
    let program = "
        #include <sion.h>
        int main(void)
        {
            static char data[600];
            int tasks = 2, files = 1, number[] = {0, 1}, *ranks = number;
            sion_int64 size[] = {512, 512}, *sizes = size;
            sion_int32 block_size = 512;
            FILE *file;
            int sid = sion_open(\"beyond.sion\", \"wb\", &tasks, &files, &sizes, &block_size, &ranks, &file);
            if (fwrite(data, 1, 600, file) != 600 || sion_ensure_free_space(sid, 1) != SION_NOT_SUCCESS)
                return 3;
            return sion_close(sid) == SION_NOT_SUCCESS && sion_close(sid) == SION_NOT_SUCCESS ? 0 : 4;
        }";
    fs::write(&source, program).unwrap();
    let ran = run(&world.compile_for(SION, &["cc"], &[&source], Link::Shared), &[], world.path());
    let printed = output(&ran);
    assert!(ran.status.success(), "{printed}");
    let expected = "the position 2136 in the file is outside of chunk 0 of task 0, which has 512 bytes at 1536";
    assert_eq!(printed.matches(expected).count(), 2, "{printed}");
    assert!(printed.contains("call sion_ensure_free_space before each write"), "{printed}");
}

#[test]
fn functions_that_are_missing_are_refused_by_their_names(world: &World) {
    let page = fs::read_to_string(crate::world::in_repository("docs/libsion.md")).unwrap();
    let named =
        page.split("Not here, and refused by").nth(1).unwrap().split("and the Fortran interface").next().unwrap();
    let named: Vec<&str> = named.split('`').filter(|word| word.starts_with("sion_")).collect();
    assert_eq!(named.len(), 13, "{named:?}");
    let source = world.path().join("missing.c");
    let call = |name: &&str| format!("int {name}(void); int call_{name}(void) {{ return {name}(); }}\n");
    let calls: String = named.iter().map(call).collect();
    fs::write(&source, format!("{calls}int main(void) {{ return 0; }}\n")).unwrap();
    let compiled = world.compiling(SION, &["cc"], &[&source], Link::Shared, &world.path().join("missing"));
    for name in &named {
        assert!(output(&compiled).contains(&format!("`{name}'")), "{name}: {}", output(&compiled));
    }
    assert!(!compiled.status.success());
}

#[test]
fn header_of_sion_is_accepted_by_strict_compilers() {
    needs("c++");
    for (compiler, language, standard) in [("cc", "c", "c99"), ("cc", "c", "c11"), ("c++", "c++", "c++17")] {
        let mut command = Command::new(compiler);
        command.args(["-fsyntax-only", "-Wall", "-Wextra", "-Wno-long-long", "-pedantic-errors", "-Werror"]);
        command.args(["-x", language, &format!("-std={standard}")]);
        let checked = command.arg(SION.include("sion.h")).output().unwrap();
        assert!(checked.status.success(), "{standard}: {}", output(&checked));
    }
}
