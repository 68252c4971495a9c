//! Pairs of programs in C and Python (`kind: replicated`): the demonstration of the Fault-tolerant Scheme.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::pairs::{printed, run, sees, spec, waits_for_line, waits_for_state};
use crate::world::{World, signal};

pub fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The libraries lie beside the test's own executable.
pub fn library_directory() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Compiles a program in C for the library.
pub fn compile(world: &World, source: &Path) -> PathBuf {
    let program = world.path("program");
    let libraries = library_directory();
    let mut command = Command::new("cc");
    command.args(["-std=gnu99", "-Wall", "-Werror", "-O1", "-o"]).arg(&program).arg(source);
    command.arg("-I").arg(in_repository("agents/client/libpairs/include"));
    command.arg(libraries.join("libholdfast_pairs.so")).arg(format!("-Wl,-rpath,{}", libraries.display()));
    let compiled = command.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        eprintln!("not tested: python3 is not installed");
    }
    found
}

/// The command of copies that pause for ever after each round.
fn c_example(world: &World) -> String {
    let program = compile(world, &in_repository("agents/client/libpairs/examples/main_c.c"));
    held(world, &format!(r#""{}""#, program.display()))
}

fn python_example(world: &World) -> String {
    let program = in_repository("agents/client/python/examples/main_py.py");
    held(world, &format!(r#"python3, "{}""#, program.display()))
}

/// A copy that is started while the file of its side exists, `hold.main` or `hold.replica`, waits for its removal.
pub fn held(world: &World, program: &str) -> String {
    let wait =
        format!(r#"while [ -e '{}' ]; do sleep 0.02; done; exec \"$0\" \"$@\""#, world.path("hold.{side}").display());
    format!(r#"[sh, -c, "{wait}", {program}, "{{side}}", "{{index}}", "1", "100000000"]"#)
}

/// The main is killed after 6, and started again when the replica has come to 12.
fn demonstration(world: &World, main: &str, replica: &str) {
    let environment = format!(
        "replication:\n  env:\n    PYTHONPATH: \"{}\"\n    PYTHONDONTWRITEBYTECODE: \"1\"\n\
             \x20   HOLDFAST_LIBPAIRS: \"{}\"\n",
        in_repository("agents/client/python").display(),
        library_directory().join("libholdfast_pairs.so").display(),
    );
    let pair = format!("name: dnn0, main: {main}, replica: {replica}, restart: {{first: 10ms}}");
    let mut job = run(world, &spec(world, &pair, &environment));
    waits_for_line(world, "dnn0.main", "6");
    waits_for_state(world, 0, "replica", "asleep");
    assert_eq!(printed(world, "dnn0.replica"), "");
    // The main is not there again before the replica has come to 12.
    fs::write(world.path("hold.main"), "").unwrap();
    signal(waits_for_state(world, 0, "main", "awake"), Signal::KILL);
    sees(&mut job, "dnn0", "fail_over", None);
    waits_for_line(world, "dnn0.replica", "12");
    fs::remove_file(world.path("hold.main")).unwrap();
    sees(&mut job, "dnn0", "fail_back", None);
    job.ends_with(0).prints(&["all pairs are finished"]);
    assert_eq!(printed(world, "dnn0.main"), "1\n3\n6\n13\n15\n18\n");
    assert_eq!(printed(world, "dnn0.replica"), "7\n9\n12\n");
    let count = |change: &str| world.all("pair").iter().filter(|event| event["change"] == change).count();
    assert_eq!((count("fail_over"), count("fail_back"), count("finished")), (1, 1, 1));
    world.assert_nothing_is_left();
}

#[test(unchecked)]
fn programs_in_c_print_the_sequence_of_the_demonstration(world: &World) {
    let program = c_example(world);
    demonstration(world, &program, &program);
}

#[test]
fn programs_in_python_print_the_sequence_of_the_demonstration() {
    if has_python() {
        let world = World::unchecked();
        let program = python_example(&world);
        demonstration(&world, &program, &program);
    }
}

#[test]
fn a_replica_in_python_goes_on_for_a_main_in_c() {
    if has_python() {
        let world = World::unchecked();
        demonstration(&world, &c_example(&world), &python_example(&world));
    }
}

#[test]
fn python_refuses_numbers_that_the_library_has_no_room_for() {
    if !has_python() {
        return;
    }
    // ctypes alone would cut them off.
    let program = "\
from holdfast import pairs

for call in (
    lambda: pairs.update_checkpoint(1, 2**31),
    lambda: pairs.update(b'x', 2**63),
    lambda: pairs.ft_hb(2**32),
    lambda: pairs.ft_init_wait(name='main0', index=2**32),
):
    try:
        call()
    except OverflowError as error:
        assert 'does not fit into' in str(error), error
    else:
        raise AssertionError('not refused')
";
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", in_repository("agents/client/python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("HOLDFAST_LIBPAIRS", library_directory().join("libholdfast_pairs.so"));
    let ran = command.args(["-c", program]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
