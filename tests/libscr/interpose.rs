//! Programs that call no function of SCR: libscr_interpose is loaded into them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::world::{World, exits_with, in_repository, needs, output, quiet, sum};

/// Two nodes are lost, one after the other.
const LOSSES: &str = "{node: 1, during: encode, checkpoint: 3}, {node: 2, during: encode, checkpoint: 5}";
const STATE_FILES: &str = "'^state_[0-9]+\\.dat$'";

/// The library, which cargo has built beside the test's executable.
fn library() -> PathBuf {
    let path = std::env::current_exe().unwrap().parent().unwrap().join("libscr_interpose.so");
    assert!(path.exists(), "{} does not exist", path.display());
    path
}

/// Compiles a program of `programs/`, without any library.
fn compile(world: &World, compiler: &str, source: &str) -> PathBuf {
    let program = world.path().join(source.replace('.', "_"));
    let mut command = Command::new(compiler);
    command
        .args(["-Wall", "-pthread"])
        .arg(in_repository("tests/libscr/programs").join(source))
        .arg("-o")
        .arg(&program);
    let compiled = command.output().unwrap();
    assert!(compiled.status.success() && compiled.stderr.is_empty(), "{source}:\n{}", output(&compiled));
    program
}

/// A job on five nodes, two of them spares, with these patterns.
struct Job<'a> {
    files: &'a str,
    faults: &'a str,
    run: &'a str,
    /// Every this many checkpoints.
    flush: u32,
    more: &'a str,
}

impl Default for Job<'_> {
    fn default() -> Self {
        Job { files: STATE_FILES, faults: "", run: "", flush: 0, more: "" }
    }
}

impl Job<'_> {
    fn run(&self, world: &World, command: &[&str]) -> Output {
        let words: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
        let Job { files, faults, run, flush, more } = self;
        let spec = format!(
            "job: unchanged\nprefix: ./prefix\nallocation: {{manager: local, nodes: 5, faults: [{faults}]}}\n\
             run: {{nodes: 3, ranks_per_node: 2, command: [{}]{run}}}\n\
             checkpoint:\n  redundancy: [{{scheme: xor, set_size: 3}}]\n  flush: {{every: {flush}}}\n  \
             interpose: {{files: {files}, library: {}}}\n{more}\n",
            words.join(", "),
            library().display()
        );
        fs::write(world.path().join("job.yaml"), spec).unwrap();
        let mut holdfast = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        quiet(holdfast.args(["run", "job.yaml"]).current_dir(world.path())).output().unwrap()
    }

    fn finishes(&self, world: &World, command: &[&str]) -> String {
        let ran = self.run(world, command);
        assert_eq!(ran.status.code(), Some(0), "{command:?}: {}", output(&ran));
        output(&ran)
    }
}

/// The files in the working directory that a program made there.
fn own_files(world: &World) -> Vec<String> {
    let names = fs::read_dir(world.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| ["state_", "part_", "index", "new_"].iter().any(|start| name.starts_with(start))).collect()
}

#[test]
fn unchanged_programs_continue_after_two_lost_nodes() {
    for how in ["stdio", "rename", "update"] {
        let world = World::new();
        let program = compile(&world, "cc", "unchanged.c");
        Job { faults: LOSSES, ..Job::default() }
            .finishes(&world, &[program.to_str().unwrap(), how, "10", &world.results()]);
        for rank in 0..6 {
            assert_eq!(world.result(rank), format!("{} 8", sum(rank, 10)), "{how}");
        }
        assert_eq!(own_files(&world), [""; 0], "{how}");
    }
}

/// The files of the ranks in each dataset on the prefix directory, sorted.
fn datasets(world: &World) -> Vec<Vec<String>> {
    let directories = fs::read_dir(world.path().join("prefix")).unwrap().map(|entry| entry.unwrap().path());
    let states = |directory: PathBuf| (0..6).map(move |rank| directory.join(format!("state_{rank}.dat")));
    let directories = directories.filter(|directory| !directory.is_symlink());
    let read =
        directories.map(|directory| states(directory).filter_map(|file| fs::read_to_string(file).ok()).collect());
    let mut datasets: Vec<Vec<String>> = read.filter(|files: &Vec<String>| !files.is_empty()).collect();
    datasets.sort_by_key(|files| files[0].split_whitespace().next().and_then(|step| step.parse::<u32>().ok()));
    datasets
}

