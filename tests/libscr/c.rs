//! Programs in C that are linked with libscr.

use crate::world::{Link, SCR, World, exits_with, output, sum};

#[test]
fn scr_1_program_restarts_from_rebuilt_files_after_node_loss(world: &World) {
    let program = world.compile("cc", "old_style.c", Link::Shared);
    let command = [program.to_str().unwrap(), "10", &world.results()];
    // Lost during checkpoint 3, in step 6: checkpoint 2 is the newest.
    let printed = exits_with(&world.run(&command, "", "{node: 1, during: encode, checkpoint: 3}"), 0);
    world.assert_results(|rank| format!("{} 4", sum(rank, 10)));
    assert!(!printed.contains("SCR_Route_file"), "at the first start there is nothing to read: {printed}");
}

#[test]
fn program_of_the_page_has_its_result_after_node_loss(world: &World) {
    let source = world.program_of_page("docs/libscr.md", "c", "sum.c");
    let program = world.compile_for(SCR, &["cc"], &[&source], Link::Shared);
    let ran = world.run(&[program.to_str().unwrap()], "", "{node: 1, during: encode, checkpoint: 40}");
    let printed = exits_with(&ran, 0);
    for rank in 0..6 {
        let line = format!("rank {rank} of 6: {}", sum(rank, 100));
        assert!(printed.contains(&line), "{line}: {printed}");
    }
    assert!(printed.contains("node1 down"), "{printed}");
}

#[test]
fn forked_children_can_neither_write_checkpoints_nor_end_the_job(world: &World) {
    let program = world.compile("cc", "forked.c", Link::Shared);
    let printed = exits_with(
        &world.run_with(&[program.to_str().unwrap(), "4", &world.results()], "", "", "relaunch: {attempts: 0}"),
        0,
    );
    for rank in 0..6 {
        assert_eq!(world.result(rank), sum(rank, 4).to_string());
        let state = world.path().join(format!("prefix/scr.current/state.{rank}"));
        assert_eq!(std::fs::read_to_string(state).unwrap().trim(), sum(rank, 4).to_string());
    }
    // Five calls of each rank.
    assert_eq!(printed.matches("was forked from process").count(), 30, "{printed}");
}

#[test]
fn statically_linked_program_works(world: &World) {
    let program = world.compile("cc", "old_style.c", Link::Static);
    world.finishes(&[program.to_str().unwrap(), "4", &world.results()], "", "");
    assert_eq!(world.result(5), format!("{} 0", sum(5, 4)));
}

#[test]
fn finds_named_checkpoint_in_cache_after_node_loss(world: &World) {
    let program = world.compile("cc", "named.c", Link::Shared);
    let command = [program.to_str().unwrap(), "own", "6", &world.results()];
    world.finishes(&command, "", "{node: 0, during: encode, checkpoint: 4}");
    world.assert_results(|rank| format!("{} 3 step.3", sum(rank, 6)));
    // The newest checkpoint was flushed at the end of the job, with its name.
    assert_eq!(world.current(), "step.6");
}

#[test]
fn ranks_restart_from_shared_file_after_node_loss(world: &World) {
    let program = world.compile("cc", "named.c", Link::Shared);
    let command = [program.to_str().unwrap(), "shared", "5", &world.results()];
    world.finishes(&command, "", "{node: 2, during: write, checkpoint: 4}");
    world.assert_results(|rank| format!("{} 3 step.3", sum(rank, 5)));
    assert_eq!(world.current(), "step.5");
    // The next allocation restarts from the shared file in place.
    let command = [program.to_str().unwrap(), "shared", "7", &world.results()];
    world.finishes(&command, "", "");
    world.assert_results(|rank| format!("{} 5 step.5", sum(rank, 7)));
}

#[test]
fn shared_file_in_cache_is_an_error_with_remedy() {
    // With another writer on the same node the rank gets an error, otherwise the checkpoint is dropped.
    for (mode, refusal) in
        [("careless", "both write a file all.txt"), ("even", "ranks 0 and 2 both write a file all.txt")]
    {
        let world = World::new();
        let program = world.compile("cc", "named.c", Link::Shared);
        let ran = world.run(&[program.to_str().unwrap(), mode, "2", &world.results()], "", "");
        assert_eq!(ran.status.code(), Some(91), "{mode}: {}", output(&ran));
        let output = output(&ran);
        assert!(output.contains(refusal) && output.contains("SCR_CACHE_BYPASS=1"), "{mode}: {output}");
    }
}

#[test]
fn rank_0_reports_settings_of_the_program_that_have_no_effect(world: &World) {
    let program = world.compile("cc", "settings.c", Link::Shared);
    let output = exits_with(&world.run(&[program.to_str().unwrap()], "", ""), 0);
    let reports: Vec<&str> = output.lines().filter(|line| line.contains("has no effect")).collect();
    assert!(matches!(&reports[..], [one] if one.contains("SCR: SCR_FLUSH of SCR_Config has no effect")), "{output}");
}

