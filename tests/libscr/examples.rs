//! Programs that make the calls of SCR's own examples, in the same order and with the same options.

use std::fs;
use std::process::{Command, Output};

use crate::world::{Link, World, exits_with, in_repository, needs, output, sum};

/// What each rank of `options.c` wrote.
fn results(world: &World) -> String {
    let first = world.result(0);
    for rank in 1..6 {
        assert_eq!(world.result(rank), first, "rank {rank}");
    }
    first
}

/// Runs `options.c` with these options, and with variables for it (`NAME=value`).
fn options_with(world: &World, options: &[&str], checkpoint: &str, faults: &str) -> Output {
    let program = world.compile("cc", "options.c", Link::Shared);
    let results = world.results();
    let mut command = vec!["env"];
    command.extend(options.iter().filter(|option| !option.starts_with("--")));
    command.extend([program.to_str().unwrap(), results.as_str()]);
    command.extend(options.iter().filter(|option| option.starts_with("--")));
    world.run(&command, checkpoint, faults)
}

/// The same in a job that flushes every dataset, and finishes. Returns what it prints.
fn options(world: &World, options: &[&str]) -> String {
    let ran = options_with(world, options, ", flush: {every: 1}", "");
    assert_eq!(ran.status.code(), Some(0), "{options:?}: {}", output(&ran));
    output(&ran)
}

fn names(world: &World) -> Vec<String> {
    world.named_on_prefix().into_iter().map(|(name, _)| name).collect()
}

/// The number of complete datasets in the index.
fn complete(world: &World) -> usize {
    world.indexed().iter().filter(|entry| entry["complete"] == true).count()
}

#[test]
fn every_nth_dataset_is_output_and_a_lost_node_costs_the_last_one(world: &World) {
    exits_with(
        &options_with(
            world,
            &["--times=7", "--path=data", "--flush=2", "--output=3"],
            ", flush: {every: 0}",
            "{node: 1, during: encode, checkpoint: 5}",
        ),
        0,
    );
    assert_eq!(results(world), "7 ckpt.4 0");
    // Output, and the newest checkpoint, which the end of the job flushes.
    assert_eq!(names(world), ["ckpt.2", "ckpt.4", "ckpt.7", "output.3", "output.6"]);
    for named in ["ckpt.2", "output.3", "ckpt.4", "output.6"] {
        for rank in 0..6 {
            let file = world.path().join(format!("prefix/data/{named}/rank_{rank}.ckpt"));
            assert_eq!(fs::metadata(file).unwrap().len(), 3008 + rank, "{named}");
        }
    }
    assert_eq!(world.current(), "ckpt.7");
}

#[test]
fn checkpoints_that_a_rank_refuses_are_passed_over_to_the_next() {
    let world = World::new();
    options(&world, &["--times=4"]);
    options(&world, &["--times=5", "--refuse=ckpt.4", "--refuse=ckpt.3"]);
    assert_eq!(results(&world), "5 ckpt.2 2");
    // From the cache, where it has just been rebuilt, to the prefix directory.
    let world = World::new();
    exits_with(
        &options_with(
            &world,
            &["--times=5", "--refuse=ckpt.3"],
            ", flush: {every: 2}",
            "{node: 2, during: encode, checkpoint: 4}",
        ),
        0,
    );
    assert_eq!(results(&world), "5 ckpt.2 1");
}

#[test]
fn a_program_that_refuses_every_checkpoint_begins_anew(world: &World) {
    options(world, &["--times=2"]);
    options(world, &["--times=3", "--refuse=ckpt.1", "--refuse=ckpt.2"]);
    assert_eq!(results(world), "3 - 2");
    assert_eq!(world.current(), "ckpt.3");
}

#[test]
fn redundancy_and_stores_of_the_program_are_reported_and_those_of_the_job_protect_it() {
    for scheme in ["SINGLE", "PARTNER", "XOR"] {
        let world = World::new();
        let config = format!("--config={scheme}");
        let ran = options_with(
            &world,
            &[&config, "--global-store=/nowhere/cache"],
            ", flush: {every: 0}",
            "{node: 0, during: encode, checkpoint: 3}",
        );
        let printed = output(&ran);
        assert_eq!(ran.status.code(), Some(0), "{scheme}: {printed}");
        assert_eq!(results(&world), "4 ckpt.2 0", "{scheme}");
        let reported = "SCR: SCR_COPY_TYPE, CKPT=0, STORE=/dev/shm, STORE=/nowhere/cache of SCR_Config has no effect";
        assert!(printed.contains(reported), "{scheme}: {printed}");
    }
}

#[test]
fn current_selects_the_checkpoint_and_an_unknown_name_none(world: &World) {
    options(world, &["--times=3", "--current=ckpt.7"]);
    assert_eq!(results(world), "3 - 0");
    let printed = options(world, &["--times=3", "--current=ckpt.9"]);
    assert_eq!(results(world), "3 ckpt.3 0");
    assert_eq!(printed.matches("SCR: SCR_Current has no effect").count(), 1, "{printed}");
    options(world, &["--times=3", "--current=ckpt.1"]);
    assert_eq!(results(world), "3 ckpt.1 0");
    assert_eq!(world.current(), "ckpt.3");
}