#[test]
fn files_that_are_written_in_unusual_ways_are_complete_in_the_checkpoint(world: &World) {
    let program = compile(world, "cc", "unchanged_ways.c");
    let job = Job { files: "'state_[0-9]+\\.dat$'", flush: 1, ..Job::default() };
    let printed = job.finishes(world, &[program.to_str().unwrap(), "18"]);
    let text = |step: u32, rank: u32| format!("{step:<31} {rank:<31}\n");
    // In step 17 another process writes to the file when it is renamed.
    let steps = (1..=18).filter(|step| *step != 17);
    let expected: Vec<Vec<String>> = steps.map(|step| (0..6).map(|rank| text(step, rank)).collect()).collect();
    assert_eq!(datasets(world), expected, "{printed}");
    assert_eq!(printed.matches("was renamed while it was open by another process").count(), 6, "{printed}");
    assert_eq!(own_files(world), [""; 0]);
}

#[test]
fn a_fortran_program_continues_after_two_lost_nodes(world: &World) {
    needs("gfortran");
    let program = compile(world, "gfortran", "unchanged.f90");
    Job { faults: LOSSES, ..Job::default() }.finishes(world, &[program.to_str().unwrap(), &world.results()]);
    world.assert_results(|rank| format!("{} 8", sum(rank, 10)));
    assert_eq!(own_files(world), [""; 0]);
}

#[test]
fn an_mpi_program_continues_although_one_rank_looks_for_its_file_before_the_others(world: &World) {
    needs("mpicc.mpich");
    let program = compile(world, "mpicc.mpich", "unchanged_mpi.c");
    let run = ", launcher: mpirun, launcher_program: mpirun.mpich";
    let command = [program.to_str().unwrap(), &world.results()];
    Job { faults: LOSSES, run, ..Job::default() }.finishes(world, &command);
    world.assert_results(|rank| format!("{} 8 15", sum(rank, 10)));
}

#[test]
fn a_checkpoint_needs_a_file_for_each_expression_of_the_rank(world: &World) {
    let program = compile(world, "cc", "unchanged.c");
    let files = "'0-N:^part_[0-9]+,0-0:^index.txt$'";
    let command = [program.to_str().unwrap(), "two", "10", &world.results()];
    Job { files, faults: LOSSES, ..Job::default() }.finishes(world, &command);
    world.assert_results(|rank| format!("{} 8", sum(rank, 10)));
    assert_eq!(own_files(world), [""; 0]);
}

#[test]
fn threads_write_a_checkpoint_together_while_children_write_files_of_the_same_names(world: &World) {
    let program = compile(world, "cc", "unchanged_threads.c");
    let files = "'^part_[0-9]+_0$,^part_[0-9]+_1$,^part_[0-9]+_2$,^part_[0-9]+_3$'";
    let command = [program.to_str().unwrap(), "8", &world.results()];
    // Files that the children of the first generation have left do not exist for a program that restarts.
    Job { files, faults: LOSSES, ..Job::default() }.finishes(world, &command);
    for rank in 0..6 {
        // The sum of 1 to 8 for each thread, times its number.
        assert_eq!(world.result(rank), format!("{} 4", 36 * (1 + 2 + 3 + 4)));
        for part in 0..4 {
            let own = fs::read_to_string(world.path().join(format!("part_{rank}_{part}")));
            assert_eq!(own.ok().as_deref(), (part < 2).then_some("child"), "rank {rank}, part {part}");
        }
    }
}

#[test]
fn without_a_checkpoint_a_program_begins_with_the_files_of_the_working_directory(world: &World) {
    let program = compile(world, "cc", "unchanged.c");
    for rank in 0..6_u32 {
        let numbers = [6, u64::from(sum(rank, 6))].map(u64::to_ne_bytes).concat();
        fs::write(world.path().join(format!("part_{rank}.bin")), numbers).unwrap();
    }
    fs::write(world.path().join("index.txt"), "6\n").unwrap();
    let command = [program.to_str().unwrap(), "two", "8", &world.results()];
    Job { files: "'part_[0-9]+,0-0:index'", ..Job::default() }.finishes(world, &command);
    world.assert_results(|rank| format!("{} 6", sum(rank, 8)));
    assert_eq!(fs::read_to_string(world.path().join("index.txt")).unwrap(), "6\n", "not written");
}

#[test]
fn a_write_error_drops_the_checkpoint_on_all_ranks(world: &World) {
    let program = compile(world, "cc", "unchanged.c");
    let faults = "{node: 1, during: encode, checkpoint: 3}";
    let command = [program.to_str().unwrap(), "limit", "6", &world.results()];
    let printed = Job { faults, ..Job::default() }.finishes(world, &command);
    // Rank 1 itself cannot print: the limit is that of its standard error, too.
    assert!(printed.contains("libscr_interpose: checkpoint 2 was dropped"), "{printed}");
    for rank in 0..6 {
        // Step 4, checkpoint 2, was not written.
        assert_eq!(world.result(rank), format!("{} 2", sum(rank, 6)));
    }
}

