//! Programs that restart from a checkpoint of another number of ranks: `checkpoint.restart.ranks: any`.

use crate::world::{Link, World, exits_with, in_repository, library_directory, needs};

const ANY: &str = "redundancy: [{scheme: xor, set_size: 3}], restart: {ranks: any}";

/// Runs the program on three nodes with this number of ranks; requires that it finishes.
#[track_caller]
fn finishes(world: &World, ranks: u32, command: &[&str]) {
    exits_with(&world.run_on(4, &format!("ranks: {ranks},"), command, ANY, "", ""), 0);
}

/// Six ranks took checkpoint 2; five restart from it, then six from checkpoint 3 of the five, then as many once more.
#[track_caller]
fn restarts_with_other_numbers_of_ranks(command: impl Fn(&World, &str) -> Vec<String>) {
    restarts_in(&World::new(), command);
}

#[track_caller]
fn restarts_in(world: &World, command: impl Fn(&World, &str) -> Vec<String>) {
    let run = |ranks, steps: &str| {
        let words = command(world, steps);
        finishes(world, ranks, &words.iter().map(String::as_str).collect::<Vec<_>>());
    };
    run(6, "2");
    assert_eq!(world.result(5), "0 0 0 0");
    run(5, "3");
    (0..5).for_each(|rank| assert_eq!(world.result(rank), "2 6 6 15"));
    run(6, "4");
    (0..6).for_each(|rank| assert_eq!(world.result(rank), "3 5 5 10"));
    run(6, "5");
    (0..6).for_each(|rank| assert_eq!(world.result(rank), format!("4 6 1 {rank}"), "its own file"));
}

#[test]
fn program_in_c_reads_the_files_of_all_ranks() {
    restarts_with_other_numbers_of_ranks(|world, steps| {
        let program = world.compile("cc", "any_ranks.c", Link::Shared);
        vec![program.to_str().unwrap().into(), steps.into(), world.results(), "1".into()]
    });
}

#[test]
fn program_that_bypasses_the_cache_reads_the_files_of_all_ranks() {
    let world = World::new().with_variable("SCR_CACHE_BYPASS", "1");
    restarts_in(&world, |world, steps| {
        let program = world.compile("cc", "any_ranks.c", Link::Shared);
        vec![program.to_str().unwrap().into(), steps.into(), world.results(), "1".into()]
    });
}

#[test]
fn program_whose_checkpoints_are_outputs_reads_the_files_of_all_ranks_at_their_paths() {
    restarts_with_other_numbers_of_ranks(|world, steps| {
        let program = world.compile("cc", "any_ranks.c", Link::Shared);
        vec![program.to_str().unwrap().into(), steps.into(), world.results(), "3".into()]
    });
}

#[test]
fn program_in_python_reads_the_files_of_all_ranks() {
    needs("python3");
    restarts_with_other_numbers_of_ranks(|world, steps| {
        let module = in_repository("agents/client/python");
        let library = library_directory().join("libscr.so");
        let program = in_repository("tests/libscr/programs/any_ranks.py");
        vec![
            "env".into(),
            format!("PYTHONPATH={}", module.display()),
            format!("HOLDFAST_LIBSCR={}", library.display()),
            "PYTHONDONTWRITEBYTECODE=1".into(),
            "python3".into(),
            program.to_str().unwrap().into(),
            world.results(),
            steps.into(),
        ]
    });
}

#[test]
fn program_in_fortran_reads_the_files_of_all_ranks() {
    needs("gfortran");
    restarts_with_other_numbers_of_ranks(|world, steps| {
        let program = world.compile("gfortran", "any_ranks.f90", Link::Shared);
        vec![program.to_str().unwrap().into(), steps.into(), world.results()]
    });
}
