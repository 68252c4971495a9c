//! A source: keys of the spec, checks, settings of loop, rank processes and agents, and what agents do for it.

use std::path::Path;
use std::time::Duration;

use holdfast::job::settings;
use holdfast::launch::registry::registered;
use holdfast::spec::{
    CheckpointSource, FailureDomains, FrequencyFacts, KeyFacts, SourceFacts, reference, virtual_node,
};
use holdfast_agent::sources::{self, SourceEntry, SourcePolicy};
use holdfast_model::Dataset;
use holdfast_rank::SaverSettings;
use holdfast_wire::rank::Interface;
use holdfast_wire::run::CheckpointSchedule;

use super::{Spec, spec_in};

static ENTRY: SourceEntry = SourceEntry {
    name: "tape",
    is_library: true,
    has_rank_processes: true,
    interface: Interface::Files,
    reports_progress: false,
    refuses_calls: None,
    policy: |_| Box::new(WhenHalting),
};

static TAPE: CheckpointSource = CheckpointSource {
    facts: SourceFacts {
        agent: &ENTRY,
        doc: "a tape",
        keys: KeyFacts {
            takes: &[("resume", "write `source: tape`, or leave it out"), ("command", "")],
            without: &[("need", "a tape does not ask")],
        },
        frequency: FrequencyFacts::None { help: "leave it out" },
        can_be_interposed: false,
        has_levels: true,
    },
    check: |step| {
        if step.checkpoint.command.save.is_none() {
            step.mistake("source", "`source: tape` needs a command", "write `command: {save: [./tape]}`");
        }
    },
    saver: |checkpoint| {
        let save = checkpoint.command.save.clone()?;
        Some(SaverSettings::Command { save, timeout: checkpoint.command.timeout })
    },
    schedule: |_| Some(CheckpointSchedule::Every(Duration::from_secs(7))),
};

static ADDED: [&SourceEntry; 1] = [&ENTRY];

#[derive(Debug)]
struct WhenHalting;

impl SourcePolicy for WhenHalting {
    fn is_due(&mut self, _: Duration, halting: bool) -> bool {
        halting
    }

    fn refuses_requests(&self) -> Option<&'static str> {
        Some("a tape is slow")
    }

    fn is_progress(&self, dataset: &Dataset) -> bool {
        dataset.output
    }
}

fn spec(checkpoint: &str) -> Spec {
    spec_in(checkpoint, &[], &[&TAPE])
}

const WRITTEN: &str = "{source: tape, command: {save: [./tape]}, resume: [./app, -r], control: {base: /c}}";

#[test]
fn its_keys_are_read_checked_and_documented() {
    assert_eq!(spec(WRITTEN).unwrap().steps[0].checkpoint.source, "tape");
    for (checkpoint, expected) in [
        ("{source: tape}", "`source: tape` needs a command"),
        ("{source: tape, need: {seconds: 5}, command: {save: [a]}}", "`need` has no effect with `source: tape`"),
        ("{source: tape, watch: {files: [a]}}", "`watch` has no effect with `source: tape`"),
        ("{source: tap}", "did you mean `tape`?"),
    ] {
        let mistakes = spec(checkpoint).unwrap_err();
        assert!(mistakes.contains(expected), "{checkpoint}: {mistakes}");
    }
    let mut registered = registered();
    registered.add_source(&TAPE);
    assert!(reference::text(&registered).contains("`tape`: a tape."));
}

#[test]
fn its_facts_reach_the_loop_the_rank_processes_and_the_agents() {
    let spec = spec(WRITTEN).unwrap();
    let step = &spec.steps[0];
    let config = settings::config(&spec, step, &[virtual_node(0)], &FailureDomains::default(), 0, None);
    assert_eq!((config.library_control.as_deref(), config.source_reports_progress), (Some("/c"), false));
    let ranks = settings::rank_settings(&spec, step).unwrap();
    assert!(matches!(ranks.saver, SaverSettings::Command { .. }) && ranks.resume.is_some());
    let settings = settings::settings(&spec, step, Path::new("/p"), None);
    assert_eq!(settings.schedule, Some(CheckpointSchedule::Every(Duration::from_secs(7))));
    // One of each level.
    assert_eq!(settings.descriptors.len(), 3);

    assert!(sources::add(&ADDED));
    let source = sources::open(&settings).unwrap();
    assert!(source.entry().is_library && source.entry().has_rank_processes);
    let mut policy = source.policy();
    assert!(policy.is_due(Duration::ZERO, true) && !policy.is_due(Duration::ZERO, false));
    assert!(!policy.is_progress(&Dataset::default()));
}
