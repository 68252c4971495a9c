//! SION containers, and the `sion` commands.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use holdfast_testkit::{fast_directory, files_below, fixtures};
use serde_json::Value;

use crate::{json_file, only_file, run, run_bounded, sha256};

fn manifest() -> Value {
    json_file(&fixtures("sion").join("MANIFEST.json"))
}

fn first_file(set: &Value) -> PathBuf {
    fixtures("sion").join(set["files"][0]["path"].as_str().unwrap())
}

fn named(name: &str) -> PathBuf {
    fixtures("sion").join(name).join(format!("{name}.sion"))
}

/// The files in which SIONlib's tools doubled or lost a value.
const QUIRKS: [&str; 2] = ["kv1_zero_last", "kv1_zero_first"];

fn same_bytes(ours: &Path, theirs: &Path) {
    assert!(fs::read(ours).unwrap() == fs::read(theirs).unwrap(), "{} and {}", ours.display(), theirs.display());
}

#[test]
fn verifies_and_extracts_every_intact_container() {
    let manifest = manifest();
    let sets = manifest["fixtures"].as_array().unwrap();
    let paths: Vec<PathBuf> = sets.iter().map(first_file).collect();
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    run("verify --json", &paths).with_code(0).err_is("");
    assert_eq!(run("sion verify --read-data", &paths).code, 0);
    let directory = fast_directory();
    let extracted = run("extract --json --to", &[&[directory.path()], &paths[..]].concat()).with_code(0).err_is("");
    let document = extracted.json();
    for (set, (path, file)) in sets.iter().zip(paths.iter().zip(document["files"].as_array().unwrap())) {
        let name = set["name"].as_str().unwrap();
        let to = directory.path().join(path.file_name().unwrap());
        let split = path.with_file_name("split");
        let parts = files_below(&to);
        assert_eq!(parts.len(), file["files"].as_array().unwrap().len(), "{name}");
        if !QUIRKS.contains(&name) {
            assert_eq!(parts.len(), files_below(&split).len(), "{name}");
            for part in &parts {
                same_bytes(part, &split.join(part.file_name().unwrap()));
            }
        }
        if set["records"].is_null() {
            for (index, task) in set["logical_tasks"].as_array().unwrap().iter().enumerate() {
                let bytes = fs::read(to.join(format!("t_{index:05}"))).unwrap();
                assert_eq!(sha256(&bytes), task["sha256"].as_str().unwrap(), "task {index} of {name}");
            }
        }
    }
}

#[test]
fn verifies_damaged_containers_as_strictly_as_listed() {
    for set in manifest()["damaged"].as_array().unwrap() {
        let (name, path) = (set["name"].as_str().unwrap(), first_file(set));
        for words in ["verify --json", "sion verify --read-data --json"] {
            let ran = run(words, &[&path]);
            let document = ran.json();
            let file = only_file(&document);
            let notes = file["notes"].as_array().unwrap().len();
            match set["suggested_verdict"].as_str().unwrap() {
                "accept" => assert_eq!(ran.code, 0, "{name}: {}", ran.out),
                "reject" => assert_eq!(ran.code, 65, "{name}: {}", ran.out),
                _ => assert!(ran.code == 65 || (ran.code == 0 && notes > 0), "{name}: {}", ran.out),
            }
            assert_eq!(ran.code == 0, file["intact"] == true, "{name}");
        }
        let line = run("verify", &[&path]);
        assert!(line.out.starts_with(&format!("{}: SION container", path.display())), "{name}: {}", line.out);
    }
}

#[test]
fn dump_equals_output_of_siondump() {
    let manifest = manifest();
    let old = ["ffv2", "ffv3", "ffv4"].map(|name| fixtures("sion").join(format!("oldformat/{name}/{name}.sion")));
    let all = manifest["fixtures"].as_array().unwrap().iter().map(first_file).chain(old);
    for path in all {
        let theirs = fs::read_to_string(path.with_file_name("siondump.txt")).unwrap();
        let ran = run("sion dump", &[&path]);
        assert_eq!(ran.code, 0, "{}: {}", path.display(), ran.err);
        assert!(ran.out == theirs, "{}:\n{}", path.display(), ran.out);
        let keys = path.with_file_name("siondump_k.txt");
        let quirk = QUIRKS.iter().any(|name| path.ends_with(format!("{name}.sion")));
        if keys.exists() && !quirk {
            let keys = fs::read_to_string(keys).unwrap();
            let lines: Vec<&str> = keys.lines().filter(|line| line.contains("key[")).collect();
            let ours = run("sion dump --keys", &[&path]).out;
            assert!(!lines.is_empty() && lines.iter().all(|line| ours.contains(line)), "{}:\n{ours}", path.display());
        }
    }
}