#[test]
fn files_that_are_opened_by_their_names_are_those_of_the_current_checkpoint(world: &World) {
    let path = format!("--path={}", world.path().join("prefix/data").display());
    options(world, &["--times=4", &path, "--flush=1"]);
    options(world, &["--times=5", &path, "--flush=1", "--noscrrestart", "--current=ckpt.2"]);
    assert_eq!(results(world), "5 ckpt.2 0");
    // Steps 3 and 4 have been written again.
    assert_eq!((world.current(), complete(world)), ("ckpt.5".to_owned(), 5));
    options(world, &["--times=6", &path]);
    assert_eq!(results(world), "6 ckpt.5 0");
}

#[test]
fn a_program_that_calls_no_function_ends_as_it_would_alone(world: &World) {
    let directory = world.path().join("own");
    fs::create_dir(&directory).unwrap();
    let path = format!("--path={}", directory.display());
    options(world, &["--noscr", "--times=2", &path]);
    options(world, &["--noscr", "--times=3", &path, "--current=ckpt.2"]);
    assert_eq!(results(world), "3 ckpt.2 0");
}

#[test]
fn ranks_of_different_sizes_write_and_read_one_file(world: &World) {
    let bypass = ["SCR_CACHE_BYPASS=1", "--shared-file", "--times=4"];
    exits_with(&options_with(world, &bypass, "", "{node: 2, during: write, checkpoint: 3}"), 0);
    assert_eq!(results(world), "4 ckpt.2 0");
    let file = world.path().join("prefix/ckpt.4/rank_shared.ckpt");
    assert_eq!(fs::metadata(file).unwrap().len(), 6 * 3008 + 15);
}

#[test]
fn ranks_with_several_files_and_none_restart_after_node_loss(world: &World) {
    let program = world.compile("cc", "several_files.c", Link::Shared);
    let command = [program.to_str().unwrap(), "5", &world.results()];
    world.finishes(&command, "", "{node: 1, during: encode, checkpoint: 4}");
    assert_eq!(results(world), "5 timestep.3");
    // From the prefix directory.
    let command = [program.to_str().unwrap(), "6", &world.results()];
    world.finishes(&command, "", "");
    assert_eq!(results(world), "6 timestep.5");
}

#[test]
fn files_that_are_read_by_their_bare_names_before_any_other_call_are_those_of_the_newest_checkpoint() {
    for files in ["1", "3"] {
        let world = World::new();
        let program = world.compile("cc", "unnamed.c", Link::Shared);
        let command = [program.to_str().unwrap(), "5", files, &world.results()];
        world.finishes(&command, "", "{node: 2, during: encode, checkpoint: 4}");
        for rank in 0..6 {
            assert_eq!(world.result(rank), format!("{} 3", sum(rank, 5)), "{files} files");
            let printed = fs::read_to_string(world.path().join(format!("results/output.{rank}"))).unwrap();
            assert!(printed.contains("Completed checkpoint 5."), "{printed}");
        }
    }
}

#[test]
fn cpp_program_restarts_in_the_next_allocation() {
    needs("c++");
    for link in [Link::Shared, Link::Static] {
        let world = World::new();
        let program = world.compile("c++", "iostreams.cpp", link);
        let command = [program.to_str().unwrap(), "1", &world.results()];
        world.finishes(&command, "", "");
        assert_eq!(results(&world), "0 1");
        let command = [program.to_str().unwrap(), "2", &world.results()];
        world.finishes(&command, "", "");
        assert_eq!(results(&world), "1048576 1");
    }
}

#[test]
fn every_function_has_the_type_that_programs_call_it_by() {
    for link in [Link::Shared, Link::Static] {
        let world = World::new();
        let printed = Command::new(world.compile("cc", "prototypes.c", link)).output().unwrap();
        assert_eq!(output(&printed), "18 17\n");
    }
}

#[test]
fn header_is_accepted_by_strict_compilers() {
    needs("c++");
    let header = in_repository("agents/client/libscr/include/scr.h");
    for (compiler, language, standard) in
        [("cc", "c", "c90"), ("cc", "c", "c11"), ("c++", "c++", "c++98"), ("c++", "c++", "c++17")]
    {
        let mut command = Command::new(compiler);
        command.args(["-fsyntax-only", "-Wall", "-Wextra", "-pedantic-errors", "-Werror", "-x", language]);
        let checked = command.arg(format!("-std={standard}")).arg(&header).output().unwrap();
        assert!(checked.status.success(), "{standard}: {}", output(&checked));
    }
}

#[test]
fn fixed_form_and_free_form_fortran_restart_from_output_after_node_loss() {
    needs("gfortran");
    for (source, link) in
        [("fixed_form.F", Link::Fortran), ("free_form.F90", Link::Shared), ("fixed_form.F", Link::StaticFortran)]
    {
        let world = World::new();
        let program = world.compile("gfortran", source, link);
        let command = [program.to_str().unwrap(), "4", &world.results()];
        // Dataset 5 is the unnamed checkpoint of step 3.
        world.finishes(&command, "", "{node: 0, during: encode, checkpoint: 5}");
        assert_eq!(results(&world), "4 output_00002", "{source}");
        for step in 1..=4 {
            for rank in 0..6 {
                let file = world.path().join(format!("prefix/output_{step:05}/rank_{rank:05}.ckpt"));
                assert!(file.exists(), "{source}: {}", file.display());
            }
        }
    }
}
