//! One drain each, with what goes wrong in it.

use holdfast_model::{CheckpointId, ContainerKind, ContainerPolicy, Rank};

use super::world::*;
use crate::drain::*;
use crate::events::{DrainResult, LogEvent};

fn complete(id: u64) -> DrainResult {
    DrainResult::Complete { checkpoint: CheckpointId(id) }
}

fn incomplete(world: &World) -> (u64, &str) {
    match &world.report().result {
        DrainResult::Incomplete { checkpoint, reason, .. } => (checkpoint.0, reason),
        other => panic!("{other:?}"),
    }
}

/// Whether an action is a request that matches.
macro_rules! is {
    ($request:pat $(if $condition:expr)?) => {
        move |action: &DrainAction| {
            use DrainRequest::*;
            matches!(action, DrainAction::Request(_, $request) $(if $condition)?)
        }
    };
}

fn inventory_of(node: u32) -> impl Fn(&DrainAction) -> bool {
    is!(TakeInventory { agent, .. } if agent.node == name(node))
}

fn copy_of(node: u32) -> impl Fn(&DrainAction) -> bool {
    is!(Copy { agent, .. } if agent.node == name(node))
}

/// The nodes of the verifications so far, `here` for the orchestrator.
fn verified_at(world: &World) -> Vec<String> {
    found!(world.log, DrainAction::Request(_, DrainRequest::Verify { agent, .. }) => {
        agent.as_ref().map_or("here".to_owned(), |agent| agent.node.to_string())
    })
}

#[test]
fn the_newest_dataset_is_copied_by_every_node_and_indexed() {
    let mut world = World::new(4, XOR, &[1, 2]);
    world.run(|_| false);
    let report = world.report();
    assert_eq!(report.result, complete(2));
    assert_eq!((report.bytes, report.copied.len(), report.retry_may_help), (40, 4, false));
    assert_eq!(report.directory.as_deref(), Some("directory.2"));
    let copied = [0, 1, 2, 3].map(|node| format!("copied 1 node{node} [{node}]"));
    let mut expected = vec!["started 2".to_owned()];
    expected.extend(copied);
    expected.push("indexed 2 true".to_owned());
    assert_eq!(world.events(), expected);
    assert_eq!(found!(world.log, DrainAction::Request(_, DrainRequest::NoteFlushed { .. }) => ()).len(), 4);
    assert!(verified_at(&world).is_empty(), "what was just copied with checksums is not read again");
}

fn flushed(world: &mut World, ids: &[u64]) {
    for id in ids {
        world.datasets.get_mut(&CheckpointId(*id)).unwrap().flushed = true;
    }
}

#[test]
fn a_flushed_dataset_whose_copy_is_damaged_is_copied_again() {
    let mut world = World::new(4, XOR, &[1, 2]);
    flushed(&mut world, &[1, 2]);
    world.run(|_| false);
    assert_eq!(world.report().result, DrainResult::Nothing);
    assert!(world.events().is_empty());
    world.configure(|_| {});
    world.lost_flushes = [CheckpointId(2)].into();
    world.run(|_| false);
    assert_eq!(world.report().result, complete(2));
    assert_eq!(world.events()[..2], ["flushed copy damaged 2".to_owned(), "started 2".to_owned()]);
}

/// Why it is not known that everything is saved, and the nodes of which nothing is known.
fn doubt(world: &World) -> (String, Vec<String>) {
    assert_eq!(world.report().result, DrainResult::Nothing);
    let nodes = world.report().failed_nodes.keys().map(ToString::to_string).collect();
    (world.report().doubt().unwrap_or_default(), nodes)
}

#[test]
fn nothing_is_certain_if_a_node_is_not_seen_and_no_other_knows_of_a_dataset() {
    let mut world = World::new(4, XOR, &[]);
    world.run(|_| false);
    assert_eq!(doubt(&world), (String::new(), Vec::new()));
    world.without(&[1]);
    world.run(|_| false);
    let (reason, nodes) = doubt(&world);
    assert!(reason.contains("what node1 has is not known"), "{reason}");
    assert_eq!(nodes, ["node1"]);
    world.configure(|config| {
        config.agents.remove(&name(2));
        config.lost.insert(name(2));
    });
    world.run(|_| false);
    world.wait();
    assert!(doubt(&world).0.contains("what node1 node2 has is not known"));
}