#[test]
fn join_restores_split_streams() {
    for name in ["ser4_fs512", "par8_n2", "kv4", "kv3_be"] {
        let directory = fast_directory();
        let at = |name: &str| directory.path().join(name);
        let dry = run("sion split --json --dry-run --to", &[&at("tasks"), &named(name)]);
        assert_eq!((dry.code, at("tasks").exists()), (0, false), "{name}: {}", dry.err);
        let ran = run("sion split --json --to", &[&at("tasks"), &named(name)]);
        assert_eq!(ran.json()["files"], dry.json()["files"], "{name}");
        let dry = run("sion join --dry-run", &[&at("tasks"), &at("again.sion")]);
        assert_eq!((dry.code, at("again.sion").exists()), (0, false), "{name}: {}", dry.err);
        for words in ["sion join", "sion join --force --block-size 1 --chunk-size 300", "sion join --files 2"] {
            let output = if words.ends_with("2") { at("two.sion") } else { at("again.sion") };
            assert_eq!(run(words, &[&at("tasks"), &output]).code, 0, "{name}: {words}");
            assert_eq!(run("sion verify --read-data", &[&output]).code, 0, "{name}: {words}");
            assert_eq!(run("sion split --force --to", &[&at("again"), &output]).code, 0);
            let parts = files_below(&at("tasks"));
            assert_eq!(parts.len(), files_below(&at("again")).len(), "{name}: {words}");
            parts.iter().for_each(|part| same_bytes(part, &at("again").join(part.file_name().unwrap())));
        }
        run("sion join", &[&at("tasks"), &at("again.sion")]).with_code(69);
    }
}

/// Writes files of these names and joins them with these options.
fn joined(directory: &Path, names: &[String], words: &str, output: &str) -> PathBuf {
    let tasks = directory.join(format!("{output}.tasks"));
    fs::create_dir(&tasks).unwrap();
    for name in names {
        fs::write(tasks.join(name), name).unwrap();
    }
    let output = directory.join(output);
    run(&format!("sion join --block-size 512 {words}"), &[&tasks, &output]).with_code(0);
    output
}

#[test]
fn dump_breaks_lines_as_siondump_does() {
    let directory = fast_directory();
    for tasks in [16, 17, 35] {
        let names: Vec<String> = (0..tasks).map(|task| format!("t_{task:05}")).collect();
        let path = joined(directory.path(), &names, "--files 2", &format!("{tasks}.sion"));
        let dump = run("sion dump", &[&path]).out;
        let start = dump.find("  mapping: ").unwrap();
        let mapping: Vec<&str> = dump[start..].lines().collect();
        let (first_file, mut lines) = (tasks / 2, vec!["  mapping: ".to_owned()]);
        for task in 0..tasks {
            let (file, local) = if task < first_file { (0, task) } else { (1, task - first_file) };
            lines.last_mut().unwrap().push_str(&format!("[{task:05} -> (f{file:03},t{local:03})] "));
            if task % 16 == 15 {
                lines.push(" ".repeat(8));
            }
        }
        lines.push("-".repeat(60));
        assert_eq!(mapping, lines, "{tasks} tasks");
    }
    let names: Vec<String> = (0..12).map(|key| format!("t_00000_{key:012}")).collect();
    let path = joined(directory.path(), &names, "", "keys.sion");
    let dump = run("sion dump --records", &[&path]).out;
    let record = |number: u32| format!(" [{number:02}:k=<{number}>,size=20]");
    let line =
        |start: &str, numbers: std::ops::Range<u32>| format!("{start}{}\n", numbers.map(record).collect::<String>());
    let expected = line("Task 00:", 0..5) + &line("       :", 5..10) + &line("       :", 10..12);
    assert!(dump.contains(&expected), "{dump}");
}

