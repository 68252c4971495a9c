//! Sources of progress besides the checkpoints.

use holdfast_model::{CheckpointId, Generation};

use super::world::{World, config, name};
use crate::events::{EndCause, GenerationProgress, LogEvent, StopReason};
use crate::exit;
use crate::launch::Obstacle;
use crate::relaunch::explain::Activity;
use crate::relaunch::*;

fn checked(limit: u32) -> World {
    World::running_with(Config { no_progress_limit: limit, checks_progress: true, ..config(9, 4) })
}

fn written() -> GenerationProgress {
    GenerationProgress::Files { file: "state".into() }
}

fn seen() -> Option<ProgressFound> {
    Some(ProgressFound::Progress(written()))
}

/// The progress of each generation that ended, and the number of those without.
fn recorded(world: &World) -> Vec<(Option<GenerationProgress>, u32)> {
    found!(world.actions, Action::Record(LogEvent::GenerationEnded { progress, without_progress, .. }) => {
        (progress.clone(), *without_progress)
    })
}

fn checks(world: &World) -> Vec<Generation> {
    found!(world.actions, Action::CheckProgress { generation } => *generation)
}

#[test]
fn where_nothing_shows_progress_its_lack_is_not_counted() {
    let unobserved = || Config { no_progress_limit: 1, source_reports_progress: false, ..config(9, 4) };
    let mut world = World::running_with(unobserved());
    world.dies(0);
    world.dies_later(1);
    assert_eq!(world.machine.explain().phase, Activity::Running);
    assert_eq!(recorded(&world), [(None, 0), (None, 0)]);
    assert!(world.machine.may_have_made_progress() && !world.machine.made_progress());
    // `progress` in the spec shows it, whatever the source is.
    let mut world = World::running_with(Config { checks_progress: true, ..unobserved() });
    world.progress = Some(ProgressFound::NoProgress);
    world.dies(0);
    assert!(matches!(world.stop(), StopReason::NoProgress { generations: 1, .. }));
}

#[test]
fn progress_of_another_source_starts_the_count_again() {
    let mut world = checked(2);
    world.dies(0);
    world.progress = seen();
    world.dies_later(1);
    world.progress = Some(ProgressFound::NoProgress);
    world.dies_later(2);
    assert_eq!(world.machine.explain().phase, Activity::Running);
    assert!(world.machine.made_progress());
    world.dies_later(3);
    assert!(matches!(world.stop(), StopReason::NoProgress { generations: 2, other_sources: true, .. }));
    assert_eq!(world.outcome().exit_code(), exit::NO_PROGRESS);
    assert!(world.outcome().to_string().contains("nothing that `progress` names has changed"));
    assert_eq!(recorded(&world), [(None, 1), (Some(written()), 0), (None, 1), (None, 2)]);
    assert_eq!(world.machine.explain().generations[1].progress, Some(written()));
}

#[test]
fn a_newer_checkpoint_is_progress_whatever_the_check_finds() {
    let mut world = checked(1);
    world.checkpoint(1);
    world.dies(0);
    world.checkpoint(2);
    world.progress = Some(ProgressFound::Unknown { reason: "stale handle".into() });
    world.dies(1);
    let checkpoint = |id| Some(GenerationProgress::Checkpoint { checkpoint: CheckpointId(id) });
    assert_eq!(recorded(&world), [(checkpoint(1), 0), (checkpoint(2), 0)]);
    assert_eq!(checks(&world), [Generation(1), Generation(2)]);
}

#[test]
fn a_check_without_result_changes_no_count() {
    let mut world = checked(2);
    world.dies(0);
    world.progress = Some(ProgressFound::Unknown { reason: "stale handle".into() });
    world.dies_later(1);
    world.dies_later(2);
    assert_eq!(recorded(&world), [(None, 1), (None, 1), (None, 1)]);
    let unknown = |action: &Action| matches!(action, Action::Record(LogEvent::ProgressUnknown { .. }));
    assert_eq!(world.actions.iter().filter(|action| unknown(action)).count(), 2);
    assert!(!world.machine.made_progress());
}

#[test]
fn nothing_is_launched_before_the_result_of_the_check() {
    let mut world = checked(3);
    world.progress = None;
    world.dies(0);
    assert_eq!((world.machine.explain().phase, world.launches().len()), (Activity::CheckingProgress, 1));
    // Not the cause, which is decided.
    world.dies(1);
    world.happens(Event::ProgressChecked { generation: Generation(7), found: ProgressFound::NoProgress });
    assert_eq!(world.launches().len(), 1, "the result of another generation");
    world.happens(Event::ProgressChecked { generation: Generation(1), found: ProgressFound::NoProgress });
    assert_eq!((world.machine.explain().phase, world.launches().len()), (Activity::Running, 2));
    assert_eq!(world.causes(), [EndCause::NodeFailure { nodes: vec![name(0)] }]);
}

#[test]
fn a_signal_during_the_check_ends_the_job_with_its_result() {
    let mut world = checked(3);
    world.progress = None;
    world.dies(0);
    world.happens(Event::Signal { name: "SIGTERM".into() });
    assert!(!world.machine.is_finished());
    world.happens(Event::ProgressChecked { generation: Generation(1), found: ProgressFound::NoProgress });
    assert_eq!(*world.stop(), StopReason::Signal { name: "SIGTERM".into() });
    assert_eq!(world.launches().len(), 1);
}

