//! Programs for SIONlib's mapped functions for MPI, where a process has several tasks of a file.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::sion::{contents, first_file, hash, intact, named, new_directory, texts};
use crate::sion_mpi::{MPICH, Mpi, OPEN_MPI, is_fixture};
use crate::world::{World, exits_with, holdfast, output};

const PROGRAM: &str = "sion_mapped.c";

/// Writes the set of a fixture by so many processes with the arguments that SIONlib was given, and compares the bytes.
fn writes_the_fixture(world: &World, mpi: Mpi, fixture: &Value, processes: usize) {
    let name = fixture["name"].as_str().unwrap();
    let directory = new_directory(world, &format!("{name}-{}-{processes}", mpi.0));
    let expected = fixture["files"].as_array().unwrap();
    let (mode, block_size) = (fixture["open_mode"].as_str().unwrap(), fixture["fsblksize_requested"].to_string());
    let (file, files) = (format!("{name}.sion"), expected.len().to_string());
    let arguments = [&["write", &file, mode, &block_size, &files], &texts(&fixture["tasks"])[..]].concat();
    let printed = mpi.succeeds(processes, &mpi.compile(world, PROGRAM), &arguments, &directory);
    assert_eq!(printed.trim(), format!("files {files}"), "{name}");
    is_fixture(&directory, fixture);
}

#[test]
fn files_have_the_bytes_that_sionlib_writes_by_its_mapped_function(world: &World) {
    let mapped: Vec<Value> =
        intact().into_iter().filter(|fixture| fixture["api"] == "sion_paropen_mapped_mpi").collect();
    assert_eq!(mapped.len(), 3);
    for fixture in &mapped {
        let processes = usize::try_from(fixture["processes"].as_u64().unwrap()).unwrap();
        writes_the_fixture(world, MPICH, fixture, processes);
        // One process has all tasks; of several, some have none.
        writes_the_fixture(world, MPICH, fixture, 1);
    }
    writes_the_fixture(world, MPICH, &named("map3_n1"), 4);
}

#[test]
fn mapped_files_have_these_bytes_with_open_mpi_too(world: &World) {
    writes_the_fixture(world, OPEN_MPI, &named("map5_n2"), 2);
}

/// Reads these ranks of a fixture, or equal shares of all, by so many processes, and compares the streams.
fn reads_the_fixture(world: &World, program: &Path, fixture: &Value, processes: usize, ranks: &[String]) {
    let (name, how) = (fixture["name"].as_str().unwrap(), format!("{processes}-{}", ranks.join("-")));
    let to = new_directory(world, &format!("{name}-{how}"));
    let file = first_file(fixture);
    let mode = if processes == 2 { "rb" } else { "rb,posix" };
    let start = ["read", file.to_str().unwrap(), mode, to.to_str().unwrap()];
    let ranks: Vec<&str> = ranks.iter().map(String::as_str).collect();
    MPICH.succeeds(processes, program, &[&start[..], &ranks[..]].concat(), world.path());
    let streams = contents(&to);
    let tasks = fixture["logical_tasks"].as_array().unwrap();
    assert_eq!(streams.len(), if ranks == ["equal"] { tasks.len() } else { ranks.len() }, "{name} {how}");
    for (stream, bytes) in &streams {
        let rank: u64 = stream["t_".len()..].parse().unwrap();
        let task = tasks.iter().find(|task| task["globalrank"] == rank).unwrap();
        assert_eq!(hash(bytes), task["sha256"].as_str().unwrap(), "{name} {how} {}", task["index"]);
    }
}

#[test]
fn every_file_of_sionlib_is_read_by_another_number_of_processes(world: &World) {
    let program = MPICH.compile(world, PROGRAM);
    let mut sets = 0;
    for fixture in intact() {
        let tasks = fixture["logical_tasks"].as_array().unwrap();
        if tasks.len() > 64 {
            continue;
        }
        for processes in [1, 3] {
            reads_the_fixture(world, &program, &fixture, processes, &["equal".to_owned()]);
        }
        // Some of the tasks, from the last to the first; all processes read the last one.
        let ranks: Vec<String> = tasks.iter().rev().step_by(2).map(|task| task["globalrank"].to_string()).collect();
        reads_the_fixture(world, &program, &fixture, 2, &ranks);
        sets += 1;
    }
    assert!(sets > 25, "{sets}");
}