#[test]
fn a_rank_that_fails_has_not_finished_the_job(world: &World) {
    let program = compile(world, "cc", "unchanged.c");
    let command = [program.to_str().unwrap(), "fail", "4", &world.results()];
    Job::default().finishes(world, &command);
    for rank in [1, 5] {
        assert_eq!(world.result(rank), format!("{} 4", sum(rank, 4)), "launched again");
    }
    // The second generation had nothing left to write.
    assert_eq!(world.indexed().len(), 1, "the newest checkpoint was drained");
    let again = output(&Job::default().run(world, &command));
    assert!(again.contains("the job was finished in an earlier run"), "{again}");
}

/// A script that is the command of each rank. `$STATE` is the rank's file.
fn wrapped(script: &str, program: &Path, how: &str, steps: u32, world: &World) -> [String; 3] {
    let program = format!("{} {how} {steps} {}", program.display(), world.results());
    let script = script.replace("PROGRAM", &program).replace("STATE", "state_$HOLDFAST_RANK.dat");
    ["sh".to_owned(), "-c".to_owned(), script]
}

#[test]
fn tools_that_look_at_the_files_before_the_program_starts_are_not_the_rank() {
    // They fail while there is no checkpoint, and succeed after a restart; `rm` always succeeds.
    for tools in ["cat STATE > before_$HOLDFAST_RANK 2>&1", "ls -l STATE; rm -f STATE", "cp STATE copy_$HOLDFAST_RANK"]
    {
        let world = World::new();
        let program = compile(&world, "cc", "unchanged.c");
        let command = wrapped(&format!("{tools}; PROGRAM"), &program, "stdio", 10, &world);
        let faults = "{node: 1, during: encode, checkpoint: 3}";
        Job { faults, ..Job::default() }.finishes(&world, &command.each_ref().map(String::as_str));
        for rank in 0..6 {
            assert_eq!(world.result(rank), format!("{} 4", sum(rank, 10)), "{tools}");
        }
        assert_eq!(own_files(&world), [""; 0], "{tools}");
    }
}

#[test]
fn a_script_whose_program_was_killed_when_it_had_only_read_has_not_finished_the_job(world: &World) {
    let program = compile(world, "cc", "unchanged.c");
    let command = wrapped("PROGRAM; true", &program, "killed", 4, world);
    Job::default().finishes(world, &command.each_ref().map(String::as_str));
    world.assert_results(|rank| format!("{} 0", sum(rank, 4)));
}

#[test]
fn a_tool_that_is_started_when_the_run_is_finished_takes_no_part_and_says_so(world: &World) {
    let program = compile(world, "cc", "unchanged.c");
    let command = wrapped("PROGRAM && { cat STATE; true; }", &program, "stdio", 4, world);
    let printed = Job::default().finishes(world, &command.each_ref().map(String::as_str));
    assert_eq!(printed.matches("takes no part: the application has called finalize").count(), 6, "{printed}");
}

#[test]
fn a_second_program_of_a_rank_that_failed_ends_with_a_message(world: &World) {
    let program = compile(world, "cc", "unchanged.c");
    // Rank 1 fails after its last step. The script that starts it again ends with its exit code.
    let command = wrapped("PROGRAM || PROGRAM", &program, "fail", 4, world);
    let printed = Job::default().finishes(world, &command.each_ref().map(String::as_str));
    assert!(printed.contains("another process cannot continue its run"), "{printed}");
    assert_eq!(world.result(1), format!("{} 4", sum(1, 4)), "launched again");
}

#[test]
fn a_halt_ends_the_program_when_its_checkpoint_is_complete(world: &World) {
    let program = compile(world, "cc", "unchanged.c");
    let command = [program.to_str().unwrap(), "update", "10", &world.results()];
    exits_with(&Job { more: "halt: {checkpoints_left: 2}", ..Job::default() }.run(world, &command), 75);
    let stale = world.path().join("state_0.dat");
    fs::write(&stale, "an old file").unwrap();
    Job::default().finishes(world, &command);
    for rank in 0..6 {
        assert_eq!(world.result(rank), format!("{} 4", sum(rank, 10)), "from the prefix directory");
    }
    assert_eq!(fs::read_to_string(stale).unwrap(), "an old file");
}

#[test]
fn programs_that_end_with_0_after_the_sigterm_of_a_halt_have_not_finished_the_job(world: &World) {
    let program = compile(world, "cc", "ends_on_sigterm.c");
    let (job, command) = (Job { more: "halt: {grace: 1s}", ..Job::default() }, [program.to_str().unwrap()]);
    let halted = std::thread::scope(|scope| {
        let run = scope.spawn(|| job.run(world, &command));
        let events = || fs::read_to_string(world.path().join("prefix/.holdfast/events.jsonl")).unwrap_or_default();
        // Before that the checkpoint is under way, and the halt takes effect at its end.
        while !events().contains("checkpoint_protected") && !run.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut halt = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        let halt = quiet(halt.args(["halt", "set", "--now", "job.yaml"]).current_dir(world.path())).output().unwrap();
        assert!(halt.status.success(), "{}", output(&halt));
        run.join().unwrap()
    });
    assert_eq!(halted.status.code(), Some(75), "{}", output(&halted));
    assert!(output(&halted).contains("SIGTERM to the ranks"), "{}", output(&halted));
    fs::write(world.path().join("done"), "").unwrap();
    let printed = job.finishes(world, &command);
    assert!(printed.contains("started from checkpoint 1"), "{printed}");
}