#[test]
fn a_flushed_dataset_is_enough_though_a_node_is_not_seen_if_the_index_lists_it() {
    let mut world = World::new(4, XOR, &[1, 2]);
    flushed(&mut world, &[1, 2]);
    world.without(&[1]);
    world.run(|_| false);
    assert_eq!(doubt(&world), (String::new(), vec!["node1".to_owned()]));
    world.configure(|_| {});
    world.flushed_elsewhere = [CheckpointId(2)].into();
    world.run(|_| false);
    assert!(doubt(&world).0.contains("`holdfast drain --checkpoint 2` copies it here too"));
}

#[test]
fn a_node_that_is_not_seen_is_named_after_a_complete_drain() {
    let mut world = World::new(4, XOR, &[2]);
    world.without(&[1]);
    world.run(|_| false);
    let report = world.report();
    assert_eq!((&report.result, report.doubt()), (&complete(2), None));
    assert_eq!(report.failed_nodes.keys().collect::<Vec<_>>(), [&name(1)]);
}

#[test]
fn an_older_flushed_dataset_is_enough_only_if_its_copy_is_intact() {
    let mut world = World::new(4, XOR, &[1, 2]);
    flushed(&mut world, &[1, 2]);
    // Two members of the set are lost: nothing can be copied completely.
    world.without(&[1, 2]);
    world.lost_flushes = [CheckpointId(2)].into();
    world.run(|_| false);
    assert_eq!(incomplete(&world).0, 2);
    let older = |world: &World| match world.report().result {
        DrainResult::Incomplete { older, .. } => older,
        _ => None,
    };
    assert_eq!(older(&world), Some(CheckpointId(1)));
    world.configure(|_| {});
    world.lost_flushes.insert(CheckpointId(1));
    world.run(|_| false);
    let damaged: Vec<String> = world.events().into_iter().filter(|event| event.contains("flushed copy")).collect();
    assert_eq!(damaged, ["flushed copy damaged 2", "flushed copy damaged 1"]);
    assert_eq!(older(&world), None);
}

#[test]
fn nothing_is_said_to_be_drained_if_the_prefix_directory_cannot_be_examined() {
    let examine = is!(ExamineFlushed { .. });
    let mut world = World::new(4, XOR, &[1, 2]);
    flushed(&mut world, &[2]);
    world.run(examine);
    world.fail(examine);
    assert!(matches!(world.end, Some(DrainEnd::Failed(DrainError::Prefix { .. }))), "{:?}", world.end);
    // A newer one is copied nevertheless.
    let mut world = World::new(4, XOR, &[1, 2]);
    flushed(&mut world, &[1]);
    world.run(examine);
    world.fail(examine);
    world.release();
    assert_eq!(world.report().result, complete(2));
}

#[test]
fn what_only_the_nodes_have_is_left_by_the_drain_of_another_dataset() {
    let mut world = World::new(4, XOR, &[1, 2, 3]);
    world.configure(|config| config.requested = Some(CheckpointId(2)));
    world.run(|_| false);
    assert_eq!(world.report().result, complete(2));
    assert_eq!(world.report().left, [CheckpointId(3)].into());
    // A damaged copy in the prefix directory does not count.
    flushed(&mut world, &[1, 3]);
    world.configure(|config| config.requested = Some(CheckpointId(2)));
    world.run(|_| false);
    assert!(world.report().left.is_empty());
    world.lost_flushes = [CheckpointId(3)].into();
    world.configure(|config| config.requested = Some(CheckpointId(2)));
    world.run(|_| false);
    assert_eq!(world.report().left, [CheckpointId(3)].into());
}

