//! Programs that checkpoint variables in memory, through `holdfast.h`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use holdfast_testkit::harness::ignore;

use crate::world::{Link, VARIABLES, World, exits_with, holdfast, in_repository, needs, output, program_source, sum};

/// The checkpoint settings of a job for variables.
const SOURCE: &str = "source: variables, redundancy: [{scheme: xor, set_size: 3}]";

/// Two nodes are lost, one after the other, in checkpoints 3 and 6; there is a spare node for each.
fn loses_two_nodes(world: &World, launcher: &str, command: &[&str]) -> Output {
    let faults = "{node: 1, during: encode, checkpoint: 3}, {node: 0, during: encode, checkpoint: 6}";
    let ran = world.run_on(5, launcher, command, SOURCE, faults, "");
    assert_eq!(ran.status.code(), Some(0), "{}", output(&ran));
    ran
}

/// The files of the drained checkpoint, by rank.
fn drained(world: &World, checkpoint: u32) -> Vec<PathBuf> {
    let current = fs::canonicalize(world.path().join("prefix/scr.current")).unwrap();
    (0..6).map(|rank| current.join(format!("Ckpt{checkpoint}-Rank{rank}.fti"))).collect()
}

#[test]
fn variables_that_grow_and_disappear_have_their_values_after_two_node_losses(world: &World) {
    let program = world.compile_for(VARIABLES, &["cc"], &[&program_source("variables.c")], Link::Shared);
    loses_two_nodes(world, "", &[program.to_str().unwrap(), "8", &world.results(), "3"]);
    for rank in 0..6 {
        let result = world.result(rank);
        let (value, recovered) = result.split_once(' ').unwrap();
        assert_eq!(value, sum(rank, 8).to_string(), "rank {rank}");
        assert!(recovered.parse::<u32>().unwrap() >= 4, "the second loss is after the first: {result}");
    }
    for file in drained(world, 8) {
        let file = file.to_str().unwrap();
        exits_with(&holdfast(&["verify", file], world.path()), 0);
        let inspected = holdfast(&["inspect", "--json", file], world.path());
        let text = output(&inspected);
        assert!(text.contains("\"fti-ff\"") && text.contains("-3"), "{text}");
    }
}

#[test]
fn statically_linked_program_saves_variables(world: &World) {
    let program = world.compile_for(VARIABLES, &["cc"], &[&program_source("variables.c")], Link::Static);
    exits_with(&world.run_on(3, "", &[program.to_str().unwrap(), "2", &world.results(), "1"], SOURCE, "", ""), 0);
    assert_eq!(world.result(4), format!("{} 0", sum(4, 2)));
}

/// The programs of the page compute the same.
fn assert_result_of_the_page(ran: &Output) {
    for rank in 0..6 {
        let line = format!("rank {rank} of 6: {}", 5_050_000 * (rank + 1));
        assert!(output(ran).contains(&line), "{line}: {}", output(ran));
    }
}

#[test]
fn c_program_of_the_page_is_compiled_and_run(world: &World) {
    let source = world.program_of_page("docs/variables.md", "c", "heat.c");
    let program = world.compile_for(VARIABLES, &["cc"], &[&source], Link::Shared);
    assert_result_of_the_page(&world.run_on(3, "", &[program.to_str().unwrap()], SOURCE, "", ""));
}

#[test]
fn fortran_program_of_the_page_restarts_after_two_node_losses(world: &World) {
    needs("gfortran");
    let source = world.program_of_page("docs/variables.md", "fortran", "heat.f90");
    let module = VARIABLES.include("holdfast.f90");
    let program = world.compile_for(VARIABLES, &["gfortran"], &[&module, &source], Link::Shared);
    assert_result_of_the_page(&loses_two_nodes(world, "", &[program.to_str().unwrap()]));
}

#[test]
fn fortran_program_calls_every_function_and_restarts_with_the_values_of_every_type(world: &World) {
    needs("gfortran");
    let (module, source) = (VARIABLES.include("holdfast.f90"), program_source("variables.f90"));
    let program = world.compile_for(VARIABLES, &["gfortran"], &[&module, &source], Link::Static);
    let settings = format!("{SOURCE}, variables: {{snapshots: {{parity: 1ms}}}}");
    for (steps, recovered) in [(4, 0), (6, 4)] {
        let command = [program.to_str().unwrap(), &steps.to_string(), &world.results()];
        exits_with(&world.run_on(3, "", &command, &settings, "", "relaunch: {attempts: 0}"), 0);
        world.assert_results(|rank| format!("{} {recovered}", sum(rank, steps)));
    }
}

