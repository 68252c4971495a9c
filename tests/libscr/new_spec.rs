//! `holdfast init`: what a program is linked with, or imports, decides source and launcher.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::world::{FTI, Link, SCR, VARIABLES, World, exits_with, holdfast, needs, output};

/// The document of `holdfast init` for this command; the spec that it writes passes `check`.
#[track_caller]
fn init(world: &World, command: &[&str]) -> Value {
    let written = holdfast(&[&["init", "--json", "--force", "--"], command].concat(), world.path());
    assert_eq!(written.status.code(), Some(0), "{}", output(&written));
    exits_with(&holdfast(&["check", "job.yaml"], world.path()), 0);
    serde_json::from_slice(&written.stdout).unwrap()
}

fn write(world: &World, name: &str, text: &str) -> String {
    let path = world.path().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A compiled program with this text.
fn compile(world: &World, compiler: &str, name: &str, arguments: &[&str]) -> String {
    let source = write(world, &format!("{name}.c"), "int main(void) { return 0; }\n");
    let program = world.path().join(name).to_str().unwrap().to_owned();
    let mut command = Command::new(compiler);
    command.args(["-Wl,--no-as-needed", "-o", &program, &source]).args(arguments).current_dir(world.path());
    let compiled = command.output().unwrap();
    assert!(compiled.status.success(), "{}", output(&compiled));
    program
}

#[test]
fn the_library_of_a_program_is_its_source(world: &World) {
    for (library, name, source) in
        [(SCR, "scr", "scr"), (VARIABLES, "variables", "variables"), (FTI, "fti", "variables")]
    {
        let path = library.shared();
        let found = format!("-Wl,-rpath,{}", path.parent().unwrap().display());
        let program = compile(world, "cc", name, &[path.to_str().unwrap(), &found]);
        let written = init(world, &[&program]);
        assert_eq!((&written["source"], &written["job"]), (&source.into(), &name.into()), "{written}");
        assert!(written["reasons"]["source"].as_str().unwrap().contains("it is linked with"), "{written}");
    }
    // LLNL's library has the same name and other functions.
    let library = write(world, "llnl.c", "int SCR_Init(void) { return 0; }\n");
    let built = Command::new("cc")
        .args(["-shared", "-Wl,-soname,libscr.so.0", "-o", "libscr.so.0", &library])
        .current_dir(world.path())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", output(&built));
    let program = compile(world, "cc", "llnl", &["./libscr.so.0", "-Wl,-rpath,$ORIGIN"]);
    assert_eq!(init(world, &[&program])["source"], "scr-files");
    let program = compile(world, "cc", "plain", &[]);
    assert_eq!(init(world, &[&program])["source"], "none");
}

#[test]
fn a_library_that_the_loader_does_not_find_is_reported_instead_of_a_wrong_source(world: &World) {
    let program = compile(world, "cc", "lost", &[SCR.shared().to_str().unwrap()]);
    let text = exits_with(&holdfast(&["init", &program], world.path()), 69);
    assert!(text.contains("/lost: libscr.so.100\n") && text.contains("LD_LIBRARY_PATH"), "{text}");
    assert!(!world.path().join("job.yaml").exists());
}

#[test]
fn a_static_library_is_found_in_the_program(world: &World) {
    let program = world.compile("cc", "manage.c", Link::Static);
    let written = init(world, &[program.to_str().unwrap()]);
    assert_eq!(written["source"], "scr", "{written}");
    assert!(written["reasons"]["source"].as_str().unwrap().contains("it contains HOLDFAST_Rank"), "{written}");
}

#[test]
fn a_program_of_mpi_is_started_by_its_own_mpirun(world: &World) {
    needs("mpicc.mpich");
    let program = compile(world, "mpicc.mpich", "mpi", &[]);
    let written = init(world, &[&program]);
    assert_eq!((&written["source"], &written["launcher"]), (&"none".into(), &"mpirun".into()), "{written}");
    assert!(written["reasons"]["launcher"].as_str().unwrap().contains("MPICH"), "{written}");
    assert!(written["spec"].as_str().unwrap().contains("  launcher: mpirun\n"), "{written}");
}

#[test]
fn the_imports_of_a_script_in_python_are_read_and_its_arguments_kept(world: &World) {
    needs("python3");
    for (text, source) in [
        ("import numpy\nimport scr\n", "scr"),
        ("from holdfast import variables\n", "variables"),
        ("print('import scr')\n", "none"),
    ] {
        write(world, "solve.py", text);
        let written = init(world, &["python3", "-u", "solve.py", "--steps", "5"]);
        assert_eq!((&written["source"], &written["job"]), (&source.into(), &"solve".into()), "{written}");
        let spec = written["spec"].as_str().unwrap();
        assert!(spec.contains("command: [python3, -u, solve.py, --steps, '5']"), "{spec}");
    }
    write(world, "solve.py", "import scr\nfrom mpi4py import MPI\n");
    let written = init(world, &["env", "A=1", "python3", "solve.py"]);
    assert_eq!((&written["source"], &written["launcher"]), (&"scr".into(), &"mpirun".into()), "{written}");
}