#[test]
fn a_preview_says_that_a_flushed_dataset_is_damaged() {
    let mut world = World::new(4, XOR, &[1, 2]);
    flushed(&mut world, &[2]);
    world.lost_flushes = [CheckpointId(2)].into();
    world.configure(|config| config.survey_only = true);
    world.run(|_| false);
    let Some(DrainEnd::Surveyed(survey)) = &world.end else { panic!("{:?}", world.end) };
    assert_eq!(survey.plan.candidates[0].checkpoint, CheckpointId(2));
    assert!(survey.plan.damaged.contains_key(&CheckpointId(2)));
}

#[test]
fn a_node_that_dies_in_round_1_and_comes_back_copies_its_own_files() {
    let mut world = World::new(4, PARTNER, &[1]);
    world.run(copy_of(1));
    world.lose(1);
    assert!(world.machine.deadline().is_some());
    world.release();
    world.restart(1);
    assert_eq!(world.report().result, complete(1));
    assert!(world.copies().iter().all(|copy| copy.contains("round 1")), "{:?}", world.copies());
    assert_eq!(world.copies().iter().filter(|copy| copy.contains("node1 ")).count(), 2);
    // The answers to the first orders are logged before those to repeated ones.
    let events = world.events();
    let copied: Vec<&str> = events.iter().filter_map(|event| event.strip_prefix("copied 1 ")).collect();
    assert_eq!(copied, ["node0 [0]", "node1 [] failure", "node2 [2]", "node3 [3]", "node1 [1]"]);
}

#[test]
fn a_node_that_comes_back_during_round_1_copies_at_once() {
    let mut world = World::new(4, XOR, &[1]);
    world.run(|action| copy_of(0)(action) || copy_of(1)(action));
    world.lose(1);
    world.withhold = Box::new(copy_of(0));
    world.restart(1);
    assert_eq!(world.open.len(), 1, "node1 has copied while node0 still copies");
    world.release();
    assert_eq!(world.report().copied, [0, 1, 2, 3].map(Rank));
}

#[test]
fn the_partner_copies_in_round_2_for_a_node_whose_agent_is_not_restarted() {
    let mut world = World::new(4, PARTNER, &[1]);
    world.run(copy_of(1));
    world.lose(1);
    world.release();
    assert!(world.end.is_none(), "its agent may come back");
    assert_eq!(world.machine.deadline(), Some(world.now + LOST_AGENT_WAIT));
    world.wait();
    assert_eq!(world.report().result, complete(1));
    assert_eq!(world.copies().last().unwrap(), "1 round 2 node2 only for [node1]");
    assert_eq!(world.report().failed_nodes.keys().next(), Some(&name(1)));
}

#[test]
fn a_node_that_goes_down_is_not_waited_for() {
    let mut world = World::new(4, PARTNER, &[1]);
    world.run(copy_of(1));
    world.lose(1);
    world.bring_down(1);
    world.release();
    assert_eq!(world.report().result, complete(1));
    assert_eq!(world.machine.deadline(), None);
}

#[test]
fn partners_copy_in_round_1_for_nodes_that_are_known_to_be_down() {
    let mut world = World::new(4, PARTNER, &[1]);
    world.without(&[1]);
    world.run(|_| false);
    assert_eq!(world.report().result, complete(1));
    let expected = ["node0", "node2", "node3"].map(|node| format!("1 round 1 {node} for [node1]"));
    assert_eq!(world.copies(), expected);
}

#[test]
fn a_node_that_goes_down_in_one_dataset_is_down_for_the_next() {
    let mut world = World::new(4, PARTNER, &[1, 2]);
    for rank in [2, 3] {
        world.datasets.get_mut(&CheckpointId(2)).unwrap().unreadable.insert(Rank(rank));
    }
    // No file of rank 2 is left: its own cannot be read, and the node with the copy goes down.
    world.run(copy_of(3));
    world.bring_down(3);
    world.release();
    assert_eq!(world.report().result, complete(1));
    let copies = world.copies();
    let of_1: Vec<_> = copies.iter().filter(|copy| copy.starts_with("1 ")).collect();
    assert_eq!(of_1, ["node0", "node1", "node2"].map(|node| format!("1 round 1 {node} for [node3]")).each_ref());
}