#[test]
fn a_drained_checkpoint_keeps_its_name_for_the_next_allocation(world: &World) {
    let program = world.compile("cc", "named.c", Link::Shared);
    let command = [program.to_str().unwrap(), "own", "6", &world.results()];
    // Two nodes are lost, and there is only one spare: the job ends unfinished, and the cache is drained.
    let ran =
        world.run(&command, "", "{node: 0, during: encode, checkpoint: 2}, {node: 1, during: encode, checkpoint: 4}");
    assert_eq!(ran.status.code(), Some(75), "{}", output(&ran));
    assert_eq!(world.current(), "step.3");
    world.finishes(&command, "", "");
    assert_eq!(world.result(2), format!("{} 3 step.3", sum(2, 6)));
}

#[test]
fn drops_deletes_and_selects_datasets_by_name(world: &World) {
    let program = world.compile("cc", "manage.c", Link::Shared);
    let program = program.to_str().unwrap();
    world.finishes(&[program, "write"], ", flush: {every: 0}", "");
    let names: Vec<String> = world.named_on_prefix().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["four", "one", "picture", "three"], "dataset `two` is deleted, `one` is only dropped");
    assert_eq!(world.index().lines().count(), 1 + 3, "{}", world.index());
    assert_eq!(world.current(), "four");
    world.finishes(&[program, "current", "three"], "", "");
    assert_eq!(world.current(), "three");
}

#[test]
fn halt_ends_scr_1_program_unless_it_calls_should_exit() {
    let halt = "halt: {checkpoints_left: 2}";
    let old = World::new();
    let program = old.compile("cc", "old_style.c", Link::Shared);
    let command = [program.to_str().unwrap(), "10", &old.results()];
    exits_with(&old.run_with(&command, "", "", halt), 75);
    assert!(!old.result_path(0).exists(), "it ended in SCR_Complete_checkpoint");
    old.finishes(&command, "", "");
    assert_eq!(old.result(3), format!("{} 4", sum(3, 10)));

    let asking = World::new();
    let program = asking.compile("cc", "named.c", Link::Shared);
    let command = [program.to_str().unwrap(), "own", "10", &asking.results()];
    asking.run_with(&command, "", "", halt);
    assert_eq!(asking.result(3), format!("{} 0 -", sum(3, 2)), "it ended by itself after two steps");
    assert_eq!(asking.current(), "step.2");
}

#[test]
fn ranks_find_the_files_of_all_ranks_on_the_prefix_with_scr_global_restart() {
    let world = World::new().with_variable("SCR_GLOBAL_RESTART", "1");
    let program = world.compile("cc", "all_files.c", Link::Shared);
    let command = [program.to_str().unwrap(), "6", &world.results()];
    // Once from the caches of this allocation, which are flushed for it, once in the next one.
    world.finishes(&command, ", flush: {every: 100}", "{node: 1, during: write, checkpoint: 4}");
    assert!(world.result(5).starts_with("3 6 "), "{}", world.result(5));
    let command = [program.to_str().unwrap(), "8", &world.results()];
    world.finishes(&command, "", "");
    for rank in 0..6 {
        let result = world.result(rank);
        assert!(result.starts_with("6 6 ") && !result.contains("/prefix/"), "{result}: written to the caches");
    }
}

#[test]
fn variables_of_scr_3_reach_the_ranks() {
    let bypassing = World::new().with_variable("SCR_CACHE_BYPASS", "1");
    let program = bypassing.compile("cc", "all_files.c", Link::Shared);
    bypassing.finishes(&[program.to_str().unwrap(), "2", &bypassing.results()], "", "");
    assert!(bypassing.result(1).contains("/prefix/"), "{}", bypassing.result(1));

    let halting = World::new().with_variable("SCR_HALT_EXIT", "0");
    let program = halting.compile("cc", "old_style.c", Link::Shared);
    let command = [program.to_str().unwrap(), "10", &halting.results()];
    halting.run_with(&command, "", "", "halt: {checkpoints_left: 2, grace: 10min}");
    assert_eq!(halting.result(3), format!("{} 0", sum(3, 10)), "it went on to its end");
}

#[test]
fn output_is_flushed_while_program_runs_and_survives_node_loss(world: &World) {
    let program = world.compile("cc", "manage.c", Link::Shared);
    let program = program.to_str().unwrap();
    // The picture, dataset 3, is lost while it is encoded: it is written again.
    world.finishes(
        &[program, "pictures"],
        ", flush: {every: 0, mode: async}",
        "{node: 2, during: encode, checkpoint: 3}",
    );
    let named = world.named_on_prefix();
    let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["picture.1", "picture.2", "picture.3", "state.3"], "only the newest checkpoint is drained");
    assert_eq!(world.current(), "state.3");
    for (name, directory) in &named {
        for rank in 0..6 {
            let (file, output) = (format!("r{rank}.txt"), world.path().join("prefix/data").join(name));
            // A checkpoint is complete in its directory; an output is where the program named it.
            let path = if name.starts_with("state") { directory.join(file) } else { output.join(file) };
            let text = std::fs::read_to_string(path).unwrap();
            assert_eq!(text, format!("{name} of {rank}"));
        }
    }
    assert_eq!(world.index().lines().filter(|line| line.starts_with('c')).count(), 4, "{}", world.index());
}