/// The command that runs a Python program with the module and the library of this build.
fn python(interpreter: &str, program: &Path) -> Vec<String> {
    let module = in_repository("agents/client/python");
    vec![
        "env".to_owned(),
        format!("PYTHONPATH={}", module.display()),
        format!("HOLDFAST_LIBVARIABLES={}", VARIABLES.shared().display()),
        "PYTHONDONTWRITEBYTECODE=1".to_owned(),
        interpreter.to_owned(),
        program.to_str().unwrap().to_owned(),
    ]
}

/// An interpreter with NumPy; ignores the test where there is none.
fn python_with_numpy() -> &'static str {
    let has_numpy = |interpreter: &&str| {
        let imported = Command::new(interpreter).args(["-c", "import numpy"]).output();
        imported.is_ok_and(|imported| imported.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has_numpy);
    found.unwrap_or_else(|| ignore("python3-numpy is not installed"))
}

#[test]
fn numpy_program_of_the_page_restarts_after_two_node_losses(world: &World) {
    let interpreter = python_with_numpy();
    let source = world.program_of_page("docs/variables.md", "python", "heat.py");
    let command = python(interpreter, &source);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    assert_result_of_the_page(&loses_two_nodes(world, "", &command));
}

#[test]
fn python_program_without_numpy_saves_buffers_that_grow(world: &World) {
    needs("python3");
    let mut command = python("python3", &program_source("variables.py"));
    command.extend(["8".to_owned(), world.results()]);
    loses_two_nodes(world, "", &command.iter().map(String::as_str).collect::<Vec<_>>());
    for rank in 0..6 {
        let result = world.result(rank);
        let (value, recovered) = result.split_once(' ').unwrap();
        assert_eq!(value, (204 * (rank + 1)).to_string(), "rank {rank}");
        assert!(recovered.parse::<u32>().unwrap() >= 4, "the second loss is after the first: {result}");
    }
}

/// Six ranks take checkpoint 2; five restart from it, then six from checkpoint 3 of the five, then as many once more.
/// Each rank has the expected result; its argument is true if as many ranks wrote the checkpoint.
fn restarts_with_other_numbers_of_ranks(world: &World, command: &[String], result: impl Fn(u32, bool) -> String) {
    let any = format!("{SOURCE}, restart: {{ranks: any}}");
    for (ranks, steps, recovered) in [(6, "2", 0), (5, "3", 2), (6, "4", 3), (6, "5", 4)] {
        let words: Vec<&str> = command.iter().map(|word| if word == "STEPS" { steps } else { word }).collect();
        exits_with(&world.run_on(4, &format!("ranks: {ranks},"), &words, &any, "", ""), 0);
        let as_many = recovered == 0 || recovered == 4;
        (0..ranks).for_each(|rank| assert_eq!(world.result(rank), result(recovered, as_many)));
    }
}

#[test]
fn arrays_in_c_are_recovered_by_other_numbers_of_ranks_and_what_does_not_fit_is_refused(world: &World) {
    let program = world.compile_for(VARIABLES, &["cc"], &[&program_source("distributed.c")], Link::Shared);
    let command = [program.to_str().unwrap().to_owned(), "STEPS".to_owned(), world.results()];
    restarts_with_other_numbers_of_ranks(world, &command, |recovered, as_many| {
        format!("{recovered} {}", if as_many { 0 } else { 4 })
    });
}

#[test]
fn arrays_in_fortran_are_recovered_by_other_numbers_of_ranks(world: &World) {
    needs("gfortran");
    let (module, source) = (VARIABLES.include("holdfast.f90"), program_source("distributed.f90"));
    let program = world.compile_for(VARIABLES, &["gfortran"], &[&module, &source], Link::Shared);
    let command = [program.to_str().unwrap().to_owned(), "STEPS".to_owned(), world.results()];
    restarts_with_other_numbers_of_ranks(world, &command, |recovered, _| recovered.to_string());
}

#[test]
fn arrays_in_python_are_recovered_by_other_numbers_of_ranks(world: &World) {
    needs("python3");
    let mut command = python("python3", &program_source("distributed.py"));
    command.extend(["STEPS".to_owned(), world.results()]);
    restarts_with_other_numbers_of_ranks(world, &command, |recovered, _| recovered.to_string());
}

#[test]
fn header_of_variables_is_accepted_by_strict_compilers() {
    needs("c++");
    let header = VARIABLES.include("holdfast.h");
    for (compiler, language, standard) in
        [("cc", "c", "c90"), ("cc", "c", "c11"), ("c++", "c++", "c++98"), ("c++", "c++", "c++17")]
    {
        let mut command = Command::new(compiler);
        command.args(["-fsyntax-only", "-Wall", "-Wextra", "-pedantic-errors", "-Werror", "-x", language]);
        let checked = command.arg(format!("-std={standard}")).arg(&header).output().unwrap();
        assert!(checked.status.success(), "{standard}: {}", output(&checked));
    }
}