#[test]
fn keys_from_2_to_the_63_are_signed_as_in_siondump_and_sionsplit() {
    let directory = fast_directory();
    // As sionsplit writes them, and as positive numbers.
    let names = [
        "t_00000_000000000007",
        "t_00000_-00000000001",
        "t_00001_18446744073709551614",
        "t_00001_-9223372036854775808",
    ];
    let path = joined(directory.path(), &names.map(str::to_owned), "", "keys.sion");
    let dump = run("sion dump --keys --records", &[&path]).out;
    for line in ["Task 00: key[01]=      -1: ", "Task 01: key[01]=      -2: ", "k=<-9223372036854775808>,size=28]"] {
        assert!(dump.contains(line), "{line} in {dump}");
    }
    let to = directory.path().join("split");
    assert_eq!(run("sion split --to", &[&to, &path]).code, 0);
    for (name, source) in
        [(names[0], names[0]), (names[1], names[1]), ("t_00001_-00000000002", names[2]), (names[3], names[3])]
    {
        assert_eq!(fs::read_to_string(to.join(name)).unwrap(), source);
    }
    assert_eq!(files_below(&to).len(), names.len());
    let again = directory.path().join("again.sion");
    assert_eq!(run("sion join --block-size 512", &[&to, &again]).code, 0);
    assert_eq!(run("sion dump --keys", &[&again]).out.matches("key[").count(), names.len());
}

#[test]
fn join_takes_every_file_or_names_it_in_an_error() {
    let directory = fast_directory();
    let tasks = directory.path().join("tasks");
    let output = directory.path().join("out.sion");
    for (extra, named) in [
        (&["x_00001"][..], &["x_00001 is not named t_<task>"][..]),
        (&["t_1", ".t_00002"], &[".t_00002 is not named", "nor are 1 other files"]),
        (&["t_00001_-0000000001"], &["t_00001_-0000000001 is not named"]),
        (&["t_00001_-99999999999999999999"], &["t_00001_-99999999999999999999 is not named"]),
        (&["t_99999999999999999999"], &["t_99999999999999999999 is not named"]),
        (&["t_00001", "t_000001"], &["t_000001 and t_00001 are names of one stream"]),
        (&["t_00000_-00000000001", "t_00000_18446744073709551615"], &["are names of one stream"]),
    ] {
        fs::create_dir(&tasks).unwrap();
        for name in ["t_00000"].iter().chain(extra) {
            fs::write(tasks.join(name), name).unwrap();
        }
        let ran = run("sion join", &[&tasks, &output]);
        assert_eq!((ran.code, output.exists()), (64, false), "{extra:?}: {}", ran.err);
        assert!(named.iter().all(|text| ran.err.contains(text)), "{extra:?}: {}", ran.err);
        fs::remove_dir_all(&tasks).unwrap();
    }
    fs::create_dir_all(tasks.join("t_00000.d")).unwrap();
    run("sion join", &[&tasks, &output]).with_code(64).complains(&["t_00000.d is not named"]);
    run("sion join", &[&tasks, &tasks.join("out.sion")]).with_code(64).complains(&["outside of the directory"]);
    run("sion join", &[&directory.path().join("missing"), &output])
        .with_code(69)
        .complains(&["cannot read the directory"]);
}

/// A container of 8 KiB on disk whose head declares this many tasks: all tables are in a hole of the file.
fn sparse_container(path: &Path, tasks: u64, blocks: u32, head: &[(u64, u64)]) {
    let mut fixed = Vec::from(*b"sion\0\0\0\0");
    for field in [1007, 2, 5, 512, u32::try_from(tasks).unwrap(), 1, 1] {
        fixed.extend(field.to_le_bytes());
    }
    fixed.extend((50_u64 << 32).to_le_bytes());
    let file = fs::File::create(path).unwrap();
    file.write_all_at(&fixed, 0).unwrap();
    let chunk_bytes: u64 = head.iter().map(|(_, bytes)| bytes).sum();
    for (task, bytes) in head {
        file.write_all_at(&bytes.to_le_bytes(), 1076 + 8 * tasks + 8 * task).unwrap();
    }
    let data = (1088 + 16 * tasks).next_multiple_of(512);
    let tail = data + chunk_bytes * u64::from(blocks);
    if blocks > 0 {
        file.write_all_at(&blocks.to_le_bytes(), 1076 + 16 * tasks).unwrap();
        file.write_all_at(&tail.to_le_bytes(), 1080 + 16 * tasks).unwrap();
        file.write_all_at(&u64::from(blocks).to_le_bytes(), tail).unwrap();
    }
    file.set_len(tail + 8 * tasks * (1 + u64::from(blocks)) + 4).unwrap();
    assert!(fs::metadata(path).unwrap().blocks() * 512 <= 64 << 10, "the file system has no holes");
}

