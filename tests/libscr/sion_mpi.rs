//! Programs for SIONlib's parallel functions for MPI, over the files that SIONlib wrote in parallel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::sion::{assert_continued, contents, first_file, fixture_path, hash, intact, named, new_directory, texts};
use crate::world::{Link, SCR, SION, World, exits_with, holdfast, in_repository, needs, output, program_source, quiet};

/// An MPI, by the end of the names of its programs.
#[derive(Clone, Copy)]
pub struct Mpi(pub &'static str);

pub const MPICH: Mpi = Mpi("mpich");
pub const OPEN_MPI: Mpi = Mpi("openmpi");

impl Mpi {
    /// Compiles a program of `programs/`, as a program for SIONlib.
    pub fn compile(self, world: &World, name: &str) -> PathBuf {
        let compiler = format!("mpicc.{}", self.0);
        needs(&compiler);
        world.compile_for(SION, &[&compiler], &[&program_source(name)], Link::Shared)
    }

    /// Runs it with so many ranks. Ranks that wait for each other for ever are ended.
    pub fn run(self, ranks: usize, program: &Path, arguments: &[&str], directory: &Path) -> Output {
        let mut command = Command::new("timeout");
        command.arg("120").arg(format!("mpirun.{}", self.0));
        if self.0 == OPEN_MPI.0 {
            command.arg("--oversubscribe");
        }
        command.args(["-n", &ranks.to_string()]).arg(program).args(arguments).current_dir(directory);
        // The page says that it has no effect.
        quiet(command.env("SION_COLLSIZE", "2")).output().unwrap()
    }

    /// What rank 0 prints of a run that must succeed, and print no error.
    #[track_caller]
    pub fn succeeds(self, ranks: usize, program: &Path, arguments: &[&str], directory: &Path) -> String {
        let ran = self.run(ranks, program, arguments, directory);
        let is_clean = !output(&ran).contains("SION:");
        assert!(ran.status.success() && is_clean, "{arguments:?}: {:?}: {}", ran.status.code(), output(&ran));
        String::from_utf8(ran.stdout).unwrap()
    }

    /// What a run prints whose processes cannot open the file.
    #[track_caller]
    pub fn refused(self, ranks: usize, program: &Path, arguments: &[&str], directory: &Path) -> String {
        let ran = self.run(ranks, program, arguments, directory);
        assert!(!ran.status.success() && ran.status.code() != Some(124), "{arguments:?}: {}", output(&ran));
        output(&ran)
    }
}

/// The fixtures of SIONlib's function for MPI that have a stream for each task.
fn written_by_mpi() -> Vec<Value> {
    let is_ours = |fixture: &Value| {
        let mode = fixture["open_mode"].as_str().unwrap_or_default();
        fixture["api"] == "sion_paropen_mpi" && !mode.contains("merge") && !mode.contains("buddy")
    };
    intact().into_iter().filter(is_ours).collect()
}

/// Writes the set of a fixture with the arguments that SIONlib was given, and compares the bytes.
fn writes_the_fixture(world: &World, mpi: Mpi, fixture: &Value, more_mode: &str) {
    let name = fixture["name"].as_str().unwrap();
    let file = format!("{name}.sion");
    let mode = format!("{}{more_mode}", fixture["open_mode"].as_str().unwrap());
    let ranks = usize::try_from(fixture["ranks"].as_u64().unwrap()).unwrap();
    let split = fixture["split"].as_str().unwrap();
    let files = match split.strip_prefix("numFiles=") {
        Some(files) => files.to_owned(),
        None => split.replace("local communicator rank mod ", "mod"),
    };
    let directory = new_directory(world, &format!("{name}{more_mode}-{}", mpi.0));
    let block_size = fixture["fsblksize_requested"].to_string();
    let arguments = [&["write", &file, &mode, &block_size, &files], &texts(&fixture["tasks"])[..]].concat();
    let printed = mpi.succeeds(ranks, &mpi.compile(world, "sion_mpi.c"), &arguments, &directory);
    let expected = fixture["files"].as_array().unwrap();
    assert_eq!(printed.trim(), format!("files {} block_size {block_size}", expected.len()), "{name}");
    is_fixture(&directory, fixture);
}

/// Asserts that a directory contains the files of a fixture, and nothing else.
#[track_caller]
pub fn is_fixture(directory: &Path, fixture: &Value) {
    let (name, expected) = (&fixture["name"], fixture["files"].as_array().unwrap());
    let written = contents(directory);
    assert_eq!(written.len(), expected.len(), "{name}");
    for file in expected {
        let path = fixture_path(file);
        let bytes = &written[path.file_name().unwrap().to_str().unwrap()];
        assert!(*bytes == fs::read(&path).unwrap(), "{name}, {}: {} bytes", path.display(), bytes.len());
    }
}

#[test]
fn files_have_the_bytes_that_sionlib_writes_in_parallel(world: &World) {
    let fixtures = written_by_mpi();
    assert_eq!(fixtures.len(), 7);
    for fixture in &fixtures {
        writes_the_fixture(world, MPICH, fixture, "");
    }
    writes_the_fixture(world, MPICH, &named("par8_n2"), ",posix");
}

#[test]
fn files_have_these_bytes_with_open_mpi_too(world: &World) {
    for name in ["par6_n2_mod", "coll8"] {
        writes_the_fixture(world, OPEN_MPI, &named(name), "");
    }
}

#[test]
fn every_file_of_sionlib_is_read_by_as_many_processes_as_it_has_tasks(world: &World) {
    let program = MPICH.compile(world, "sion_mpi.c");
    let mut sets = 0;
    for fixture in intact() {
        let name = fixture["name"].as_str().unwrap();
        let tasks = fixture["logical_tasks"].as_array().unwrap();
        // More processes than that would take the machine for long.
        if tasks.len() > 8 {
            continue;
        }
        let to = new_directory(world, name);
        let mode = ["rb", "rb,posix", "rb,collective"][sets % 3];
        let file = first_file(&fixture);
        let arguments = ["read", file.to_str().unwrap(), mode, to.to_str().unwrap()];
        let printed = MPICH.succeeds(tasks.len(), &program, &arguments, world.path());
        let files = fixture["files"].as_array().unwrap();
        // The copies of a buddy set are sets of their own.
        let files = files.iter().filter(|file| !file["path"].as_str().unwrap().contains("BUDDY")).count();
        assert!(printed.starts_with(&format!("files {files} block_size ")), "{name}: {printed}");
        let streams = contents(&to);
        assert_eq!(streams.len(), tasks.len(), "{name}");
        for (task, stream) in tasks.iter().zip(streams.values()) {
            assert_eq!(hash(stream), task["sha256"].as_str().unwrap(), "{name} {mode} {}", task["index"]);
        }
        sets += 1;
    }
    assert_eq!(sets, 30);
}

#[test]
fn another_number_of_processes_or_an_incomplete_set_is_refused_on_all_of_them(world: &World) {
    let program = MPICH.compile(world, "sion_mpi.c");
    let path = |name: &str| first_file(&named(name)).to_str().unwrap().to_owned();
    for (name, ranks) in [("par6_n1", 4), ("par6_n1", 7), ("par8_n2", 4), ("ser1_one", 2)] {
        let printed = MPICH.refused(ranks, &program, &["read", &path(name), "rb", "."], world.path());
        let tasks = named(name)["logical_tasks"].as_array().unwrap().len();
        let expected = format!("has {tasks} tasks, and the communicator {ranks} processes: start as many as wrote it");
        assert!(printed.contains(&expected), "{name} {ranks}: {printed}");
    }
    let part = format!("{}.000001", path("par8_n2"));
    let printed = MPICH.refused(4, &program, &["read", &part, "rb", "."], world.path());
    assert!(printed.contains("is one file of a set: open the first file of the set"), "{printed}");
    fs::copy(path("par8_n2"), world.path().join("alone.sion")).unwrap();
    let printed = MPICH.refused(8, &program, &["read", "alone.sion", "rb", "."], world.path());
    assert!(printed.contains("cannot open alone.sion.000001: No such file"), "{printed}");
    // Another file of a set with as many tasks: the ranks there are others.
    fs::copy(path("par6_n2_mod"), world.path().join("mixed.sion")).unwrap();
    fs::copy(format!("{}.000001", path("kv6_n2")), world.path().join("mixed.sion.000001")).unwrap();
    let printed = MPICH.refused(6, &program, &["read", "mixed.sion", "rb", "."], world.path());
    assert!(printed.contains("its mapping puts rank 1 where rank 3 is stored"), "{printed}");
}

/// Each rank has a directory of its own, as on nodes with a cache each.
#[test]
fn processes_of_a_physical_file_need_one_file_system(world: &World) {
    let program = MPICH.compile(world, "sion_mpi.c");
    for rank in 0..4 {
        new_directory(world, &format!("node{rank}"));
    }
    let write = |files| ["write", "node%d/x.sion", "wb", "64", files, "100:250:50"];
    let to = new_directory(world, "streams");
    let read = ["read", "node%d/x.sion", "rb", to.to_str().unwrap()];
    let names = |rank: u32| contents(&world.path().join(format!("node{rank}"))).into_keys().collect::<Vec<_>>();

    let expected = "x.sion is not the file that the first task of this physical file created: its tasks need one file \
                    system; give each node a physical file of its own, by numFiles -1 and a communicator with its \
                    processes, or MPI_COMM_SELF; or by the mapping";
    for attempt in ["nothing there", "a file of an earlier run there"] {
        let printed = MPICH.refused(4, &program, &write("1"), world.path());
        assert_eq!(printed.matches(expected).count(), 3, "{attempt}: {printed}");
        assert!(names(0).is_empty(), "{attempt}: {:?}", names(0));
        fs::copy(first_file(&named("par6_n1")), world.path().join("node1/x.sion")).unwrap();
    }
    fs::remove_file(world.path().join("node1/x.sion")).unwrap();

    assert_eq!(MPICH.succeeds(4, &program, &write("own"), world.path()).trim(), "files 4 block_size 64");
    for (rank, name) in [(0, "x.sion"), (1, "x.sion.000001"), (3, "x.sion.000003")] {
        assert_eq!(names(rank), [name]);
    }
    MPICH.succeeds(4, &program, &read, world.path());
    let streams = contents(&to);
    assert!(streams["t_00003"].len() == 250 && streams["t_00000"] != streams["t_00003"]);

    // One physical file, of which each process sees another one.
    let mut file = fs::read(first_file(&named("kv4"))).unwrap();
    for rank in 0..4 {
        fs::write(world.path().join(format!("node{rank}/x.sion")), &file).unwrap();
        file.push(0);
    }
    let printed = MPICH.refused(4, &program, &read, world.path());
    for rank in 1..4 {
        let length = file.len() - 4;
        let expected = format!("node{rank}/x.sion has {} bytes, and that of the first task", length + rank);
        assert!(printed.contains(&expected), "{expected}: {printed}");
    }
}

#[test]
fn wrong_calls_fail_on_all_processes_and_say_what_to_do() {
    for mpi in [MPICH, OPEN_MPI] {
        let world = World::new();
        let program = mpi.compile(&world, "sion_mpi_misuse.c");
        let directory = new_directory(&world, "files");
        let ran = mpi.run(4, &program, &[], &directory);
        let printed = output(&ran);
        assert!(ran.status.success() && ran.stdout.is_empty(), "{:?} {printed}", ran.status);
        for (message, processes) in [
            ("\"buddy\" in the mode cannot be carried out: leave it out; the redundancy of the checkpoint", 4),
            ("\"cmerge\" in the mode cannot be carried out: leave it out; each task", 1),
            ("some processes write, and others read: give all of them the same mode", 1),
            ("the processes differ in numFiles, or in whether they have a local communicator", 2),
            ("there are more files than processes: give numFiles up to their number", 1),
            ("numFiles is -1, and there is no local communicator: give one, or the number of files", 1),
            ("a chunk size is -1: give 0 or more", 1),
            ("a pointer is NULL: give the name, and pointers to the number of files", 1),
            ("cannot create /nonexistent/x.sion: No such file or directory", 1),
            ("cannot open x.sion: No such file or directory", 1),
            ("sion_parclose_mpi: 1000 is not the handle of an open file", 4),
            ("the file was opened by sion_paropen_mpi: close it with sion_parclose_mpi", 4),
            ("this process has task 2 of its physical file", 2),
            ("a process of a parallel file has its own tasks only: use sion_open to see the tables of all", 4),
            ("data were written to the file already: call sion_parreinit_mpi before the first of them", 4),
            ("sion_parreinit_mpi: the file was opened to read: open it with \"wb\" to write", 4),
            ("is outside of chunk 0 of task 1, which has 64 bytes", 1),
            ("beyond.sion was never closed", 1),
        ] {
            assert_eq!(printed.matches(message).count(), processes, "{message}: {printed}");
        }
        // Nothing is left of what was refused.
        let files = contents(&directory);
        assert!(!files.contains_key("x.sion"), "{:?}", files.keys());
        for part in ["", ".000001"] {
            let (first, direct) = (&files[&format!("first.sion{part}")], &files[&format!("direct.sion{part}")]);
            // The names that are stored are equal, too.
            assert!(first == direct, "{part}");
        }
        let ended = holdfast(&["verify", "none.sion", "calls.sion", "old.sion", "direct.sion"], &directory);
        exits_with(&ended, 0);
        exits_with(&holdfast(&["extract", "--recover", "beyond.sion", "--to", "recovered"], &directory), 65);
        let recovered = contents(&directory.join("recovered"));
        assert!(recovered["t_00001"].starts_with(&[b'x'; 64]), "{:?}", recovered["t_00001"]);
    }
}

/// Two of six ranks lose their node, and the physical file of that node is rebuilt on another one.
fn continues_from_the_rebuilt_file(mpi: Mpi) {
    let world = World::new();
    let source = world.program_of_page("docs/libsion_mpi.md", "c", "heat.c");
    let (compiler, headers) = (format!("mpicc.{}", mpi.0), format!("-I{}", SION.include("").display()));
    needs(&compiler);
    let program = world.compile_for(
        SCR,
        // The linker may drop libraries that are named before the program.
        &[&compiler, &headers, "-Wl,--no-as-needed"],
        &[&SION.shared(), &source],
        Link::Shared,
    );
    let ran = world.run(&[program.to_str().unwrap()], "", "{node: 1, during: encode, checkpoint: 40}");
    let printed = exits_with(&ran, 0);
    assert!(printed.contains("node1 down"), "{printed}");
    for rank in 0..6 {
        assert_continued(&printed, rank);
    }
    // 5050 steps in sum, 1000 cells, and the ranks 1 to 6 in sum.
    assert!(printed.contains(&format!("6 ranks: {}", 5050_u64 * 1000 * 21)), "{printed}");
    let set = world.path().join("prefix/scr.current");
    let names: Vec<String> = contents(&set).into_keys().filter(|name| name.starts_with("heat.sion")).collect();
    let files = names.iter().filter(|name| !name.ends_with(".scr")).count();
    assert_eq!(files, 3, "a file for each node: {names:?}");
    let file = set.join("heat.sion");
    let inspected = exits_with(&holdfast(&["inspect", file.to_str().unwrap()], world.path()), 0);
    assert!(inspected.contains("SION") && inspected.contains('6'), "{inspected}");
    exits_with(&holdfast(&["verify", file.to_str().unwrap()], world.path()), 0);
}

#[test]
fn program_of_the_page_continues_from_the_rebuilt_file_of_a_node() {
    continues_from_the_rebuilt_file(MPICH);
}

#[test]
fn program_of_the_page_continues_from_the_rebuilt_file_with_open_mpi() {
    continues_from_the_rebuilt_file(OPEN_MPI);
}

#[test]
fn headers_for_mpi_are_accepted_by_strict_compilers() {
    for mpi in [MPICH.0, OPEN_MPI.0] {
        for (compiler, language, standard) in [("mpicc", "c", "c99"), ("mpicc", "c", "c11"), ("mpicxx", "c++", "c++17")]
        {
            let compiler = format!("{compiler}.{mpi}");
            needs(&compiler);
            let mut command = Command::new(compiler);
            // Open MPI's own C++ functions cast between types of functions.
            command.args(["-fsyntax-only", "-Wall", "-Wextra", "-Wno-long-long", "-Wno-cast-function-type", "-Werror"]);
            command.args(["-pedantic-errors", "-DSION_MPI", "-x", language, &format!("-std={standard}")]);
            let checked = command.arg(SION.include("sion.h")).output().unwrap();
            assert!(checked.status.success(), "{mpi} {standard}: {}", output(&checked));
        }
    }
}

#[test]
fn functions_for_mpi_that_are_missing_are_refused_by_their_names(world: &World) {
    needs("mpicc.mpich");
    let page = fs::read_to_string(in_repository("docs/libsion_mpi.md")).unwrap();
    let named = page.split("Not here, and refused by").nth(1).unwrap().split("\n\n").next().unwrap();
    let named: Vec<&str> = named.split('`').filter(|word| word.starts_with("sion_")).collect();
    assert!(named.len() >= 6, "{named:?}");
    let source = world.path().join("missing.c");
    let call = |name: &&str| format!("int {name}(void); int call_{name}(void) {{ return {name}(); }}\n");
    let calls: String = named.iter().map(call).collect();
    let text = format!("#include <mpi.h>\n#include <sion.h>\n{calls}int main(void) {{ return 0; }}\n");
    fs::write(&source, text).unwrap();
    let missing = world.path().join("missing");
    let compiled = world.compiling(SION, &["mpicc.mpich"], &[&source], Link::Shared, &missing);
    for name in &named {
        assert!(output(&compiled).contains(&format!("`{name}'")), "{name}: {}", output(&compiled));
    }
    assert!(!compiled.status.success());
}