#[test]
fn a_program_whose_files_do_not_match_is_not_changed(world: &World) {
    let program = compile(world, "cc", "unchanged.c");
    let command = [program.to_str().unwrap(), "rename", "10", &world.results()];
    Job { files: "'^other_[0-9]'", ..Job::default() }.finishes(world, &command);
    for rank in [0, 5] {
        assert_eq!(world.result(rank), format!("{} 0", sum(rank, 10)));
        assert!(world.path().join(format!("state_{rank}.dat")).exists());
    }
    assert!(!world.path().join("prefix/.scr").exists(), "there is no index");
}

#[test]
fn scripts_of_scr_name_the_files_by_its_parameter(world: &World) {
    let program = compile(world, "cc", "unchanged.c");
    let directory = with_library(world);
    let srun = |directory: &Path| {
        let mut srun = Command::new(directory.join("bin/holdfast"));
        srun.args(["compat", "scr_srun", "-n2", program.to_str().unwrap(), "stdio", "4", &world.results()]);
        quiet(srun.current_dir(world.path())).env("SCR_CHECKPOINT_PATTERN", "0-N:state_[0-9]+.dat$");
        srun.env("SCR_PREFIX", world.path().join("prefix")).output().unwrap()
    };
    let ran = srun(&directory);
    assert_eq!(ran.status.code(), Some(0), "{}", output(&ran));
    assert_eq!(world.indexed().len(), 1, "{}", output(&ran));
    assert_eq!(own_files(world), [""; 0]);
    fs::remove_dir_all(directory.join("lib")).unwrap();
    let ran = srun(&directory);
    assert_eq!(ran.status.code(), Some(1), "{}", output(&ran));
    assert!(output(&ran).contains("needs libscr_interpose, which is not in "), "{}", output(&ran));
}

/// A directory with `bin/holdfast` and `lib/libscr_interpose.so`, as they are installed.
fn with_library(world: &World) -> PathBuf {
    let directory = world.path().join("installed");
    for (file, place) in [(Path::new(env!("CARGO_BIN_EXE_holdfast")), "bin"), (&library(), "lib")] {
        let place = directory.join(place);
        fs::create_dir_all(&place).unwrap();
        let to = place.join(file.file_name().unwrap());
        fs::hard_link(file, &to).or_else(|_| fs::copy(file, &to).map(drop)).unwrap();
    }
    directory
}

/// The first block of this language in a page.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let start = format!("```{language}\n");
    page.split(start.as_str()).nth(1).and_then(|rest| rest.split("```").next()).unwrap()
}

#[test]
fn the_program_of_the_documentation_continues_after_two_lost_nodes(world: &World) {
    let page = include_str!("../../docs/interpose.md");
    fs::write(world.path().join("steps.c"), block(page, "c")).unwrap();
    fs::write(world.path().join("job.yaml"), block(page, "yaml")).unwrap();
    let installed = with_library(world).join("bin");
    let path = format!("{}:{}", installed.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-ec", block(page, "sh")]).env("PATH", path).current_dir(world.path());
    let printed = exits_with(&quiet(&mut shell).output().unwrap(), 0);
    assert_eq!(printed.matches("sum 55").count(), 4, "{printed}");
    assert_eq!(printed.matches("continues after step 8").count(), 4, "{printed}");
    assert_eq!(own_files(world), [""; 0]);
}

#[test]
fn a_setuid_program_runs_without_the_library() {
    const OTHER_USER: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        holdfast_testkit::harness::ignore("a program of another user needs root");
    }
    let world = World::new();
    let program = world.path().join("cat");
    fs::copy("/bin/cat", &program).unwrap();
    let maps = |mode| {
        std::os::unix::fs::chown(&program, Some(OTHER_USER), None).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        let _ = fs::remove_dir_all(world.path().join("prefix"));
        Job::default().finishes(&world, &[program.to_str().unwrap(), "/proc/self/maps"])
    };
    assert!(maps(0o755).contains("libscr_interpose.so"));
    // The dynamic linker ignores LD_PRELOAD there: the library never runs with the rights of another user.
    let printed = maps(0o4755);
    assert!(printed.contains("libc") && !printed.contains("libscr_interpose.so"), "{printed}");
    assert!(printed.contains("newest checkpoint: none"), "{printed}");
}