#[test]
fn a_lost_rank_is_rebuilt() {
    let mut world = World::new(4, XOR, &[1]);
    world.without(&[3]);
    world.run(|_| false);
    assert_eq!(world.report().result, complete(1));
    assert_eq!(world.report().rebuilt, [Rank(3)]);
    assert_eq!(world.events().last_chunk(), Some(&["rebuilt 3".to_owned(), "indexed 1 true".to_owned()]));
}

#[test]
fn a_damaged_file_affects_its_rank_only() {
    let mut world = World::new(4, XOR, &[1]);
    world.datasets.get_mut(&CheckpointId(1)).unwrap().unreadable.insert(Rank(2));
    world.run(|_| false);
    assert_eq!(world.report().result, complete(1));
    assert_eq!(world.report().copied, [0, 1, 3].map(Rank));
    assert_eq!(world.report().rebuilt, [Rank(2)]);
    assert!(world.events().contains(&"copied 1 node2 [] failure".to_owned()));
}

#[test]
fn if_no_agent_answers_the_drain_fails_and_may_be_repeated() {
    let mut world = World::new(2, XOR, &[1]);
    world.run(is!(TakeInventory { .. }));
    world.fail(inventory_of(0));
    world.fail(inventory_of(1));
    world.wait();
    let Some(DrainEnd::Failed(error)) = &world.end else { panic!("{:?}", world.end) };
    assert_eq!(*error, DrainError::NoInventory { reason: "disk error".to_owned() });
    assert!(DrainReport::failed(error).retry_may_help);
}

#[test]
fn without_agents_the_drain_fails_at_once() {
    let mut world = World::new(2, XOR, &[1]);
    world.without(&[0, 1]);
    world.run(|_| false);
    assert!(matches!(&world.end, Some(DrainEnd::Failed(DrainError::NoInventory { .. }))));
}

#[test]
fn the_inventory_of_a_lost_agent_is_requested_again_after_its_restart() {
    let mut world = World::new(4, XOR, &[1]);
    world.run(inventory_of(3));
    world.lose(3);
    assert!(world.end.is_none());
    world.restart(3);
    world.release();
    assert_eq!(world.report().copied, [0, 1, 2, 3].map(Rank));
}

#[test]
fn an_agent_that_is_being_restarted_when_the_drain_begins_is_waited_for() {
    let mut world = World::new(4, XOR, &[1]);
    world.without(&[2, 3]);
    world.configure(|config| config.lost = std::mem::take(&mut config.down));
    world.run(|_| false);
    assert_eq!(world.machine.deadline(), Some(LOST_AGENT_WAIT));
    world.restart(2);
    world.wait();
    assert_eq!(world.report().result, complete(1));
    assert_eq!((&*world.report().copied, &*world.report().rebuilt), (&[0, 1, 2].map(Rank)[..], &[Rank(3)][..]));
}

#[test]
fn an_older_dataset_is_drained_if_the_newest_cannot_be_completed() {
    let mut world = World::new(4, XOR, &[1, 2]);
    world.datasets.get_mut(&CheckpointId(2)).unwrap().unreadable.extend([Rank(0), Rank(1)]);
    world.run(|_| false);
    assert_eq!(world.report().result, complete(1));
    assert_eq!(world.prefix[&CheckpointId(2)].indexed, Some(false));
    let events = world.events();
    let milestones: Vec<&String> = events.iter().filter(|event| !event.starts_with("copied")).collect();
    assert_eq!(milestones, ["started 2", "indexed 2 false", "started 1", "indexed 1 true"]);
}

#[test]
fn the_report_is_that_of_the_newest_dataset_if_none_can_be_completed() {
    let mut world = World::new(4, XOR, &[1, 2]);
    for cached in world.datasets.values_mut() {
        cached.unreadable.extend([Rank(0), Rank(1)]);
    }
    world.run(|_| false);
    let (id, reason) = incomplete(&world);
    assert_eq!(id, 2);
    assert!(reason.contains("rank 0 was not copied: rank_0.ckpt: input/output error"), "{reason}");
    assert!(world.report().retry_may_help);
}

