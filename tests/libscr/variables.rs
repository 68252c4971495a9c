//! Programs that checkpoint variables in memory, through `holdfast.h`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::world::{Link, VARIABLES, World, holdfast, needs, output, program_source, sum};

/// The checkpoint settings of a job for variables.
const SOURCE: &str = "redundancy: [{scheme: xor, set_size: 3}]";

/// Two nodes are lost, one after the other, in checkpoints 3 and 6; there is a spare node for each.
fn loses_two_nodes(world: &World, launcher: &str, command: &[&str]) -> Output {
    let chaos = "{node: 1, during: encode, checkpoint: 3}, {node: 0, during: encode, checkpoint: 6}";
    let ran = world.run_on(5, launcher, command, SOURCE, chaos, "");
    assert_eq!(ran.status.code(), Some(0), "{}", output(&ran));
    ran
}

/// The files of the drained checkpoint, by rank.
fn drained(world: &World, checkpoint: u32) -> Vec<PathBuf> {
    let current = fs::canonicalize(world.path().join("prefix/scr.current")).unwrap();
    (0..6).map(|rank| current.join(format!("Ckpt{checkpoint}-Rank{rank}.fti"))).collect()
}

#[test]
fn variables_that_grow_and_disappear_have_their_values_after_two_node_losses() {
    let world = World::new();
    let program = world.compile_for(VARIABLES, &["cc"], &[&program_source("variables.c")], Link::Shared);
    loses_two_nodes(&world, "", &[program.to_str().unwrap(), "8", &world.results(), "3"]);
    for rank in 0..6 {
        let result = world.result(rank);
        let (value, recovered) = result.split_once(' ').unwrap();
        assert_eq!(value, sum(rank, 8).to_string(), "rank {rank}");
        assert!(recovered.parse::<u32>().unwrap() >= 4, "the second loss is after the first: {result}");
    }
    for file in drained(&world, 8) {
        let file = file.to_str().unwrap();
        let verified = holdfast(&["verify", file], world.path());
        assert_eq!(verified.status.code(), Some(0), "{}", output(&verified));
        let inspected = holdfast(&["inspect", "--json", file], world.path());
        let text = output(&inspected);
        assert!(text.contains("\"fti-ff\"") && text.contains("-3"), "{text}");
    }
}

#[test]
fn statically_linked_program_saves_variables() {
    let world = World::new();
    let program = world.compile_for(VARIABLES, &["cc"], &[&program_source("variables.c")], Link::Static);
    let ran = world.run_on(3, "", &[program.to_str().unwrap(), "2", &world.results(), "1"], SOURCE, "", "");
    assert_eq!(ran.status.code(), Some(0), "{}", output(&ran));
    assert_eq!(world.result(4), format!("{} 0", sum(4, 2)));
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
