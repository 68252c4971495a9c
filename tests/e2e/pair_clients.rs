//! Programs that users start, and that become copies of pairs by themselves (`started_by: user`): the demonstration of
//! the document with its command lines.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::pair_programs::{compile, in_repository, library_directory};
use crate::pairs::{run, sees, spec, waits_for_state};
use crate::world::{Running, World, signal};

struct Demonstration<'a> {
    world: &'a World,
    program: PathBuf,
    variable: (String, String),
    job: Running<'a>,
}

impl<'a> Demonstration<'a> {
    fn begin(world: &'a World) -> Self {
        let program = compile(world, &in_repository("agents/client/libpairs/examples/main_c.c"));
        let spec = spec(world, "name: dnn0, started_by: user, restart: {first: 10ms}", "");
        let mut job = run(world, &spec);
        job.sees_event("agent_ready");
        let shown = world.wait("the variable", || {
            let shown = world.run(world.holdfast(["pairs", "env", "--json", spec.to_str().unwrap()]));
            (shown.status.code() == Some(0)).then(|| shown.json())
        });
        assert_eq!((&shown["node"], &shown["variable"]), (&json!("node0"), &json!("HOLDFAST_PAIRS_CLIENTS")));
        let value = shown["value"].as_str().unwrap().to_owned();
        let ran = world.run(world.holdfast(["pairs", "env", spec.to_str().unwrap()])).with_code(0);
        ran.prints(&[&format!("export HOLDFAST_PAIRS_CLIENTS={value}")]);
        Demonstration { world, program, variable: ("HOLDFAST_PAIRS_CLIENTS".to_owned(), value), job }
    }

    /// As a user types it: `./main_c main 0`. It pauses for ever after each round.
    fn start(&self, side: &str, output: &str) -> Child {
        let mut command = self.world.command(&self.program);
        command.args([side, "0", "1", "100000000"]);
        self.spawn(command, output)
    }

    fn spawn(&self, mut command: Command, output: &str) -> Child {
        let output = std::fs::File::create(self.world.path(output)).unwrap();
        command.env(&self.variable.0, &self.variable.1).stdin(Stdio::null()).stdout(output);
        command.spawn().unwrap()
    }

    #[track_caller]
    fn waits_for_line(&self, output: &str, line: &str) {
        let last = || std::fs::read_to_string(self.world.path(output)).unwrap_or_default();
        self.world.wait(&format!("{line} in {output}"), || (last().lines().last() == Some(line)).then_some(()));
    }
}

#[test]
fn programs_that_users_start_are_the_copies_of_a_pair(world: &World) {
    let mut demo = Demonstration::begin(world);
    let mut main = demo.start("main", "first");
    demo.waits_for_line("first", "6");
    let mut replica = demo.start("replica", "second");
    waits_for_state(world, 0, "replica", "asleep");
    signal(main.id(), Signal::KILL);
    main.wait().unwrap();
    sees(&mut demo.job, "dnn0", "fail_over", None);
    demo.waits_for_line("second", "12");
    // The main is called again: the replica is killed.
    let mut main = demo.start("main", "third");
    sees(&mut demo.job, "dnn0", "fail_back", None);
    assert!(!replica.wait().unwrap().success());
    demo.waits_for_line("third", "18");
    // After its last round it has called tag_job_end.
    assert!(main.wait().unwrap().success());
    let Demonstration { job, .. } = demo;
    job.ends_with(0).prints(&["all pairs are finished"]);
}

#[test(unchecked)]
fn python_program_of_the_document_becomes_a_copy_through_libft(world: &World) {
    let demo = Demonstration::begin(world);
    let library = world.path("libft.so");
    std::os::unix::fs::symlink(library_directory().join("libholdfast_pairs.so"), &library).unwrap();
    let program = format!(
        "
from ctypes import cdll, c_uint, c_int, c_char_p, c_longlong, c_bool, c_ulonglong
import os, sys
libft = cdll.LoadLibrary('{}')
libft.tag_job_begin.restype = c_int
libft.tag_job_begin.argtypes = [c_uint, c_uint, c_char_p, c_longlong, c_bool, c_bool, c_ulonglong]
name, index = sys.argv[1].encode(), int(sys.argv[2])
assert libft.ft_init_wait(os.getpid(), 0, name, index) == 0
assert libft.tag_job_begin(os.getpid(), 0, name, 0, False, False, 0) == 0
print('awake', flush=True)
assert libft.tag_job_end(os.getpid(), 0, name) == 0
",
        library.display()
    );
    let mut python = world.command("python3");
    python.args(["-c", &program, "main", "0"]);
    let mut main = demo.spawn(python, "output");
    demo.waits_for_line("output", "awake");
    assert!(main.wait().unwrap().success());
    let Demonstration { job, .. } = demo;
    job.ends_with(0);
    world.assert_nothing_is_left();
}

#[test(unchecked)]
fn commands_beside_started_by_user_are_refused_and_a_program_of_nobody_is_told_so(world: &World) {
    let spec = spec(world, "name: dnn0, started_by: user, main: [./dnn]", "");
    let ran = world.run(world.holdfast(["check", spec.to_str().unwrap()])).with_code(78);
    ran.prints(&["with `started_by: user` the user starts the program"]);
    let program = compile(world, &in_repository("agents/client/libpairs/examples/main_c.c"));
    let ran = world.run({
        let mut command = world.command(&program);
        command.args(["main", "0", "1", "1"]);
        command
    });
    assert!(!ran.status.success());
    ran.prints(&["HOLDFAST_PAIRS is not set"]);
}