#[test]
fn memory_follows_content_and_not_declared_numbers() {
    let directory = fast_directory();
    let path = directory.path().join("huge.sion");
    let to = directory.path().join("out");
    let most = (1 << 24) - 1;
    // Many tasks, closed and never closed; one task with many chunks; many tasks with many chunks.
    let all = [
        "inspect",
        "inspect --json",
        "verify --json",
        "sion dump --recover",
        "sion dump --recover --json",
        "extract --recover --dry-run --to",
    ];
    type Case<'a> = (&'a str, u64, u32, &'a [(u64, u64)], &'a [&'a str]);
    let cases: [Case<'_>; 4] = [
        ("tasks", most, 1, &[(0, 512)], &all),
        ("never closed", most, 0, &[(0, 512)], &all),
        ("chunks", 1, (1 << 24) - 1, &[(0, 512)], &["verify --json"]),
        ("both", 60_000, 100, &[(0, 512), (59_999, 512)], &["verify --json", "inspect --json"]),
    ];
    for (name, tasks, blocks, head, commands) in cases {
        sparse_container(&path, tasks, blocks, head);
        for words in commands {
            let paths: &[&Path] = if words.ends_with("--to") { &[&to, &path] } else { &[&path] };
            // The program itself, with its threads, needs half of it.
            let (code, text) = run_bounded(words, paths, 200);
            assert!(
                matches!(code, Some(0 | 65)),
                "{name}: {words}: {code:?} {}",
                String::from_utf8_lossy(&text[..text.len().min(500)])
            );
            let is_refused = String::from_utf8_lossy(&text).contains("tasks in sequence");
            assert_eq!(is_refused, tasks == most, "{name}: {words}");
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn descriptions_of_many_tasks_are_written_piece_by_piece() {
    let directory = fast_directory();
    let path = directory.path().join("many.sion");
    // With ranks and chunk counts in the file. The JSON text has more than 10 MB, and its values in memory a hundred.
    let tasks = 100_000_u64;
    sparse_container(&path, tasks, 1, &[]);
    let ranks: Vec<u8> = (0..tasks).flat_map(u64::to_le_bytes).collect();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&ranks, 1076).unwrap();
    let counts: Vec<u8> = (0..tasks).flat_map(|_| 1_u64.to_le_bytes()).collect();
    file.write_all_at(&counts, (1088 + 16 * tasks).next_multiple_of(512)).unwrap();
    drop(file);
    assert_eq!(run("verify", &[&path]).code, 0);
    for words in ["inspect --json", "sion dump --json", "sion dump", "inspect"] {
        let (code, text) = run_bounded(words, &[&path], 160);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(code, Some(0), "{words}: {}", &text[..text.len().min(500)]);
        assert!(text.len() > 5 << 20, "{words}: {} bytes", text.len());
        if words.ends_with("--json") {
            let document: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(document["logical_tasks"].as_array().unwrap().len() as u64, tasks);
        }
    }
}

#[test]
fn replacing_a_set_by_one_file_removes_its_further_files() {
    let directory = fast_directory();
    let at = |name: &str| directory.path().join(name);
    let names: Vec<String> = (0..6).map(|task| format!("t_{task:05}")).collect();
    for words in ["sion defrag", "sion join --block-size 512"] {
        let set = joined(directory.path(), &names, "--files 3", "set.sion");
        // A file of another set, whose first file has another name.
        joined(directory.path(), &names, "--files 2", "other.sion");
        fs::rename(at("other.sion.000001"), at("set.sion.000004")).unwrap();
        let input = if words == "sion defrag" { set.clone() } else { at("set.sion.tasks") };
        let dry = run(&format!("{words} --force --dry-run --json"), &[&input, &set]);
        let removed = |ran: &crate::program::Ran| ran.json()["removed"].as_array().unwrap().len();
        assert_eq!((removed(&dry), at("set.sion.000002").exists()), (2, true), "{words}: {}", dry.err);
        let ran = run(&format!("{words} --force --json"), &[&input, &set]);
        assert_eq!((ran.code, removed(&ran)), (0, 2), "{words}: {}", ran.err);
        assert!(!at("set.sion.000001").exists() && !at("set.sion.000002").exists(), "{words}");
        assert!(at("set.sion.000004").exists(), "{words}: not of the set");
        assert_eq!(run("sion verify", &[&set]).code, 0);
        assert_eq!(run("sion split --to", &[&at("again"), &set]).code, 0);
        names.iter().for_each(|name| assert_eq!(fs::read_to_string(at("again").join(name)).unwrap(), *name));
        for path in files_below(directory.path()) {
            fs::remove_file(path).unwrap();
        }
        [at("again"), at("set.sion.tasks"), at("other.sion.tasks")]
            .iter()
            .for_each(|path| fs::remove_dir(path).unwrap());
    }
}

#[test]
fn defrag_writes_bytes_of_siondefrag() {
    let directory = fast_directory();
    for (result, input, words) in [
        ("defrag_ser4", "ser4_fs512", "sion defrag"),
        ("defrag_ser4_q1", "ser4_fs512", "sion defrag --block-size 1"),
        ("defrag_par8_q1", "par8_n2", "sion defrag --block-size 1"),
        ("defrag_kv4_q1", "kv4", "sion defrag --block-size 1"),
    ] {
        let output = directory.path().join(format!("{result}.sion"));
        let dry = run(&format!("{words} --dry-run"), &[&named(input), &output]);
        assert_eq!((dry.code, output.exists()), (0, false), "{}", dry.err);
        assert_eq!(run(words, &[&named(input), &output]).code, 0);
        same_bytes(&output, &named(result));
        assert_eq!(run(words, &[&named(input), &output]).code, 69, "the file exists");
    }
}

#[test]
fn reports_unclosed_container_and_recovers_it_on_request() {
    let path = fixtures("sion").join("damaged/real_unclosed_serial/real_unclosed_serial.sion");
    let directory = fast_directory();
    let to = directory.path().join("tasks");
    for words in ["sion split --to", "extract --to"] {
        run(words, &[&to, &path]).with_code(65).complains(&["never closed", "--recover"]);
        let recovered = run(&words.replace(" --to", " --recover --force --to"), &[&to, &path]);
        assert_eq!(recovered.code, 65, "{words}: data may be missing");
        assert_eq!(files_below(&to).len(), 3, "{words}");
        assert!(files_below(&to).iter().any(|part| fs::metadata(part).unwrap().len() > 0), "{words}");
    }
    let closed = directory.path().join("closed.sion");
    assert_eq!(run("sion defrag --recover", &[&path, &closed]).code, 65);
    assert_eq!(run("verify", &[&closed]).code, 0);
    assert_eq!(run("sion dump", &[&path]).code, 65);
    run("sion dump --recover", &[&path]).with_code(65).prints(&["number of tasks:           3"]);
}

#[test]
fn inspect_json_has_names_of_manifest() {
    for set in manifest()["fixtures"].as_array().unwrap() {
        let described = run("inspect --json", &[&first_file(set)]).json();
        for (ours, theirs) in described["files"].as_array().unwrap().iter().zip(set["files"].as_array().unwrap()) {
            for key in [
                "size",
                "version",
                "patchlevel",
                "fsblksize",
                "ntasks",
                "nfiles",
                "globalranks",
                "chunksizes",
                "start_of_varheader",
            ] {
                assert!(theirs[key].is_null() || ours[key] == theirs[key], "{key} of {}", theirs["path"]);
            }
        }
        for (ours, theirs) in
            described["logical_tasks"].as_array().unwrap().iter().zip(set["logical_tasks"].as_array().unwrap())
        {
            assert_eq!((&ours["globalrank"], &ours["bytes"]), (&theirs["globalrank"], &theirs["bytes"]));
        }
    }
}