#[test]
fn an_incomplete_dataset_is_recorded_as_incomplete() {
    let mut world = World::new(4, XOR, &[1]);
    world.without(&[2, 3]);
    world.run(|_| false);
    let (id, reason) = incomplete(&world);
    assert_eq!(id, 1);
    assert!(reason.contains("two members of the XOR set "), "{reason}");
    assert_eq!(world.prefix[&CheckpointId(1)].indexed, Some(false));
    assert!(!world.report().retry_may_help, "all that is left was copied");
}

#[test]
fn an_interrupted_directory_is_resumed() {
    let mut world = World::new(4, XOR, &[1]);
    world.resumable.insert(CheckpointId(1));
    world.run(|_| false);
    assert_eq!(world.events()[0], "resumed 1");
    assert_eq!(world.report().result, complete(1));
}

#[test]
fn output_is_drained_first_and_does_not_end_the_drain() {
    let mut world = World::new(4, XOR, &[1, 2]);
    world.datasets.insert(CheckpointId(3), Cached { output: true, ..Cached::default() });
    world.run(|_| false);
    assert_eq!(world.report().result, complete(2));
    let published = found!(world.log, DrainAction::Request(_, DrainRequest::Publish { findings, .. }) => {
        (findings.directory.to_string(), findings.make_current)
    });
    let expected = [("directory.3".to_owned(), false), ("directory.2".to_owned(), true)];
    assert_eq!(published, expected);
}

#[test]
fn output_whose_paths_are_taken_is_reported_and_the_checkpoints_are_drained() {
    let mut world = World::new(4, XOR, &[1, 2]);
    world.datasets.insert(CheckpointId(3), Cached { output: true, checkpoint: false, ..Cached::default() });
    world.refused.insert(CheckpointId(3));
    world.run(|_| false);
    assert_eq!(world.report().result, complete(2));
    assert_eq!(world.prefix[&CheckpointId(3)].indexed, Some(false));
    let skipped = |action: &DrainAction| {
        matches!(action, DrainAction::Emit(LogEvent::DrainSkipped { checkpoint: CheckpointId(3), reason })
            if reason == "its path is taken")
    };
    assert!(world.log.iter().any(skipped));
}

#[test]
fn nothing_is_drained_if_the_newest_dataset_is_in_the_prefix_directory() {
    let mut world = World::new(4, XOR, &[1, 2]);
    world.datasets.get_mut(&CheckpointId(2)).unwrap().flushed = true;
    world.run(|_| false);
    assert_eq!(world.report().result, DrainResult::Nothing);
    assert!(world.copies().is_empty());
}

#[test]
fn a_requested_dataset_is_drained() {
    let mut world = World::new(4, XOR, &[1, 2]);
    world.configure(|config| config.requested = Some(CheckpointId(1)));
    world.run(|_| false);
    assert_eq!(world.report().result, complete(1));
    assert_eq!(world.prefix.len(), 1);
}

#[test]
fn a_requested_dataset_that_no_node_has_is_an_error() {
    let mut world = World::new(4, XOR, &[1]);
    world.configure(|config| config.requested = Some(CheckpointId(7)));
    world.run(|_| false);
    let error = DrainError::NoSuchDataset { id: CheckpointId(7), known: vec![CheckpointId(1)] };
    assert_eq!(error.to_string(), "no node that answers has dataset 7; they have 1");
    assert_eq!(world.end, Some(DrainEnd::Failed(error)));
}

#[test]
fn a_survey_changes_nothing() {
    let mut world = World::new(4, XOR, &[1, 2]);
    world.configure(|config| config.survey_only = true);
    world.run(|_| false);
    let Some(DrainEnd::Surveyed(survey)) = &world.end else { panic!("{:?}", world.end) };
    assert_eq!(survey.inventories.len(), 4);
    assert_eq!(survey.plan.candidates[0].checkpoint, CheckpointId(2));
    assert!(world.prefix.is_empty() && world.events().is_empty());
}

