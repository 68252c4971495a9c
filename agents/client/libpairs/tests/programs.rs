//! Programs in C and Python as copies of a pair, with a test in place of the agent: it starts, wakes, kills and stops
//! them through the registry.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::fs;
use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_shm::{Layout, Registry, Side, SlotState};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(120);
const PAIR: u32 = 1;

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path)
}

/// The libraries lie beside the test's own executable.
fn library_directory() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn header_directory() -> PathBuf {
    in_repository("agents/client/libpairs/include")
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < LONG, "{what} was not seen");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A pair, and what an agent does for it.
struct Agent {
    directory: TempDir,
    registry: Registry,
    incarnations: RefCell<[u64; 2]>,
}

struct Copy {
    side: Side,
    incarnation: u64,
    process: Child,
}

impl Agent {
    fn new() -> Agent {
        let directory = TempDir::new().unwrap();
        let layout = Layout { pairs: 2, checkpoint_bytes: vec![64, 400_000], ring: 10 };
        let registry = Registry::create(&directory.path().join("registry"), &layout, "job").unwrap();
        Agent { directory, registry, incarnations: RefCell::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Compiles a program for the library.
    fn compile(&self, source: &Path, is_static: bool) -> PathBuf {
        let program = self.path(if is_static { "static" } else { "program" });
        let mut command = Command::new("cc");
        command.args(["-std=gnu99", "-Wall", "-Werror", "-O1", "-o"]).arg(&program).arg(source);
        command.arg("-I").arg(header_directory());
        let libraries = library_directory();
        if is_static {
            command.arg(libraries.join("libholdfast_pairs.a")).args(["-lpthread", "-ldl", "-lm"]);
        } else {
            command.arg(libraries.join("libholdfast_pairs.so"));
            command.arg(format!("-Wl,-rpath,{}", libraries.display()));
        }
        let compiled = command.output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        program
    }

    /// Starts a copy; it has not registered yet.
    fn spawn(&self, side: Side, command: &[String]) -> Copy {
        let incarnation = {
            let mut incarnations = self.incarnations.borrow_mut();
            incarnations[side.index()] += 1;
            incarnations[side.index()]
        };
        self.registry.expect(PAIR, side, incarnation);
        let (program, arguments) = command.split_first().unwrap();
        let process = Command::new(program)
            .args(arguments)
            .env("HOLDFAST_PAIRS", self.path("registry"))
            .env("HOLDFAST_PAIR", "dnn1")
            .env("HOLDFAST_PAIR_NUMBER", PAIR.to_string())
            .env("HOLDFAST_PAIR_INDEX", PAIR.to_string())
            .env("HOLDFAST_PAIR_SIDE", side.to_string())
            .env("HOLDFAST_PAIR_INCARNATION", incarnation.to_string())
            .env("PYTHONPATH", in_repository("agents/client/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("HOLDFAST_LIBPAIRS", library_directory().join("libholdfast_pairs.so"))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Copy { side, incarnation, process: process.unwrap() }
    }

    /// Starts a copy, and waits until it sleeps.
    fn start(&self, side: Side, command: &[String]) -> Copy {
        let mut copy = self.spawn(side, command);
        until("registration", || {
            if let Some(status) = copy.process.try_wait().unwrap() {
                panic!("{side} ended: {status}: {:?}", copy.output());
            }
            (self.registry.copy(PAIR, side).state == SlotState::Asleep).then_some(())
        });
        assert_eq!(self.registry.copy(PAIR, side).pid, copy.process.id());
        copy
    }

    fn wake(&self, copy: &Copy) {
        self.registry.wake(PAIR, copy.side, copy.incarnation);
    }

    /// The checkpoint number, the value and the layer.
    fn newest(&self) -> Option<(u64, i64, i64)> {
        let mut bytes = Vec::new();
        let newest = self.registry.read_newest(PAIR, &mut bytes).unwrap()?;
        Some((newest.sequence, i64::from_ne_bytes(bytes.try_into().unwrap()), newest.tag))
    }

    fn wait_for_checkpoint(&self, sequence: u64) {
        until("checkpoint", || (self.registry.checkpoint_counter(PAIR) >= sequence).then_some(()));
    }
}

impl Copy {
    fn end(&mut self) -> ExitStatus {
        until("end of the process", || self.process.try_wait().unwrap())
    }

    /// What it has printed, after its end.
    fn output(&mut self) -> (String, String) {
        let (mut printed, mut errors) = (String::new(), String::new());
        self.process.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        self.process.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (printed, errors)
    }

    fn printed(&mut self) -> String {
        let (printed, errors) = self.output();
        assert_eq!(errors, "", "{printed}");
        printed.replace('\n', " ").trim_end().to_owned()
    }

    fn killed(mut self) -> String {
        self.process.kill().unwrap();
        assert_eq!(self.end().signal(), Some(9));
        self.printed()
    }

    fn finished(mut self) -> String {
        let status = self.end();
        assert_eq!(status.code(), Some(0), "{status}: {:?}", self.output());
        self.printed()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn python3() -> Option<&'static str> {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        eprintln!("not tested: python3 is not installed");
    }
    found.then_some("python3")
}

/// x: 1, 3, 6, then the main is killed: 7, 9, 12, then the main takes over again: 13, 15, 18. Each copy waits long
/// after a round.
fn demonstration(agent: &Agent, command: impl Fn(Side) -> Vec<String>) {
    let main = agent.start(Side::Main, &command(Side::Main));
    let replica = agent.start(Side::Replica, &command(Side::Replica));
    agent.wake(&main);
    agent.wait_for_checkpoint(3);
    assert!(agent.registry.beats(PAIR, Side::Main) > 0);
    assert_eq!(agent.registry.beats(PAIR, Side::Replica), 0);
    assert_eq!(main.killed(), "1 3 6");
    agent.wake(&replica);
    agent.wait_for_checkpoint(6);
    // Scenario 3: the main is started again.
    let main = agent.start(Side::Main, &command(Side::Main));
    agent.registry.request_stop(PAIR, Side::Replica, replica.incarnation);
    assert_eq!(replica.killed(), "7 9 12");
    assert_eq!(agent.newest(), Some((6, 12, 3)));
    agent.wake(&main);
    assert_eq!(main.finished(), "13 15 18");
    assert_eq!(agent.registry.copy(PAIR, Side::Main).state, SlotState::Finished);
    assert_eq!(agent.newest(), Some((9, 18, 3)));
}

fn c_example(agent: &Agent) -> impl Fn(Side) -> Vec<String> {
    let program = agent.compile(&in_repository("agents/client/libpairs/examples/main_c.c"), false);
    move |side| words(&[program.to_str().unwrap(), &side.to_string(), "1", "5", "3600000"])
}

fn python_example(interpreter: &str, side: Side) -> Vec<String> {
    let program = in_repository("agents/client/python/examples/main_py.py");
    words(&[interpreter, program.to_str().unwrap(), &side.to_string(), "1", "5", "3600000"])
}

#[test]
fn c_program_prints_the_sequence_of_the_demonstration() {
    let agent = Agent::new();
    demonstration(&agent, c_example(&agent));
}

#[test]
fn python_program_prints_the_sequence_of_the_demonstration() {
    let Some(interpreter) = python3() else { return };
    demonstration(&Agent::new(), |side| python_example(interpreter, side));
}

#[test]
fn a_replica_in_python_goes_on_for_a_main_in_c() {
    let Some(interpreter) = python3() else { return };
    let agent = Agent::new();
    let c = c_example(&agent);
    demonstration(&agent, |side| if side == Side::Main { c(side) } else { python_example(interpreter, side) });
}

/// A main that is killed at any point: the other copy goes on from the newest checkpoint, so that at most the value
/// that was printed last is printed again.
#[test]
fn no_step_is_lost_wherever_a_copy_is_killed() {
    let agent = Agent::new();
    let program = agent.compile(&in_repository("agents/client/libpairs/examples/main_c.c"), false);
    let command = |side: Side| words(&[program.to_str().unwrap(), &side.to_string(), "1", "20"]);
    let mut printed = String::new();
    for side in [Side::Main, Side::Replica, Side::Main, Side::Replica] {
        let mut copy = agent.start(side, &command(side));
        let next = agent.newest().map_or(0, |newest| newest.0) + 2;
        agent.wake(&copy);
        agent.wait_for_checkpoint(next.min(9));
        // On a machine that is busy, it may have come to its end.
        copy.process.kill().unwrap();
        copy.end();
        printed += &(copy.printed() + " ");
    }
    let last = agent.start(Side::Main, &command(Side::Main));
    agent.wake(&last);
    printed += &last.finished();
    let mut values: Vec<u32> = printed.split_whitespace().map(|value| value.parse().unwrap()).collect();
    values.dedup();
    assert_eq!(values, [1, 3, 6, 7, 9, 12, 13, 15, 18], "{printed}");
}

#[test]
fn a_copy_that_is_told_to_stop_while_asleep_ends_with_code_0() {
    let agent = Agent::new();
    let c = c_example(&agent);
    let mut commands = vec![c(Side::Replica)];
    commands.extend(python3().map(|interpreter| python_example(interpreter, Side::Replica)));
    for command in commands {
        let replica = agent.start(Side::Replica, &command);
        agent.registry.request_stop(PAIR, Side::Replica, replica.incarnation);
        assert_eq!(replica.finished(), "");
        assert_eq!(agent.registry.copy(PAIR, Side::Replica).state, SlotState::Asleep);
        assert_eq!(agent.registry.beats(PAIR, Side::Replica), 0);
    }
    assert_eq!(agent.newest(), None);
}

/// The agent may be dead, and the other copy be awake on another node. Also a program that beats itself, and hangs.
#[test]
fn a_copy_dies_when_its_lease_has_run_out() {
    let agent = Agent::new();
    let now = || {
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        (uptime.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e9) as u64
    };
    let hangs = "#include <unistd.h>\n#include \"holdfast_pairs.h\"\n\
                 int main(void) { if (tag_ft_job_begin(0, 0, \"main\", 1)) return 1; for (;;) pause(); }\n";
    fs::write(agent.path("hangs.c"), hangs).unwrap();
    let hangs = agent.compile(&agent.path("hangs.c"), true);
    for command in [c_example(&agent)(Side::Main), words(&[hangs.to_str().unwrap()])] {
        let mut copy = agent.start(Side::Main, &command);
        assert_eq!(agent.registry.held_until(PAIR, Side::Main), None);
        agent.registry.hold_until(PAIR, Side::Main, Some(now() + 3_600_000_000_000));
        agent.wake(&copy);
        until("beat", || (agent.registry.beats(PAIR, Side::Main) > 0).then_some(()));
        // Renewed, and then not any more.
        agent.registry.hold_until(PAIR, Side::Main, Some(now() + 100_000_000));
        let status = copy.end();
        // The clock that is read here has steps of ten milliseconds.
        assert!(now() + 10_000_000 >= agent.registry.held_until(PAIR, Side::Main).unwrap());
        assert_eq!(status.signal(), Some(9), "{:?}", copy.output());
    }
}

/// No signal of the agent has reached it. Also a program that beats itself.
#[test]
fn a_copy_dies_when_the_agent_has_ended_it() {
    let agent = Agent::new();
    let beats = "#include <unistd.h>\n#include \"holdfast_pairs.h\"\n\
                 int main(void) { if (tag_ft_job_begin(0, 0, \"main\", 1)) return 1;\n\
                 for (;;) { ft_hb(1); usleep(1000); } }\n";
    fs::write(agent.path("beats.c"), beats).unwrap();
    let beats = agent.compile(&agent.path("beats.c"), true);
    for command in [c_example(&agent)(Side::Main), words(&[beats.to_str().unwrap()])] {
        let mut copy = agent.start(Side::Main, &command);
        agent.wake(&copy);
        until("beat", || (agent.registry.beats(PAIR, Side::Main) > 1).then_some(()));
        agent.registry.fence(PAIR, Side::Main, copy.incarnation);
        assert_eq!(copy.end().signal(), Some(9), "{:?}", copy.output());
    }
}

#[test]
fn a_size_that_no_memory_has_is_refused() {
    let agent = Agent::new();
    let source = "#include <stdio.h>\n#include <stdint.h>\n#include \"holdfast_pairs.h\"\n\
                  int main(void) { char x = 1; if (ft_init_wait(0, 0, \"main\", 1)) return 2;\n\
                  for (int i = 0; i < 3; i++) { size_t sizes[] = {400001, (size_t)INT64_MAX, (size_t)-1};\n\
                  if (holdfast_pairs_update(&x, sizes[i], 1) != HOLDFAST_PAIRS_FAILURE) return 3;\n\
                  puts(holdfast_pairs_error()); } return holdfast_pairs_update(&x, 1, 1); }\n";
    fs::write(agent.path("large.c"), source).unwrap();
    let program = agent.compile(&agent.path("large.c"), true);
    let mut copy = agent.start(Side::Main, &words(&[program.to_str().unwrap()]));
    agent.wake(&copy);
    let status = copy.end();
    let (out, err) = copy.output();
    assert_eq!(status.code(), Some(0), "{out}{err}");
    let sizes = ["400001 bytes", "9223372036854775807 bytes", "18446744073709551615 bytes"];
    assert_eq!(out.lines().count(), 3, "{out}");
    for (line, size) in out.lines().zip(sizes) {
        assert!(line.contains(size) && line.contains("raise `checkpoint.size`"), "{out}");
    }
    assert_eq!(agent.registry.newest(PAIR).map(|newest| newest.bytes), Some(1));
}

#[test]
fn a_program_in_the_wrong_place_is_refused_with_the_remedy() {
    let agent = Agent::new();
    let program = agent.compile(&in_repository("agents/client/libpairs/examples/main_c.c"), true);
    let program = program.to_str().unwrap();
    let refused = |arguments: &[&str]| {
        let mut copy = agent.spawn(Side::Main, &words(&[&[program], arguments].concat()));
        assert_eq!(copy.end().code(), Some(1));
        copy.output().1
    };
    let error = refused(&["replica", "1"]);
    assert!(error.contains("it is the replica, and was started as the main"), "{error}");
    let error = refused(&["main", "2"]);
    assert!(error.contains("it is of pair 2, and was started for pair 1"), "{error}");
    let alone = Command::new(program).args(["main", "1"]).env_remove("HOLDFAST_PAIRS").output().unwrap();
    let error = String::from_utf8(alone.stderr).unwrap();
    assert!(error.contains("HOLDFAST_PAIRS is not set: `holdfast run` starts the copies"), "{error}");
}

/// The first program of this language on the page.
fn program_of_page(language: &str) -> String {
    let page = fs::read_to_string(in_repository("docs/pairs.md")).unwrap();
    let begin = format!("```{language}\n");
    let (_, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("no program in {language}"));
    rest.split_once("```").unwrap().0.to_owned()
}

/// The programs of the page store a state of 400 kB; the replica continues after the main's kill.
fn state_of_400_kilobytes(agent: &Agent, command: impl Fn(Side) -> Vec<String>) {
    let main = agent.start(Side::Main, &command(Side::Main));
    let replica = agent.start(Side::Replica, &command(Side::Replica));
    agent.wake(&main);
    agent.wait_for_checkpoint(20);
    assert_eq!(main.killed(), "from step 0");
    agent.wake(&replica);
    let after = replica.finished();
    let (from, sum) = after.strip_prefix("from step ").unwrap().split_once(' ').unwrap();
    assert!((20..300).contains(&from.parse::<u32>().unwrap()), "{after}");
    assert_eq!(sum, "sum 15000000", "300 in each of 50,000 numbers");
    assert_eq!(agent.registry.newest(PAIR).unwrap().bytes, 400_000);
}

#[test]
fn c_program_of_the_page_is_compiled_and_run() {
    let agent = Agent::new();
    fs::write(agent.path("page.c"), program_of_page("c")).unwrap();
    let program = agent.compile(&agent.path("page.c"), false);
    state_of_400_kilobytes(&agent, |side| words(&[program.to_str().unwrap(), &side.to_string(), "1"]));
}

#[test]
fn python_program_of_the_page_is_run() {
    let Some(interpreter) = python3() else { return };
    let agent = Agent::new();
    let program = agent.path("page.py");
    fs::write(&program, program_of_page("python")).unwrap();
    state_of_400_kilobytes(&agent, |side| words(&[interpreter, program.to_str().unwrap(), &side.to_string(), "1"]));
}

#[test]
fn header_is_accepted_by_strict_compilers() {
    let header = header_directory().join("holdfast_pairs.h");
    for (compiler, language, standard) in
        [("cc", "c", "c99"), ("cc", "c", "c11"), ("c++", "c++", "c++11"), ("c++", "c++", "c++17")]
    {
        if Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("not tested: {compiler} is not installed");
            continue;
        }
        let mut command = Command::new(compiler);
        command.args(["-fsyntax-only", "-Wall", "-Wextra", "-pedantic-errors", "-Werror", "-x", language]);
        let checked = command.arg(format!("-std={standard}")).arg(&header).output().unwrap();
        let errors = String::from_utf8_lossy(&checked.stderr).replace("#pragma once in main file", "");
        assert!(checked.status.success(), "{standard}: {errors}");
    }
}