/// Each process has a directory of its own, as on nodes with a cache each.
#[test]
fn processes_read_their_tasks_where_they_are(world: &World) {
    let program = MPICH.compile(world, PROGRAM);
    for rank in 0..3 {
        new_directory(world, &format!("node{rank}"));
    }
    // Tasks are dealt in turn, and so are files: those of a process are in one.
    let tasks: Vec<String> = (0..6).map(|task| format!("{}:{}:100:250:50", task % 3, task / 3)).collect();
    let tasks: Vec<&str> = tasks.iter().map(String::as_str).collect();
    let write = |files: &'static str| [&["write", "node%d/x.sion", "wb", "64", files], &tasks[..]].concat();
    MPICH.succeeds(3, &program, &write("3"), world.path());
    for (rank, name) in [(0, "x.sion"), (1, "x.sion.000001"), (2, "x.sion.000002")] {
        let names: Vec<String> = contents(&world.path().join(format!("node{rank}"))).into_keys().collect();
        assert_eq!(names, [name]);
    }
    let to = new_directory(world, "streams");
    let read = |ranks: &[&'static str]| {
        let start = ["read", "node%d/x.sion", "rb", to.to_str().unwrap()];
        MPICH.run(3, &program, &[&start[..], ranks].concat(), world.path())
    };
    // Every process reads the first one too, which only process 0 has.
    let printed = output(&read(&["0", "1", "2"]));
    assert!(printed.contains("cannot open node1/x.sion: No such file or directory"), "{printed}");

    // A task in the file of another node.
    let shared = [&["write", "node%d/y.sion", "wb", "64", "1"][..], &["0:0:9:9:9", "0:1:9:9:9"]].concat();
    let printed = MPICH.refused(3, &program, &shared, world.path());
    assert_eq!(printed.matches("y.sion is not the file that the first task of this physical file created").count(), 1);
    for rank in 0..3 {
        assert!(!world.path().join(format!("node{rank}/y.sion")).exists());
    }
}

#[test]
fn wrong_mapped_calls_fail_on_all_processes_and_say_what_to_do() {
    for mpi in [MPICH, OPEN_MPI] {
        let world = World::new();
        let program = mpi.compile(&world, "sion_mapped_misuse.c");
        let directory = new_directory(&world, "files");
        let ran = mpi.run(3, &program, &[], &directory);
        let printed = output(&ran);
        assert!(ran.status.success() && ran.stdout.is_empty(), "{:?} {printed}", ran.status);
        for (message, processes) in [
            ("a pointer is NULL: give the name, and pointers to the number of files, the number of tasks", 1),
            ("to write, give the number of tasks, and pointers to the chunk sizes, files, indexes and block size", 1),
            ("an array is NULL: give one value for each task of this process", 3),
            ("nlocaltasks is negative, and there are global ranks: give their number, or NULL for an equal share", 1),
            ("nlocaltasks is negative, and an array is not NULL: how many tasks it has room for is not known", 1),
            ("the physical file of a task is not one of 0 to numFiles - 1", 1),
            ("some processes write, and others read: give all of them the same mode", 1),
            ("numFiles is not the same positive number on all processes", 2),
            ("nlocaltasks is negative on some processes only: give all of them their ranks, or none", 1),
            ("no process has task 0 of the physical file 1: number the tasks of each file from 0", 1),
            ("3 tasks have the physical file 0, and their numbers there are not 0 to 2, each once: 1 is not, or", 1),
            ("there are 3 tasks, and their global ranks are not 0 to 2, each once: 7 is not, or another task", 1),
            ("a chunk size is -1: give 0 or more", 1),
            ("cannot create /nonexistent/x.sion: No such file or directory", 1),
            ("cannot open x.sion: No such file or directory", 1),
            ("good.sion has no task with the global rank 9: it has 3 tasks", 1),
            ("rank 0 is named twice by this process: name each of its tasks once", 1),
            ("rank 2 is not open: this process did not name it when it opened the file", 1),
            ("sion_fwrite: this process has no task of the file: it can only close it", 1),
            ("sion_close: the file was opened by sion_paropen_mapped_mpi: close it with sion_parclose_mapped_mpi", 3),
            ("sion_parclose_mpi: the file was opened by sion_paropen_mapped_mpi: close it with", 3),
            ("sion_parclose_mapped_mpi: the file was not opened by sion_paropen_mapped_mpi", 3),
            ("sion_parclose_mapped_mpi: 1000 is not the handle of an open file", 3),
            ("a process of a parallel file has its own tasks only: use sion_open to see the tables of all", 3),
            ("is outside of chunk 0 of task 1, which has 64 bytes", 1),
        ] {
            assert_eq!(printed.matches(message).count(), processes, "{message}: {printed}");
        }
        // Nothing is left of what was refused.
        let left: Vec<String> = contents(&directory).into_keys().collect();
        assert_eq!(left, ["beyond.sion", "good.sion", "one.sion"]);
        exits_with(&holdfast(&["verify", "good.sion", "one.sion"], &directory), 0);
        recovered(&directory);
    }
}

/// What was written before the mistake is there.
fn recovered(directory: &Path) {
    exits_with(&holdfast(&["extract", "--recover", "beyond.sion", "--to", "recovered"], directory), 65);
    let stream = fs::read(directory.join("recovered/t_00001")).unwrap();
    assert!(stream.starts_with(&[b'x'; 64]), "{stream:?}");
}