#[test]
fn a_file_that_fails_its_checksum_is_rebuilt() {
    let mut world = World::new(4, XOR, &[1]);
    world.configure(|config| config.crc = false);
    world.corrupted.insert(Rank(2));
    world.run(|_| false);
    assert_eq!(world.report().result, complete(1));
    assert_eq!(world.report().rebuilt, [Rank(2)]);
    let events = world.events();
    assert_eq!(events[events.len() - 3..], ["damaged rank_2.ckpt of rank 2", "rebuilt 2", "indexed 1 true"]);
}

#[test]
fn a_rebuild_that_fails_at_an_agent_is_done_by_the_orchestrator() {
    let mut world = World::new(4, XOR, &[1]);
    world.without(&[3]);
    world.run(is!(Rebuild { .. }));
    world.fail(is!(Rebuild { agent: Some(_), .. }));
    assert!(world.open.values().all(is!(Rebuild { agent: None, .. })));
    world.release();
    assert_eq!(world.report().result, complete(1));
}

#[test]
fn a_rebuild_that_fails_leaves_the_dataset_incomplete() {
    let mut world = World::new(4, XOR, &[1]);
    world.without(&[3]);
    world.run(is!(Rebuild { .. }));
    world.fail(is!(Rebuild { .. }));
    world.fail(is!(Rebuild { .. }));
    let (_, reason) = incomplete(&world);
    assert!(reason.contains("was not rebuilt: disk error"), "{reason}");
    assert!(world.report().rebuilt.is_empty());
}

#[test]
fn the_drain_fails_if_it_cannot_be_published() {
    let mut world = World::new(4, XOR, &[1, 2]);
    world.run(is!(Publish { .. }));
    world.fail(|_| true);
    assert_eq!(
        world.end,
        Some(DrainEnd::Failed(DrainError::Prefix { reason: "disk error".to_owned(), unwritable: false }))
    );
    assert!(!world.log.iter().any(is!(CloseDirectory)));
}

#[test]
fn the_drain_fails_if_no_directory_can_be_opened() {
    let mut world = World::new(4, XOR, &[1]);
    world.run(is!(OpenDirectory { .. }));
    world.fail(|_| true);
    assert!(matches!(&world.end, Some(DrainEnd::Failed(DrainError::Prefix { .. }))));
}

#[test]
fn files_whose_agent_is_lost_are_verified_by_the_orchestrator() {
    let mut world = World::new(4, XOR, &[1]);
    world.configure(|config| config.crc = false);
    world.run(is!(Verify { .. }));
    assert_eq!(verified_at(&world), ["node0"]);
    world.lose(0);
    assert_eq!(verified_at(&world), ["node0", "here"]);
    world.release();
    assert_eq!(world.report().result, complete(1));
}

#[test]
fn without_agents_the_orchestrator_verifies() {
    let mut world = World::new(2, XOR, &[1]);
    world.configure(|config| config.crc = false);
    world.run(is!(Scan { .. }));
    world.lose(0);
    world.lose(1);
    world.release();
    assert_eq!(verified_at(&world), ["here"]);
    assert_eq!(world.report().result, complete(1));
}

#[test]
fn verification_is_spread_over_the_agents() {
    let mut world = World::new(40, XOR, &[1]);
    world.configure(|config| config.crc = false);
    world.run(|_| false);
    assert_eq!(verified_at(&world), ["node0", "node1", "node10"], "in batches, in the order of the names");
}

#[test]
fn a_node_that_is_lost_between_inventory_and_copy_copies_when_it_is_back() {
    let mut world = World::new(4, XOR, &[1]);
    world.run(is!(OpenDirectory { .. }));
    world.lose(2);
    world.release();
    assert!(world.end.is_none());
    world.restart(2);
    assert_eq!(world.report().copied, [0, 1, 2, 3].map(Rank));
}