#[test]
fn the_third_signal_does_not_wait_for_the_check() {
    let mut world = checked(3);
    world.progress = None;
    world.dies(0);
    (0..3).for_each(|_| world.happens(Event::Signal { name: "SIGTERM".into() }));
    assert!(world.machine.is_finished());
}

#[test]
fn an_orchestrator_that_takes_over_repeats_the_check() {
    let mut world = checked(3);
    world.progress = None;
    world.dies(0);
    world.machine = world.twin();
    world.progress = seen();
    world.begin();
    assert_eq!(checks(&world), [Generation(1), Generation(1)]);
    assert_eq!(recorded(&world), [(Some(written()), 0)]);
    assert_eq!(world.launches().len(), 2);
}

#[test]
fn what_never_ran_and_what_is_finished_is_not_checked() {
    let mut world = checked(3);
    let generation = world.generation();
    world.happens(Event::LaunchFailed { generation, reason: "busy".into(), obstacle: Obstacle::Manager });
    assert_eq!(recorded(&world), [(None, 1)]);
    world.ranks_end_well();
    assert_eq!(*world.stop(), StopReason::Finished);
    assert_eq!(checks(&world), []);
    assert!(world.machine.made_progress(), "a job that is finished has made progress");
}

#[test]
fn only_the_first_launch_that_the_job_itself_prevents_is_not_repeated() {
    let failed = |world: &mut World| {
        let generation = world.generation();
        world.happens(Event::LaunchFailed { generation, reason: "no such option".into(), obstacle: Obstacle::Job });
    };
    let mut world = checked(3);
    failed(&mut world);
    assert_eq!(*world.stop(), StopReason::Incurable { reason: "no such option".to_owned() });
    let mut world = checked(3);
    world.dies(0);
    failed(&mut world);
    assert!(!world.machine.is_finished(), "another node may have what this one lacks");
}

#[test]
fn a_complete_checkpoint_is_progress_when_it_has_the_protection_of_its_scheme() {
    let (bytes, checkpoint) = (1, CheckpointId(1));
    for (protected, then_protected, expected) in [(true, false, None), (true, true, Some(1)), (false, false, Some(1))] {
        let mut world = World::running();
        world.joined(None);
        let generation = world.generation();
        world.happens(Event::CheckpointComplete { generation, checkpoint, protected, bytes });
        if then_protected {
            world.happens(Event::CheckpointProtected { generation, checkpoint });
        }
        let explanation = world.machine.explain();
        assert_eq!(
            (explanation.newest, explanation.protected),
            (Some(checkpoint), then_protected.then_some(checkpoint))
        );
        world.dies(0);
        let checkpoint = expected.map(|id| GenerationProgress::Checkpoint { checkpoint: CheckpointId(id) });
        assert_eq!(recorded(&world), [(checkpoint.clone(), u32::from(checkpoint.is_none()))]);
    }
}

#[test]
fn a_complete_checkpoint_whose_redundancy_fails_is_not_the_newest() {
    let mut world = World::running();
    world.joined(None);
    world.checkpoint(3);
    let (generation, checkpoint, reason) = (world.generation(), CheckpointId(4), "no space".to_owned());
    world.happens(Event::CheckpointComplete { generation, checkpoint, protected: true, bytes: 1 });
    assert_eq!(world.machine.newest(), Some(checkpoint));
    world.happens(Event::DatasetDropped { generation, checkpoint, reason });
    assert_eq!(world.machine.newest(), Some(CheckpointId(3)));
}

#[test]
fn a_start_of_the_library_from_the_beginning_is_compared_with_none_of_the_earlier_checkpoints() {
    let library = Config { no_progress_limit: 1, library_control: Some("/tmp".into()), ..config(9, 4) };
    let mut world = World::running_with(library);
    world.joined(None);
    world.checkpoint(9);
    world.dies(0);
    world.happens(Event::LibraryStarted { generation: world.generation() });
    // The library had chosen a checkpoint, and some rank had lost its files.
    world.joined(Some(8));
    world.joined(None);
    assert_eq!(world.machine.newest(), None);
    world.checkpoint(7);
    // An orchestrator that takes over may receive it again.
    world.joined(None);
    assert_eq!(world.machine.newest(), Some(CheckpointId(7)));
    world.dies_later(1);
    let newest: Vec<_> = world.machine.explain().generations.iter().map(|past| past.newest).collect();
    assert_eq!(newest[..2], [Some(CheckpointId(9)), Some(CheckpointId(7))]);
    let progress = |checkpoint| Some(GenerationProgress::Checkpoint { checkpoint: CheckpointId(checkpoint) });
    assert_eq!(recorded(&world), [(progress(9), 0), (progress(7), 0)]);
    // Without a checkpoint it is no progress.
    world.happens(Event::LibraryStarted { generation: world.generation() });
    world.joined(None);
    world.dies_later(2);
    assert!(matches!(world.stop(), StopReason::NoProgress { generations: 1, checkpoint: None, .. }));
}