#[test]
fn an_answer_after_the_loss_of_the_agent_is_ignored() {
    let mut world = World::new(4, XOR, &[1]);
    world.run(copy_of(1));
    let request = *world.open.keys().next().unwrap();
    let answer = world.carry_out(&world.open[&request].clone());
    world.lose(1);
    world.feed(DrainEvent::Answered { request, answer });
    world.wait();
    assert_eq!(world.report().failed_nodes.keys().collect::<Vec<_>>(), [&name(1)]);
    assert_eq!(world.report().result, complete(1), "the files are there all the same");
}

#[test]
fn unfinished_flushes_are_removed_after_a_complete_drain_and_kept_after_an_incomplete_one() {
    let mut world = World::new(3, XOR, &[4]);
    world.unfinished_flushes = [CheckpointId(5)].into();
    world.run(|_| false);
    assert_eq!(world.events().last().map(String::as_str), Some("abandoned directory.5"));

    let mut world = World::new(3, XOR, &[4]);
    world.unfinished_flushes = [CheckpointId(5)].into();
    world.without(&[1, 2]);
    world.run(|_| false);
    assert!(!world.log.iter().any(is!(AbandonFlushes)));
}

#[test]
fn older_checkpoints_are_deleted_after_the_drain_and_its_copies_are_read_first() {
    let mut world = World::new(3, XOR, &[4]);
    world.left_out = [2, 1].into();
    world.configure(|config| config.keep = 2);
    world.run(|_| false);
    let verified = world.log.iter().position(is!(Verify { .. })).unwrap();
    let kept = world.log.iter().position(is!(KeepWindow { keep: 2 })).unwrap();
    assert!(verified < kept);
    let events = world.events();
    assert_eq!(events[events.len() - 2..], ["deleted 1 in directory.1", "deleted 2 in directory.2"]);

    // Nothing is deleted beside a dataset that is not complete.
    let mut world = World::new(3, XOR, &[4]);
    world.without(&[1, 2]);
    world.configure(|config| config.keep = 2);
    world.run(|_| false);
    assert!(!world.log.iter().any(is!(KeepWindow { .. })));
}

#[test]
fn a_flush_that_cannot_be_removed_does_not_fail_the_drain() {
    let mut world = World::new(3, XOR, &[4]);
    world.run(is!(AbandonFlushes));
    world.fail(is!(AbandonFlushes));
    assert!(matches!(world.report().result, DrainResult::Complete { .. }));
}

#[test]
fn a_drain_ends_the_run_on_every_node_and_a_survey_on_none() {
    fn end_run(world: &World) -> Vec<bool> {
        found!(world.log, DrainAction::Request(_, DrainRequest::TakeInventory { end_run, .. }) => *end_run)
    }
    let mut world = World::new(3, XOR, &[4]);
    world.run(|_| false);
    assert_eq!(end_run(&world), [true; 3]);
    world.configure(|config| config.survey_only = true);
    world.run(|_| false);
    assert_eq!(end_run(&world), [false; 3]);
}

fn packing(config: &mut DrainConfig) {
    config.container = Some(ContainerPolicy { kind: ContainerKind::Sion, files: 2 });
}

#[test]
fn files_are_packed_and_the_container_is_completed_before_the_scan() {
    let mut world = World::new(4, XOR, &[1]);
    world.configure(packing);
    world.run(is!(CommitContainer { .. }));
    let containers = found!(world.log, DrainAction::Request(_, DrainRequest::Copy { container, .. }) => container);
    assert_eq!(containers.into_iter().flatten().map(|places| places.ranks.len()).collect::<Vec<_>>(), [1, 1, 1, 1]);
    assert!(!world.log.iter().any(is!(Scan { .. })));
    world.release();
    assert_eq!(world.report().result, complete(1));
}

/// The ranks whose files are in a container of dataset 1.
fn packed(world: &World) -> Vec<u32> {
    world.prefix[&CheckpointId(1)].packed.iter().map(|rank| rank.0).collect()
}

#[test]
fn the_files_of_a_lost_member_are_rebuilt_and_moved_into_a_container() {
    let mut world = World::new(4, XOR, &[1]);
    world.configure(packing);
    world.run(copy_of(2));
    world.bring_down(2);
    world.release();
    assert_eq!(world.report().result, complete(1));
    assert_eq!((world.report().rebuilt.as_slice(), packed(&world)), ([Rank(2)].as_slice(), vec![0, 1, 2, 3]));
    assert_eq!(found!(world.log, DrainAction::Request(_, DrainRequest::Repack { .. }) => ()).len(), 1);
}

#[test]
fn rebuilt_files_that_cannot_be_moved_stay_plain_and_the_dataset_is_complete() {
    let mut world = World::new(4, XOR, &[1]);
    world.configure(packing);
    world.without(&[2]);
    world.configure(packing);
    world.run(is!(Repack { .. }));
    world.fail(is!(Repack { .. }));
    assert_eq!(world.report().result, complete(1));
    assert_eq!(packed(&world), [0, 1, 3]);
    assert!(world.events().contains(&"plain files 1".to_owned()), "{:?}", world.events());
    assert_eq!(found!(world.log, DrainAction::Request(_, DrainRequest::Repack { .. }) => ()).len(), 1);
}

#[test]
fn a_file_found_damaged_when_it_is_moved_is_rebuilt_again_or_makes_the_dataset_incomplete() {
    for is_redundant in [true, false] {
        let mut world = World::new(4, XOR, &[1]);
        world.configure(packing);
        world.without(&[2]);
        world.configure(packing);
        world.damaged_later.insert(Rank(2));
        world.run(is!(Repack { .. }));
        if !is_redundant {
            // Another member is lost meanwhile.
            world.prefix.get_mut(&CheckpointId(1)).unwrap().files.remove(&Rank(0));
        }
        world.release();
        assert_eq!(world.report().result == complete(1), is_redundant, "{:?}", world.report());
        assert_eq!(world.prefix[&CheckpointId(1)].files[&Rank(2)], is_redundant);
        let rebuilt: &[Rank] = if is_redundant { &[Rank(2)] } else { &[] };
        assert_eq!(world.report().rebuilt, rebuilt);
        assert_eq!(found!(world.log, DrainAction::Request(_, DrainRequest::Repack { .. }) => ()).len(), 1);
        assert!(world.events().contains(&"plain files 1".to_owned()), "{:?}", world.events());
    }
}

#[test]
fn plain_files_that_an_earlier_drain_left_are_verified_and_moved() {
    let mut world = World::new(4, XOR, &[1]);
    world.configure(packing);
    world.resumable.insert(CheckpointId(1));
    // Of rank 0 and 1; that of rank 1 was damaged since.
    let left = Directory { files: [(Rank(0), true), (Rank(1), false)].into(), ..Directory::default() };
    world.prefix.insert(CheckpointId(1), left);
    world.run(|_| false);
    assert_eq!(world.report().result, complete(1));
    assert_eq!((world.report().rebuilt.as_slice(), packed(&world)), ([Rank(1)].as_slice(), vec![0, 1, 2, 3]));
}

#[test]
fn without_a_container_the_files_are_plain_and_the_log_says_so() {
    let mut world = World::new(4, XOR, &[1]);
    world.configure(packing);
    world.no_container = true;
    world.run(|_| false);
    assert_eq!(world.report().result, complete(1));
    assert_eq!(packed(&world), [0; 0]);
    assert_eq!(world.events()[..2], ["started 1", "plain files 1"]);
    assert!(!world.log.iter().any(is!(CommitContainer { .. } | Repack { .. })));
}

#[test]
fn a_partner_packs_the_files_of_a_lost_node_at_a_place_of_their_own() {
    let mut world = World::new(4, PARTNER, &[1]);
    world.configure(packing);
    world.run(copy_of(1));
    world.bring_down(1);
    world.release();
    assert_eq!(world.report().result, complete(1));
    let second = found!(world.log,
        DrainAction::Request(_, DrainRequest::Copy { container, order, .. }) if order.round == 2 => container.clone()
    );
    let places: Vec<_> = second.into_iter().flatten().flat_map(|places| places.ranks).collect();
    assert_eq!(places.iter().map(|(rank, place)| (*rank, place.first_chunk)).collect::<Vec<_>>(), [(Rank(1), 1)]);
}
