//! The job spec: its meaning, its defaults, and the messages about its mistakes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use holdfast::allocation::ssh::hosts::SshSettings;
use holdfast::launch::registry::registered;
use holdfast::spec::{
    Environment, ExitAction, FaultAction, FaultMoment, InjectedFault, JobSpec, MAX_BYTES, NodeReference, Origin,
    Settings,
};
use holdfast_core::redundancy::numbers::SET_SIZE;
use holdfast_core::redundancy::rs;
use holdfast_model::{CheckpointId, CrcOnCopy, Scheme};
use holdfast_wire::run::FaultPoint;
use proptest::prelude::*;

const MINIMAL: &str = "run: {command: [./app]}\n";

fn parse(text: &str) -> JobSpec {
    JobSpec::parse(text, "job.yaml", &Environment::empty(registered())).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn faults(spec: &JobSpec) -> &[InjectedFault] {
    &spec.allocation.faults
}

/// The messages about the mistakes.
fn mistakes_in(text: &str) -> String {
    match JobSpec::parse(text, "job.yaml", &Environment::empty(registered())) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(mistakes) => mistakes.to_string(),
    }
}

fn config(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(name)).unwrap()
}

fn keys(spec: &JobSpec) -> BTreeSet<String> {
    spec.settings.iter().map(|setting| setting.key.clone()).collect()
}

#[test]
fn reference_contains_every_key_with_default() {
    let text = config("reference.yaml");
    let mut reference = JobSpec::parse(&text, "reference.yaml", &Environment::empty(registered()))
        .unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let mut defaults = parse(MINIMAL);
    assert_eq!(keys(&reference), keys(&defaults));
    for key in keys(&defaults) {
        let last = key.rsplit('.').next().unwrap();
        assert!(text.contains(&format!("{last}:")), "{key} is not in the reference");
        assert_eq!(reference.settings.get(&key).unwrap().value, defaults.settings.get(&key).unwrap().value, "{key}");
    }
    // Their origins differ; the values must not.
    reference.settings = Settings::default();
    defaults.settings = Settings::default();
    assert_eq!(format!("{reference:?}"), format!("{defaults:?}"));
}

#[test]
fn quick_start_recovers_from_two_lost_nodes() {
    let spec = parse(&config("quickstart.yaml"));
    assert_eq!(spec.allocation.manager, Some("local"));
    assert_eq!(spec.allocation.nodes, 6);
    let [step] = &spec.steps[..] else { panic!("one step") };
    assert_eq!((step.run.nodes, step.run.ranks), (4, 4));
    assert_eq!(
        (step.checkpoint.redundancy[0].scheme, SET_SIZE.of(&step.checkpoint.redundancy[0].numbers)),
        (Scheme::new("XOR"), 4)
    );
    let moments: Vec<_> = faults(&spec).iter().map(|fault| fault.moment.clone()).collect();
    let after = |id| FaultMoment::AfterCheckpoint(CheckpointId(id));
    assert_eq!(moments, [after(2), after(5)]);
}

#[test]
fn command_alone_is_a_complete_job() {
    let spec =
        JobSpec::from_command(&["./app".to_owned(), "--flag: [odd".to_owned()], &Environment::empty(registered()))
            .unwrap();
    assert_eq!(spec.steps[0].run.command, ["./app", "--flag: [odd"]);
    assert_eq!(spec.settings.get("run.command").unwrap().origin, Origin::CommandLine);
    let mut defaults = parse(MINIMAL);
    defaults.steps[0].run.command = spec.steps[0].run.command.clone();
    defaults.settings = spec.settings.clone();
    assert_eq!(format!("{spec:?}"), format!("{defaults:?}"));
    assert!(
        JobSpec::from_command(&[], &Environment::empty(registered()))
            .unwrap_err()
            .to_string()
            .contains("the command is empty")
    );
}

#[test]
fn parses_all_kinds_of_values() {
    let spec = parse(
        "job: big\n\
         allocation:\n\
         \x20 manager: local\n\
         \x20 nodes: 6\n\
         \x20 time_limit: 1h30m\n\
         \x20 faults:\n\
         \x20   - {node: 1, after: 250ms}\n\
         \x20   - {node: node2, during: encode, checkpoint: 3, action: kill-agent}\n\
         run: {nodes: 4, ranks_per_node: 2, command: [app, 400, true], env: {THREADS: 4}}\n\
         checkpoint:\n\
         \x20 control: {bytes: 1MiB}\n\
         \x20 cache: [{base: /dev/shm, keep: 3, bytes: 1GiB}, {base: /scratch}]\n\
         \x20 redundancy:\n\
         \x20   - {scheme: partner, hop_distance: 2}\n\
         \x20   - {scheme: xor, set_size: 4, every: 5, cache: /scratch}\n\
         \x20 need: {seconds: 600}\n\
         relaunch: {on_exit_code: [{codes: [2, 17], action: stop}]}\n\
         before: [{command: [./stage-in], on: all}]\n\
         halt: {before_end: 5min}\n",
    );
    assert_eq!(spec.allocation.time_limit, Some(Duration::from_secs(5400)));
    assert_eq!(faults(&spec)[0].moment, FaultMoment::After(Duration::from_millis(250)));
    assert_eq!(faults(&spec)[1].action, FaultAction::KillAgent(NodeReference::Name("node2".into())));
    let encode = FaultMoment::During { phase: FaultPoint::Encode, checkpoint: Some(CheckpointId(3)) };
    assert_eq!(faults(&spec)[1].moment, encode);
    let step = &spec.steps[0];
    assert_eq!((step.name.as_str(), step.run.ranks), ("big", 8));
    assert_eq!(step.run.command, ["app", "400", "true"]);
    assert_eq!(step.run.env["THREADS"], "4");
    assert_eq!(step.checkpoint.redundancy[0].cache, Path::new("/dev/shm"));
    assert_eq!(step.checkpoint.redundancy[1].cache, Path::new("/scratch"));
    assert_eq!(step.checkpoint.need.time.as_secs(), 600);
    let [rule] = &spec.relaunch.on_exit_code[..] else { panic!("one rule") };
    assert_eq!((&rule.codes[..], rule.action), (&[2, 17][..], ExitAction::Stop));
}

#[test]
fn ranks_and_nodes_complete_each_other() {
    for (run, nodes, per_node, ranks) in [
        ("ranks: 7, nodes: 4", 4, 2, 7),
        ("ranks: 7, ranks_per_node: 4", 2, 4, 7),
        ("ranks: 3", 3, 1, 3),
        ("ranks_per_node: 2", 6, 2, 12),
    ] {
        let text = format!("allocation: {{nodes: 6}}\nrun: {{command: [a], {run}}}\n");
        let spec = parse(&text);
        let run_spec = &spec.steps[0].run;
        assert_eq!((run_spec.nodes, run_spec.ranks_per_node, run_spec.ranks), (nodes, per_node, ranks), "{run}");
    }
    // 13 ranks on 6 nodes are 3 a node, and one node would be empty: reported, not guessed.
    let message = mistakes_in("allocation: {nodes: 6}\nrun: {command: [a], ranks: 13}\n");
    assert!(message.contains("write `nodes: 5`"), "{message}");
}

#[test]
fn steps_run_in_order_each_with_its_own_prefix_and_checkpoints() {
    let spec = parse(
        "prefix: /pfs/job\n\
         allocation: {nodes: 4}\n\
         steps:\n\
         - {name: prepare, run: {nodes: 1, command: [./mesh]}}\n\
         - {name: simulate, run: {command: [./solve]}, checkpoint: {flush: {every: 5}}}\n",
    );
    assert_eq!(spec.steps[1].prefix, Path::new("/pfs/job/simulate"));
    assert_eq!(spec.steps[1].needs, ["prepare"]);
    assert_eq!((spec.steps[0].run.nodes, spec.steps[1].run.nodes), (1, 4));
    assert_eq!((spec.steps[0].checkpoint.flush.every, spec.steps[1].checkpoint.flush.every), (10, 5));
}

#[test]
fn steps_and_a_top_level_run_exclude_each_other() {
    let text =
        "steps:\n- {name: a, run: {command: [x]}}\n- {name: b, needs: [a], run: {command: [x]}}\nrun: {nodes: 1}\n";
    let message = mistakes_in(text);
    assert!(message.contains("job.yaml:4:1: run: `steps` and a top-level `run` exclude each other"), "{message}");
}

#[test]
fn unknown_names_and_cycles_in_needs_are_refused_with_their_place() {
    let step = |name: &str, needs: &str| format!("- {{name: {name}, run: {{command: [x]}}{needs}}}\n");
    let with = |steps: &[(&str, &str)]| {
        let steps: String = steps.iter().map(|(name, needs)| step(name, needs)).collect();
        mistakes_in(&format!("steps:\n{steps}"))
    };
    let message = with(&[("prepare", ""), ("simulate", ", needs: [prepare, prepair]")]);
    let expected = "job.yaml:3:58: steps[1].needs[1]: there is no step named `prepair`";
    assert!(message.contains(expected) && message.contains("did you mean `prepare`?"), "{message}");
    // Without `needs`, the second step needs the first one.
    let message = with(&[("a", ", needs: [b]"), ("b", "")]);
    let expected = "steps[0].needs: `a` needs `b`, which needs `a`: none of them could begin";
    assert!(message.contains("job.yaml:2:") && message.contains(expected), "{message}");
    let message = with(&[("a", ""), ("b", ", needs: [c]"), ("c", ", needs: [d]"), ("d", ", needs: [b]")]);
    let expected = "steps[1].needs: `b` needs `c`, which needs `d`, which needs `b`";
    assert!(message.contains("job.yaml:3:") && message.contains(expected), "{message}");
    let message = with(&[("a", ", needs: [a]")]);
    assert!(message.contains("steps[0].needs: `a` needs `a`"), "{message}");
}

#[test]
fn rejects_steps_with_different_control_directories() {
    let steps = |first: &str, second: &str| {
        format!("steps:\n- {{name: a, run: {{command: [x]}}{first}}}\n- {{name: b, run: {{command: [x]}}{second}}}\n")
    };
    let shm = ", checkpoint: {control: {base: /dev/shm}}";
    let message = mistakes_in(&steps("", shm));
    assert!(message.contains("job.yaml:3:47: steps[1].checkpoint.control: "), "{message}");
    assert!(message.contains("differs from that of step `a`") && message.contains("help: write the same"), "{message}");
    let message = mistakes_in(&steps(shm, ""));
    assert!(message.contains("job.yaml:2:47: steps[0].checkpoint.control: "), "{message}");
    assert_eq!(parse(&steps(shm, shm)).steps.len(), 2);
}

#[test]
fn an_unknown_key_is_reported_with_position_and_nearest_spelling() {
    assert_eq!(
        mistakes_in("run:\n  command: [./app]\n  ranks_pernode: 2\n"),
        "job.yaml:3:3: run.ranks_pernode: unknown key\n\
         \x20 |\n\
         3 |   ranks_pernode: 2\n\
         \x20 |   ^^^^^^^^^^^^^\n\
         \x20 |\n\
         \x20 = help: did you mean `ranks_per_node`?"
    );
    assert_eq!(
        mistakes_in("run: {command: [./app]}\ncheckpoint: {crc: {frobnicate: 1}}\n"),
        "job.yaml:2:20: checkpoint.crc.frobnicate: unknown key\n\
         \x20 |\n\
         2 | checkpoint: {crc: {frobnicate: 1}}\n\
         \x20 |                    ^^^^^^^^^^\n\
         \x20 |\n\
         \x20 = help: keys here: on_copy, on_flush, on_restart, on_delete"
    );
}

#[test]
fn a_wrong_type_is_reported_with_what_was_expected_and_found() {
    assert_eq!(
        mistakes_in("run:\n  nodes: four\n  command: ./app --fast\nhealth: {poll: 250}\nrelaunch: 5\n"),
        "job.yaml:2:10: run.nodes: expected a whole number from 1 to 65536, found the text `four`\n\
         \x20 |\n\
         2 |   nodes: four\n\
         \x20 |          ^^^^\n\
         \n\
         job.yaml:3:12: run.command: expected a list of strings, found the text `./app --fast`\n\
         \x20 |\n\
         3 |   command: ./app --fast\n\
         \x20 |            ^^^^^^^^^^^^\n\
         \x20 |\n\
         \x20 = help: commands are not split by a shell: write `[./app, --fast]`\n\
         \n\
         job.yaml:4:16: health.poll: expected a duration with a unit, such as `250ms`, `30s`, `5min` or `1h30m`, \
         found the number `250`\n\
         \x20 |\n\
         4 | health: {poll: 250}\n\
         \x20 |                ^^^\n\
         \n\
         job.yaml:5:11: relaunch: expected a section (lines of `key: value`), found the number `5`\n\
         \x20 |\n\
         5 | relaunch: 5\n\
         \x20 |           ^\n\
         \x20 |\n\
         \x20 = help: `relaunch` is a section; configs/reference.yaml lists its keys"
    );
}

#[test]
fn a_missing_command_is_reported() {
    assert_eq!(
        mistakes_in("job: heat\nrun:\n  nodes: 1\n"),
        "job.yaml:2:1: run.command: the command is missing; it is the only key without default\n\
         \x20 |\n\
         2 | run:\n\
         \x20 | ^^^\n\
         \x20 |\n\
         \x20 = help: write the program and its arguments: `command: [./app, --steps, \"400\"]`"
    );
    for text in ["", "# nothing\n", "run:\n", "run: {command: []}\n", "run: {command: ['']}\n"] {
        assert!(mistakes_in(text).contains("run.command: the command is"), "{text}");
    }
}

#[test]
fn ranks_0_is_refused_with_its_position() {
    assert_eq!(
        mistakes_in("run: {command: [a], ranks: 0}\n"),
        "job.yaml:1:28: run.ranks: expected a whole number from 1 to 1048576, found the number `0`\n\
         \x20 |\n\
         1 | run: {command: [a], ranks: 0}\n\
         \x20 |                            ^"
    );
}

#[test]
fn failures_that_a_set_cannot_survive_are_refused_with_their_position() {
    let spec =
        |numbers: &str| format!("run: {{command: [a]}}\ncheckpoint:\n  redundancy:\n  - {{scheme: rs, {numbers}}}\n");
    let refused = mistakes_in(&spec("set_size: 4, failures: 4"));
    let expected = "checkpoint.redundancy[0].failures: with RS, a set of 4 members cannot lose 4";
    assert!(refused.starts_with(&format!("job.yaml:4:41: {expected}\n")), "{refused}");
    assert!(refused.contains("help: write fewer `failures`, or a larger `set_size`"), "{refused}");
    let refused = mistakes_in(&spec("set_size: 200, failures: 2"));
    assert!(refused.contains("with 2 failures a set can have at most 127 members"), "{refused}");
    let refused = mistakes_in(&spec("failures: 0"));
    assert!(refused.contains("checkpoint.redundancy[0].failures"), "{refused}");
    let of_xor = mistakes_in("run: {command: [a]}\ncheckpoint: {redundancy: [{scheme: xor, failures: 3}]}\n");
    assert!(of_xor.contains("`failures` has no effect with `scheme: xor`"), "{of_xor}");
    let parsed = parse(&spec("set_size: 10, failures: 2"));
    assert_eq!(parsed.steps[0].checkpoint.redundancy[0].numbers.get(rs::FAILURES.name), Some(2));
}

#[test]
fn set_size_1_with_xor_is_refused_with_its_position() {
    assert_eq!(
        mistakes_in("run: {command: [a]}\ncheckpoint:\n  redundancy:\n  - scheme: xor\n    set_size: 1\n"),
        "job.yaml:5:15: checkpoint.redundancy[0].set_size: with XOR, a set of 1 protects nothing\n\
         \x20 |\n\
         5 |     set_size: 1\n\
         \x20 |               ^\n\
         \x20 |\n\
         \x20 = help: write at least 2 (4 to 16 are usual), or `scheme: local`"
    );
    parse("run: {command: [a]}\ncheckpoint: {redundancy: [{scheme: local, set_size: 1}]}\n");
}

#[test]
fn more_nodes_than_the_allocation_has_are_refused_with_their_position() {
    assert_eq!(
        mistakes_in("allocation: {nodes: 4}\nrun: {command: [a], nodes: 5}\n"),
        "job.yaml:2:28: run.nodes: the run needs 5 nodes, the allocation has 4\n\
         \x20 |\n\
         2 | run: {command: [a], nodes: 5}\n\
         \x20 |                            ^\n\
         \x20 |\n\
         \x20 = help: raise `allocation.nodes` to at least 5, or lower `run.nodes`"
    );
}

#[test]
fn excluded_nodes_do_not_count_for_the_run() {
    let excluded = |run: &str| format!("allocation:\n  nodes: 4\n  exclude: node[1,9]\nrun: {{command: [a]{run}}}\n");
    assert_eq!(parse(&excluded("")).steps[0].run.nodes, 3);
    let message = mistakes_in(&excluded(", nodes: 4"));
    assert!(message.starts_with("job.yaml:4:28: run.nodes: the run needs 4 nodes, the allocation has 4, 1 of them"));
    assert!(message.contains("raise `allocation.nodes` to at least 5"), "{message}");
    // Without a number, there are enough virtual nodes.
    let spec = parse("allocation:\n  exclude: node[0-1]\nrun: {command: [a], nodes: 2}\n");
    assert_eq!(spec.allocation.nodes, 4);
    // Thousands of excluded nodes are not compared with each of as many nodes.
    let spec = parse("allocation:\n  exclude: node[0-65000]\nrun: {command: [a], nodes: 900}\n");
    assert_eq!((spec.allocation.nodes, spec.allocation.usable), (65_901, 900));
    let message = mistakes_in("allocation:\n  exclude: n[1-\nrun: {command: [a]}\n");
    assert!(message.starts_with("job.yaml:2:12: allocation.exclude: expected a host list, such as"), "{message}");
}

#[test]
fn limit_of_ranks_on_fewer_nodes_is_checked_with_its_position() {
    let spec = |relaunch: &str| {
        format!(
            "allocation: {{nodes: 4}}\nrun: {{command: [a], nodes: 4, ranks_per_node: 2}}\nrelaunch: {{{relaunch}}}\n"
        )
    };
    parse(&spec("min_nodes: 3, max_ranks_per_node: 3"));
    let message = mistakes_in(&spec("min_nodes: 2, max_ranks_per_node: 3"));
    let expected =
        "job.yaml:3:46: relaunch.max_ranks_per_node: 8 ranks do not fit on 2 nodes with at most 3 ranks each";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("write at least 4, or raise `min_nodes`"), "{message}");
    let message = mistakes_in(&spec("max_ranks_per_node: 3"));
    assert!(
        message.starts_with("job.yaml:3:32: relaunch.max_ranks_per_node: `max_ranks_per_node` has no effect"),
        "{message}"
    );
}

#[test]
fn rejects_contradicting_numbers() {
    for (line, expected) in [
        ("health: {poll: 1s}", "health.down_after: `poll` (1s) is longer than `down_after` (750ms)"),
        ("health: {poll: 0}", "health.poll: shorter than 10ms"),
        (
            "health: {replace_after: 500ms}",
            "job.yaml:1:25: health.replace_after: `replace_after` (500ms) is shorter than `down_after` (750ms)",
        ),
        (
            "health: {replace_after: 10s, down_after: 5min}",
            "health.replace_after: `replace_after` (10s) is shorter than `down_after` (5min)",
        ),
        (
            "health: {hang_after: 20}",
            "health.hang_after: expected a duration with a unit, such as `30s` or `5min`, or `none`",
        ),
        ("health: {hang_after: 20ms}", "health.hang_after: shorter than 1s"),
        ("health: {test_timeout: 50ms}", "job.yaml:1:24: health.test_timeout: shorter than 100ms"),
        ("health: {disk_timeout: 50ms}", "health.disk_timeout: shorter than 100ms"),
        (
            "health: {busy_hang_after: 1h}",
            "health.busy_hang_after: `busy_hang_after` needs a `hang_after` that is not longer",
        ),
        (
            "health: {hang_after: 1h, busy_hang_after: 1min}",
            "health.busy_hang_after: `busy_hang_after` needs a `hang_after` that is not longer",
        ),
        (
            "health: {hang_after: 10min}\ncheckpoint: {source: jubatus, jubatus: {type: stat}}",
            "health.hang_after: with `checkpoint.every: auto` the time between two checkpoints has no limit",
        ),
        (
            "health: {hang_after: 1min}\ncheckpoint: {source: jubatus, jubatus: {type: stat, every: 1s}}",
            "health.hang_after: `checkpoint.jubatus.start_timeout` (1min) is not shorter than `hang_after` (1min)",
        ),
        (
            "health: {hang_after: 1min, busy_hang_after: 5min}\ncheckpoint: {source: command, command: {save: [a]}}",
            "health.busy_hang_after: with `checkpoint.every: auto` the time between two checkpoints has no limit",
        ),
        (
            "health: {hang_after: 1min, busy_hang_after: 5min}\n\
             checkpoint: {source: command, every: 10min, command: {save: [a]}}",
            "health.busy_hang_after: `checkpoint.every` (10min) is not shorter than `busy_hang_after` (5min)",
        ),
        ("checkpoint: {every: often}", "checkpoint.every: expected a time, `N calls` or `auto`"),
        ("checkpoint: {every: 0 calls}", "checkpoint.every: expected a time, `N calls` or `auto`"),
        (
            "checkpoint: {every: 10min, need: {seconds: 60}}",
            "checkpoint.need.seconds: `need.seconds` and `every` set the same",
        ),
        (
            "checkpoint: {source: command, every: auto, command: {save: [a], every: 1min}}",
            "checkpoint.command.every: `command.every` and `every` set the same",
        ),
        (
            "checkpoint: {source: variables, every: 1min, variables: {snapshots: {parity: 1h}}}",
            "checkpoint.variables.snapshots.parity: `variables.snapshots.parity` and `every` set the same",
        ),
        (
            "checkpoint: {source: command, every: 5 calls, command: {save: [a]}}",
            "checkpoint.every: `source: command` counts no calls",
        ),
        (
            "checkpoint: {source: scr-files, every: 1500ms}",
            "checkpoint.every: `source: scr-files` counts whole seconds",
        ),
        ("checkpoint: {source: none, every: 1min}", "checkpoint.every: `every` has no effect with `source: none`"),
        (
            "health: {waiting_after: 1s}\ncheckpoint: {source: none}",
            "health.waiting_after: `waiting_after` has no effect with `source: none`",
        ),
        (
            "health: {silent_api_after: none}\ncheckpoint: {source: scr-files}",
            "health.silent_api_after: `silent_api_after` has no effect with `source: scr-files`",
        ),
        (
            "health: {silent_api_after: 1s}\ncheckpoint: {source: command, command: {save: [a]}}",
            "health.silent_api_after: `silent_api_after` has no effect with `source: command`",
        ),
        (
            "checkpoint: {source: command, every: 1min, watch: {files: [a]}}",
            "checkpoint.every: `every` has no effect with `watch`",
        ),
        ("checkpoint: {cache: [{keep: 0}]}", "checkpoint.cache[0].keep: expected a whole number from 1 to 1000"),
        ("checkpoint: {copy_threads: 0}", "checkpoint.copy_threads: expected a whole number from 1 to 64"),
        ("checkpoint: {stream_timeout: 999ms}", "checkpoint.stream_timeout: shorter than 1s"),
        ("checkpoint: {cache: []}", "checkpoint.cache: the list is empty"),
        ("checkpoint: {cache: [{base: tmp}]}", "checkpoint.cache[0].base: `tmp` is not an absolute path"),
        ("checkpoint: {cache: [{base: /a/../b}]}", "checkpoint.cache[0].base: `/a/../b` is not an absolute path"),
        (
            "checkpoint: {redundancy: [{cache: /x}]}",
            "checkpoint.redundancy[0].cache: there is no cache with the base `/x`",
        ),
        ("checkpoint: {redundancy: [{every: 2}]}", "checkpoint.redundancy: no descriptor has `every: 1`"),
        ("checkpoint: {redundancy: [{}, {}]}", "checkpoint.redundancy[1].every: a second descriptor with `every: 1`"),
        (
            "checkpoint: {drain: {container: {files: 4}}}",
            "checkpoint.drain.container.files: `files` has no effect without `kind: sion`",
        ),
        (
            "checkpoint: {source: scr-files, flush: {container: {kind: sion}}}",
            "checkpoint.flush.container: a container cannot be used with `source: scr-files`",
        ),
        ("checkpoint: {flush: {percent: 20}}", "checkpoint.flush.percent: `percent` has no effect with `mode: sync`"),
        (
            "checkpoint: {source: scr-files, stream_timeout: 1min}",
            "checkpoint.stream_timeout: `stream_timeout` has no effect with `source: scr-files`",
        ),
        (
            "checkpoint: {source: scr-files, crc: {on_restart: false}}",
            "checkpoint.crc.on_restart: `crc.on_restart` has no effect with `source: scr-files`",
        ),
        ("checkpoint: {need: {overhead: 101}}", "checkpoint.need.overhead: expected a percentage from 0 to 100"),
        ("relaunch: {min_nodes: 9}", "relaunch.min_nodes: 9 nodes are more than the allocation has (1)"),
        (
            "relaunch: {on_exit_code: [{codes: [256], action: stop}]}",
            "relaunch.on_exit_code[0].codes: expected a list of exit codes",
        ),
        (
            "halt: {after: 2027-01-01T00:00:00Z, before: 2026-01-01T00:00:00Z}",
            "halt.after: `after` is later than `before`",
        ),
        (
            "halt: {before_end: 2h}\nallocation: {time_limit: 1h}",
            "halt.before_end: `before_end` (2h) is not shorter than",
        ),
        (
            "halt: {before_end: 2h}\nallocation: {manager: local}",
            "halt.before_end: `before_end` has no effect: the end of the allocation is not known with `manager: local`",
        ),
        ("allocation: {faults: [{node: 3, after: 1s}]}", "allocation.faults[0].node: there is no node 3"),
        ("allocation: {faults: [{node: n1, after: 1s}]}", "allocation.faults[0].node: there is no node `n1`"),
        ("allocation: {faults: [{node: 0}]}", "allocation.faults[0]: the moment is missing"),
        ("allocation: {faults: [{after: 1s}]}", "allocation.faults[0]: `node` is missing"),
        (
            "allocation: {faults: [{node: 0, after: 1s, during: write}]}",
            "allocation.faults[0]: more than one key sets the moment",
        ),
        (
            "allocation: {faults: [{node: 0, after: 1s, checkpoint: 3}]}",
            "allocation.faults[0].checkpoint: `checkpoint` has no effect here",
        ),
        (
            "allocation: {faults: [{rank: 1, after: 1s, action: kill-rank}]}",
            "allocation.faults[0].rank: there is no rank 1",
        ),
        ("allocation: {faults: [{node: 0, after: 1s, action: pause}]}", "allocation.faults[0]: `for` is missing"),
        (
            "allocation: {faults: [{node: 0, after: 1s, bytes: 1MB}]}",
            "allocation.faults[0].bytes: `bytes` has no effect with `action: kill`",
        ),
        (
            "allocation: {faults: [{during: copy, action: stall-prefix, for: 1s}]}",
            "allocation.faults[0].during: `during` has no effect with `action: stall-prefix`",
        ),
        ("job: ../../etc", "job: `../../etc` cannot be part of a path"),
        ("before: [{on: all}]", "before[0].command: the command is missing or empty"),
    ] {
        let message = mistakes_in(&format!("{line}\n{MINIMAL}"));
        assert!(message.contains(expected) && message.starts_with("job.yaml:1:"), "{line}\n{message}");
    }
}

#[test]
fn planned_values_are_refused_by_name() {
    let message = mistakes_in("run: {command: [a], launcher: prun}\n");
    let available = "available: `auto`, `local`, `srun`, `ssh`, `flux`, `mpirun`, `torchrun`";
    assert!(message.contains("`prun` is not available in this version") && message.contains(available), "{message}");
    // What was never run: the help names what a site has to send.
    for (line, name, help) in [
        (format!("allocation: {{manager: lsf}}\n{MINIMAL}"), "lsf", "what `bjobs`, `bhosts` and `blaunch` print"),
        ("run: {command: [a], launcher: jsrun}\n".to_owned(), "jsrun", "what jsrun prints when a rank fails"),
        ("run: {command: [a], launcher: aprun}\n".to_owned(), "aprun", "what aprun prints when a rank fails"),
        ("run: {command: [a], launcher: pals}\n".to_owned(), "pals", "what mpiexec prints when a rank fails"),
    ] {
        let message = mistakes_in(&line);
        let expected = format!("`{name}` is not available in this version");
        assert!(message.contains(&expected) && message.contains(help), "{message}");
        assert!(message.contains("docs/other-managers.md lists what a site has to send"), "{message}");
    }
    let message = mistakes_in("run: {command: [a]}\ncheckpoint: {redundancy: [{scheme: xorr}]}\n");
    assert!(message.contains("found `xorr`") && message.contains("did you mean `xor`?"), "{message}");
}

#[test]
fn mistakes_about_pairs_are_reported_with_their_position() {
    let pair = |keys: &str| format!("kind: replicated\npairs:\n  - {{name: a, main: [./a]{keys}}}\n");
    for (text, expected) in [
        ("kind: replicated\n".to_owned(), "`kind: replicated` needs `pairs`"),
        ("pairs: [{name: a, main: [./a]}]\nrun: {command: [a]}\n".to_owned(), "has no effect with `kind: job`"),
        (pair("") + "run: {command: [a]}\n", "4:1: run: `run` has no effect with `kind: replicated`"),
        (pair("") + "checkpoint: {flush: {every: 3}}\n", "`checkpoint.flush` has no effect with `kind: replicated`"),
        (pair("") + "halt: {grace: 3s}\n", "write `replication: {stop_grace: 50ms}`"),
        (pair(", nodes: [0]"), "expected two nodes, found 1"),
        (pair(", nodes: [0, nodeX]"), "the allocation has no node `nodeX`"),
        (pair(", count: 2"), "write `name: \"a{index}\"`"),
        (pair(", heartbeat: {period: 0}"), "at least 100us"),
        (pair(", heartbeat: {period: 99us}"), "at least 100us"),
        (pair(", checkpoint: {period: 100us}"), "a duration with a unit, such as `250ms`"),
        (pair(", heartbeat: {misses: 0}"), "a whole number from 1"),
        (pair(", checkpoint: {size: 2GiB}"), "a size from 1 to 1GiB"),
        (pair(", restart: {attempts: 0}"), "or `unlimited`"),
        (pair(", restart: {first: 1min}"), "`first` is longer than `most`"),
        (pair(", suspends: [b]"), "there is no job `b`"),
        (pair("") + "jobs: [{name: a, command: [b]}]\n", "a second pair or job named `a`"),
        (pair("") + "replication: {lease: 1ms}\n", "a lease is at least 100ms"),
        (pair(", nodes: 1"), "write the nodes of main and replica: `nodes: [0, 1]`"),
        (pair("") + "replication: {start_within: 0s}\n", "no copy could register in time"),
        (pair("") + "replication: {env: {HOLDFAST_PAIR_SIDE: main}}\n", "`HOLDFAST_PAIR_SIDE` is set by Holdfast"),
        (pair("") + "jobs: [{name: all, command: [b]}]\n", "`all` stands for all pairs"),
        ("kind: replicated\npairs: [{name: all, main: [./a]}]\n".to_owned(), "`all` stands for all pairs"),
        (pair("") + "jobs: [{name: a.replica, command: [b]}]\n", "that of the pair `a` would be in one file"),
        (
            pair(", nodes: [0, 1]") + "allocation: {nodes: 2}\nreplication: {lease: 1s, stop_grace: 600ms}\n",
            "write at most `stop_grace: 500ms`, or at least `lease: 1s200ms`",
        ),
        ("kind: replicated\npairs: [{name: ../a, main: [./a]}]\n".to_owned(), "cannot be part of a file's name"),
        ("kind: replicated\npairs: [{name: a}]\n".to_owned(), "the command is missing"),
    ] {
        let message = mistakes_in(&text);
        assert!(message.contains(expected) && message.starts_with("job.yaml:"), "{text}\n{message}");
    }
    // One mistake, of which the other one would follow.
    let message = mistakes_in(&pair(", count: 2"));
    assert!(!message.contains("a second pair or job named"), "{message}");
    for period in ["100us", "0.1ms", "60s"] {
        parse(&pair(&format!(", heartbeat: {{period: {period}}}")));
    }
    // Within a node there is no lease; names that differ from those of copies are permitted.
    parse(&(pair(", nodes: [0, node0]") + "replication: {lease: 1s, stop_grace: 10s}\n"));
    parse(&(pair("") + "jobs: [{name: b.main, command: [b]}, {name: a.log, command: [b]}]\n"));
}

#[test]
fn mistakes_about_jubatus_servers_are_reported() {
    let source =
        |keys: &str| format!("run: {{command: [jubastat], ranks: 3}}\ncheckpoint: {{source: jubatus{keys}}}\n");
    for (keys, message) in [
        ("", "the type of the servers is missing"),
        (", jubatus: {type: classifer}", "`classifier`"),
        (", jubatus: {type: stat, servers: [{}, {}]}", "2 servers for 3 ranks"),
        (", jubatus: {servers: [{type: stat}, {type: stat}, {}]}", "checkpoint.jubatus.servers[2]"),
        (", jubatus: {type: stat, port: 65534}", "the port of the last rank would be 65536"),
        (", jubatus: {type: stat, servers: [{type: stat}, {type: stat}, {type: stat}]}", "`type` has no effect"),
        (", jubatus: {type: stat, every: 1ms}", "shorter than 100ms"),
        (", jubatus: {type: stat, timeout: 0s}", "every checkpoint would be dropped"),
        (", jubatus: {type: stat, start_timeout: 0s}", "no server can be ready at once"),
        (", jubatus: {type: stat}, need: {seconds: 5}", "`need` has no effect with `source: jubatus`"),
        (", jubatus: {type: stat}, resume: [./app]", "`resume` has no effect with `source: jubatus`"),
    ] {
        let mistakes = mistakes_in(&source(keys));
        assert!(mistakes.contains(message), "{keys}: {mistakes}");
    }
    let other = mistakes_in(&format!("{MINIMAL}checkpoint: {{jubatus: {{type: stat}}}}\n"));
    assert!(other.contains("`jubatus` has no effect with `source: scr`"), "{other}");
    parse(&source(", jubatus: {type: stat, port: 65533}"));
}

#[test]
fn text_that_is_not_yaml_is_refused_with_its_position() {
    let message = mistakes_in("run:\n  command: [./app\nhealth: {poll: 1s}\n");
    assert!(message.starts_with("job.yaml:") && message.contains("invalid YAML"), "{message}");
    for text in
        ["a: b: c\n", "- x\n", "just words\n", "run: {command: [a]}\n---\nrun: {command: [b]}\n", "\t- a", "[a]: b\n"]
    {
        assert!(JobSpec::parse(text, "job.yaml", &Environment::empty(registered())).is_err(), "{text}");
    }
    let message = mistakes_in("job: a\njob: b\nrun: {command: [a]}\n");
    assert!(message.contains("job.yaml:2:1: job: duplicate key; the first is on line 1"), "{message}");
}

#[test]
fn resolves_aliases_and_rejects_alias_bomb() {
    let text = "x: &fast {poll: 100ms, down_after: 300ms}\nhealth: *fast\nrun: {command: [a]}\n";
    let mistakes = JobSpec::parse(text, "job.yaml", &Environment::empty(registered())).unwrap_err();
    assert_eq!(mistakes.count(), 1, "only `x` itself is unknown: {mistakes}");

    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    assert!(mistakes_in(&bomb).contains("more than 100000 values"));
    assert!(JobSpec::parse("a: &a [*a]\n", "job.yaml", &Environment::empty(registered())).is_err());
    for open in ["[", "{a: ", "- "] {
        assert!(mistakes_in(&open.repeat(100_000)).starts_with("job.yaml:1:"));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_reported_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("job.yaml");
    let message = |path: &Path| JobSpec::load(path, &Environment::empty(registered())).unwrap_err().to_string();
    assert!(message(&path).contains("job.yaml: there is no such file\n  = help: "));
    assert!(message(directory.path()).contains("this is a directory"));
    fs::write(&path, b"job: a\njob: \xff\n").unwrap();
    assert!(message(&path).contains("the file is not valid UTF-8: invalid byte at offset 12 (line 2)"));
    fs::write(&path, vec![b'#'; MAX_BYTES as usize + 1]).unwrap();
    assert!(message(&path).contains("the file is larger than 1MiB"));
    fs::write(&path, MINIMAL).unwrap();
    assert!(JobSpec::load(&path, &Environment::empty(registered())).is_ok());
}

/// The manager in force if the spec has `written` and one variable is set.
fn manager_in_force(written: Option<&'static str>, variable: &str) -> Result<&'static str, &'static str> {
    registered().manager(written, |name| (name == variable).then(|| "7".to_owned())).map(|facts| facts.name)
}

#[test]
fn auto_selects_local_outside_an_allocation() {
    assert_eq!(manager_in_force(None, ""), Ok("local"));
    assert_eq!(manager_in_force(None, "SLURM_JOB_ID"), Ok("slurm"));
    assert_eq!(manager_in_force(None, "PBS_JOBID"), Ok("pbs"));
    assert_eq!(manager_in_force(None, "LSB_JOBID"), Err("lsf"));
    assert_eq!(manager_in_force(Some("slurm"), ""), Ok("slurm"));
    assert_eq!(manager_in_force(Some("local"), "SLURM_JOB_ID"), Ok("local"));
}

#[test]
fn a_slurm_allocation_sets_the_number_of_nodes() {
    let inside = |text: &str| {
        let variables = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "6")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let job_environment = Environment::new(registered(), variables, Path::new("/nonexistent")).unwrap();
        JobSpec::parse(text, "job.yaml", &job_environment).map_err(|mistakes| mistakes.to_string())
    };
    let spec = inside("allocation: {manager: slurm}\nrun: {nodes: 4, command: [a]}\n").unwrap();
    assert_eq!((spec.allocation.nodes, spec.steps[0].run.nodes), (6, 4));
    let spec = inside("run: {ranks_per_node: 2, command: [a]}\n").unwrap();
    assert_eq!((spec.steps[0].run.nodes, spec.steps[0].run.ranks), (6, 12));
    let spec = inside("allocation: {manager: local, nodes: 3}\nrun: {command: [a]}\n").unwrap();
    assert_eq!(spec.allocation.nodes, 3);
    let mistakes = inside("allocation: {manager: slurm}\nrun: {nodes: 9, command: [a]}\n").unwrap_err();
    assert!(mistakes.contains("the allocation has 6") && mistakes.contains("sbatch --nodes"), "{mistakes}");
}

#[test]
fn the_site_file_sets_what_the_spec_does_not_in_every_step() {
    let directory = tempfile::tempdir().unwrap();
    let site = directory.path().join("scr.conf");
    fs::write(&site, "SCR_CNTL_BASE=/var/run\nSCR_FLUSH=3\nSCR_SET_SIZE=16\n").unwrap();
    let environment = [("SCR_CRC_ON_COPY".to_owned(), "1".to_owned())];
    let job_environment = Environment::new(registered(), environment, &site).unwrap();
    let text = "steps:\n\
                - {name: a, run: {command: [x]}, checkpoint: {flush: {every: 7}, crc: {on_copy: false}}}\n\
                - {name: b, run: {command: [x]}}\n";
    let spec = JobSpec::parse(text, "job.yaml", &job_environment).unwrap();
    let [first, second] = &spec.steps[..] else { panic!("two steps") };
    assert_eq!((first.checkpoint.flush.every, second.checkpoint.flush.every), (7, 3));
    assert_eq!(second.checkpoint.control.base, Path::new("/var/run"));
    assert_eq!(SET_SIZE.of(&second.checkpoint.redundancy[0].numbers), 16);
    assert_eq!(first.checkpoint.crc.on_copy, CrcOnCopy::Always, "the environment takes precedence over the spec");
}

/// The messages about a spec that is read inside of a Slurm allocation of six nodes.
fn mistakes_in_slurm(text: &str) -> String {
    let variables = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "6")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let job_environment = Environment::new(registered(), variables, Path::new("/nonexistent")).unwrap();
    JobSpec::parse(text, "job.yaml", &job_environment).map(drop).map_err(|mistakes| mistakes.to_string()).unwrap_err()
}

#[test]
fn keys_of_a_checkpoint_source_are_refused_where_they_have_no_effect() {
    let command = "source: command, command: {save: [./save]";
    for (checkpoint, expected) in [
        ("command: {save: [./save]}", "command: `command` has no effect with `source: scr`"),
        ("watch: {files: [a]}", "watch: `watch` has no effect with `source: scr`"),
        ("resume: [./app]", "resume: `resume` has no effect with `source: scr`"),
        ("source: command", "source: `source: command` needs a command, a signal or files to watch"),
        (&format!("{command}}}, watch: {{files: [a]}}"), "watch.files: `command.save` and `watch.files` exclude"),
        (&format!("{command}, until: file DONE}}"), "command.until: `until` has no effect without `signal`"),
        (&format!("{command}, every: 1ms}}"), "command.every: shorter than 100ms"),
        (&format!("{command}, timeout: 0s}}"), "command.timeout: every checkpoint would be dropped"),
        (&format!("{command}}}, need: {{seconds: 5}}"), "need: `need` has no effect with `source: command`"),
        (&format!("{command}}}, resume: []"), "resume: the command is empty"),
        ("source: command, command: {save: []}", "command.save: the command is empty"),
        ("source: command, command: {signal: USR1}", "command.signal: `until` is missing"),
        ("source: command, command: {signal: KILL, until: file a}", "command.signal: expected the name of a signal"),
        ("source: command, command: {signal: USR1, until: file a/b}", "command.until: expected `file NAME` or"),
        ("source: command, command: {signal: USR1, until: quiet 60s}", "command.until: not shorter than `timeout`"),
        ("source: command, watch: {files: []}", "watch.files: the list is empty"),
        ("source: command, watch: {files: [a/s, b/s]}", "watch.files[1]: `b/s` and `a/s` have the same name"),
        ("source: command, watch: {files: ['*/a']}", "watch.files[0]: `*/a` is not a pattern of files"),
        (
            "source: command, watch: {files: [a]}, command: {every: 5s}",
            "command.every: `every` has no effect with `watch`",
        ),
        ("source: none, cache: [{keep: 3}]", "cache: `cache` has no effect with `source: none`"),
    ] {
        let message = mistakes_in(&format!("checkpoint: {{{checkpoint}}}\n{MINIMAL}"));
        assert!(message.contains(&format!("checkpoint.{expected}")), "{checkpoint}\n{message}");
    }
    for key in ["relaunch: {no_progress_limit: 5}", "requeue: {slurm: true, no_progress_limit: 5}"] {
        let none = format!("{MINIMAL}checkpoint: {{source: none}}\n{key}\n");
        assert!(mistakes_in_slurm(&none).contains("nothing shows progress"), "{key}");
    }
    let progress = "relaunch: {no_progress_limit: 5}\nprogress: {output: step}\ncheckpoint: {source: none}\n";
    let text = format!("{MINIMAL}{progress}");
    assert!(JobSpec::parse(&text, "job.yaml", &Environment::empty(registered())).is_ok());
}

#[test]
fn keys_without_effect_with_the_selected_manager_are_refused_with_their_position() {
    for (allocation, place, key, help) in [
        ("manager: slurm, nodes: 4", "1:37", "nodes", "sbatch --nodes"),
        ("manager: slurm, time_limit: 1h", "1:42", "time_limit", "sbatch --time"),
        ("manager: slurm, hosts: [n1]", "1:30", "hosts", "write `manager: ssh`"),
        ("manager: slurm, ssh: {at_once: 4}", "1:30", "ssh", "`hosts: [n1, n2]`"),
        ("manager: local, hosts: [n1]", "1:30", "hosts", "write `manager: ssh`"),
        ("manager: local, ssh: {identity: key}", "1:30", "ssh", "`manager: ssh`"),
        ("manager: ssh, hosts: [n1], nodes: 1", "1:48", "nodes", "the list of hosts"),
    ] {
        let message = mistakes_in(&format!("allocation: {{{allocation}}}\n{MINIMAL}"));
        let expected = format!("job.yaml:{place}: allocation.{key}: `{key}` has no effect with `manager: ");
        assert!(message.starts_with(&expected) && message.contains(help), "{allocation}\n{message}");
    }
    // The environment determines what `auto` selects.
    let auto = "allocation: {nodes: 4, faults: [{node: 0, after: 1s}]}\nrun: {command: [a]}\n";
    parse(auto);
    let message = mistakes_in_slurm(auto);
    assert!(message.contains("`nodes` has no effect with `manager: slurm`"), "{message}");
    assert!(!message.contains("`faults`"), "{message}");
    // A key that repeats a default has no effect, and is accepted.
    parse("allocation: {manager: local, ssh: {port: 22, at_once: 32}}\nrun: {command: [a]}\n");
}

#[test]
fn keys_without_effect_with_the_selected_launcher_are_refused_with_their_position() {
    for (text, place, key) in [
        ("run: {command: [a], launcher_options: [-v]}", "1:21", "run.launcher_options"),
        ("run: {command: [a], launcher_program: mpirun}", "1:39", "run.launcher_program"),
        ("run: {command: [a], launcher: local, launcher_program: mpirun}", "1:56", "run.launcher_program"),
        ("steps:\n- {name: a, run: {command: [a], launcher_options: [-v]}}", "2:33", "steps[0].run.launcher_options"),
        ("allocation: {hosts: [n1]}\nrun: {command: [a], launcher_options: [-v]}", "2:21", "run.launcher_options"),
        ("allocation: {manager: slurm}\nrun: {command: [a], launcher_program: mpirun}", "2:39", "run.launcher_program"),
    ] {
        let message = mistakes_in(&format!("{text}\n"));
        assert!(message.starts_with(&format!("job.yaml:{place}: {key}: `")), "{message}");
        assert!(message.contains("has no effect with `launcher: ") && message.contains("help: "), "{message}");
    }
    parse("allocation: {manager: slurm}\nrun: {command: [a], launcher_options: [--mpi=pmix]}\n");
    parse(
        "allocation: {hosts: [n1]}\nrun: {command: [a], launcher: mpirun, launcher_program: p, launcher_options: \
        [-v]}\n",
    );
}

#[test]
fn a_bandwidth_limits_asynchronous_flushes_and_the_verification_only() {
    let message = mistakes_in("checkpoint: {flush: {bandwidth: 1MB/s}}\nrun: {command: [a]}\n");
    assert!(
        message.starts_with("job.yaml:1:33: checkpoint.flush.bandwidth: `bandwidth` has no effect with"),
        "{message}"
    );
    assert!(message.contains("help: it limits asynchronous flushes, and the verification for `keep`"), "{message}");
    let verified = parse("checkpoint: {flush: {keep: 2, bandwidth: 1MB/s}}\nrun: {command: [a]}\n");
    assert_eq!(verified.steps[0].checkpoint.flush.bandwidth, 1 << 20);
    let spec = parse("checkpoint: {flush: {mode: async, bandwidth: 1MB/s}}\nrun: {command: [a]}\n");
    assert_eq!(spec.steps[0].checkpoint.flush.bandwidth, 1 << 20);
}

#[test]
fn the_comparison_at_a_restart_is_refused_where_nothing_restarts_from_the_caches() {
    let text = "checkpoint: {restart: {distribute: false}, crc: {on_restart: false}}\nrun: {command: [a]}\n";
    let message = mistakes_in(text);
    assert!(message.contains("`on_restart` has no effect with `restart: {distribute: false}`"), "{message}");
    assert!(!parse("checkpoint: {crc: {on_restart: false}}\nrun: {command: [a]}\n").steps[0].checkpoint.crc.on_restart);
}

#[test]
fn checksums_of_copies_are_set_by_the_key_and_by_its_parameter() {
    let on_copy =
        |crc: &str| parse(&format!("checkpoint: {{{crc}}}\nrun: {{command: [a]}}\n")).steps[0].checkpoint.crc.on_copy;
    assert_eq!(on_copy(""), CrcOnCopy::WithRedundancy);
    assert_eq!(on_copy("crc: {on_copy: redundancy}"), CrcOnCopy::WithRedundancy);
    assert_eq!(on_copy("crc: {on_copy: true}"), CrcOnCopy::Always);
    assert_eq!(on_copy("crc: {on_copy: false}"), CrcOnCopy::Never);
    for (value, expected) in [("0", CrcOnCopy::Never), ("1", CrcOnCopy::Always)] {
        let environment = [("SCR_CRC_ON_COPY".to_owned(), value.to_owned())];
        let environment = Environment::new(registered(), environment, Path::new("/nonexistent")).unwrap();
        let spec = JobSpec::parse("run: {command: [a]}\n", "job.yaml", &environment).unwrap();
        assert_eq!(spec.steps[0].checkpoint.crc.on_copy, expected);
    }
}

proptest! {
    /// Any text is read or refused with a message that can be printed.
    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\PC|[\n\t {}:&*#'\"-]){0,200}") {
        if let Err(mistakes) = JobSpec::parse(&text, "job.yaml", &Environment::empty(registered())) {
            prop_assert!(mistakes.to_string().starts_with("job.yaml:"));
        }
    }

    /// A spec in which some lines were lost, doubled or changed: numbers at their limits, wrong types, broken sections.
    #[test]
    fn no_damage_to_a_spec_makes_the_reader_panic(
        damage in prop::collection::vec((0_usize..200, 0_usize..8), 1..6),
    ) {
        let mut lines: Vec<String> = config("reference.yaml").lines().map(str::to_owned).collect();
        for (at, how) in damage {
            let at = at % lines.len();
            let key = lines[at].split(':').next().unwrap_or_default().to_owned();
            lines[at] = match how {
                0 => String::new(),
                1 => format!("{key}: 18446744073709551615"),
                2 => format!("{key}: -1"),
                3 => format!("{key}: [{key}]"),
                4 => format!("{key}: {{a: {{b: c}}}}"),
                5 => format!("{key}: 0"),
                6 => format!("  {}", lines[at]),
                _ => format!("{key}: \"\\0\u{e9}\""),
            };
        }
        if let Err(mistakes) = JobSpec::parse(&lines.join("\n"), "job.yaml", &Environment::empty(registered())) {
            prop_assert!(mistakes.count() > 0 && !mistakes.to_string().is_empty());
        }
    }
}

#[test]
fn a_list_of_hosts_implies_ssh_and_sets_the_number_of_nodes() {
    let spec = parse("allocation: {hosts: [n1, anna@n2:2222, 'n[3-4]'], ssh: {port: 23}}\nrun: {command: [./app]}\n");
    assert_eq!((spec.allocation.manager, spec.allocation.nodes, spec.steps[0].run.nodes), (Some("ssh"), 4, 4));
    let settings: &SshSettings = spec.allocation.settings_of().unwrap();
    let hosts: Vec<_> = settings.hosts.iter().map(|host| (host.name.as_str(), host.port)).collect();
    assert_eq!(hosts, [("n1", 23), ("n2", 2222), ("n3", 23), ("n4", 23)]);
    assert_eq!(settings.hosts[1].user.as_deref(), Some("anna"));
    // Without hosts, ssh is never selected.
    assert_eq!(manager_in_force(None, ""), Ok("local"));
    assert_eq!(parse(MINIMAL).allocation.manager, None);
}

#[test]
fn hosts_are_read_from_a_file_and_mistakes_name_its_lines() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("hosts");
    fs::write(&path, "# the cluster\nn1\nn[2-3] anna@n4 # and one more\n\n").unwrap();
    let text = format!("allocation: {{hosts_file: {}}}\nrun: {{command: [./app]}}\n", path.display());
    assert_eq!(parse(&text).allocation.nodes, 4);
    fs::write(&path, "n1\nn2\nn1\n-oops\n").unwrap();
    let message = mistakes_in(&text);
    assert!(message.contains("`n1` is listed twice (line 3 of the hosts file); the first is on line 1"), "{message}");
    assert!(message.contains("(line 4 of the hosts file)"), "{message}");
    fs::write(&path, "# no host\n").unwrap();
    assert!(mistakes_in(&text).contains("the list of hosts is empty"));
    fs::remove_file(&path).unwrap();
    assert!(mistakes_in(&text).contains("cannot be read"));
}

#[test]
fn keys_that_conflict_with_hosts_are_refused_with_their_position() {
    let table = [
        ("manager: ssh", "job.yaml:1:23: allocation.manager: `manager: ssh` needs hosts"),
        ("hosts: []", "allocation.hosts: the list of hosts is empty"),
        ("hosts: [n1, n2, n1]", "job.yaml:1:30: allocation.hosts[2]: the host `n1` is listed twice"),
        ("hosts: [n1, 'a b']", "job.yaml:1:26: allocation.hosts[1]"),
        ("hosts: [n1], hosts_file: x", "`hosts` and `hosts_file` exclude each other"),
        ("manager: slurm, hosts: [n1]", "`hosts` has no effect with `manager: slurm`"),
        ("manager: local, ssh: {port: 23}", "`ssh` has no effect with `manager: local`"),
        ("hosts: [n1], nodes: 2", "`nodes` has no effect with `manager: ssh`"),
        ("hosts: [n1], faults: [{node: 1, after: 1s}]", "allocation.faults[0].node: there is no node 1"),
        ("hosts: [n1], faults: [{node: n1, during: copy}]", "`during` has an effect on virtual nodes only"),
        ("hosts: [n1], ssh: {idenity: x}", "did you mean `identity`?"),
        ("hosts: [n1], ssh: {port: 0}", "expected a whole number from 1 to 65535"),
        ("hosts: [n1], ssh: {connect_timeout: 0}", "a timeout of 0 would let every connection fail"),
        ("hosts: [n1], ssh: {program: holdfast}", "must be absolute"),
    ];
    for (allocation, expected) in table {
        let message = mistakes_in(&format!("allocation: {{{allocation}}}\nrun: {{command: [./app]}}\n"));
        assert!(message.contains(expected), "{allocation}: {expected} is missing:\n{message}");
    }
    let message = mistakes_in("allocation: {hosts: [n1, n2]}\nrun: {nodes: 3, command: [./app]}\n");
    assert!(message.contains("list at least 3 hosts"), "{message}");
}

#[test]
fn invalid_patterns_and_expressions_of_progress_are_refused_with_their_position() {
    let mistakes =
        mistakes_in("run: {command: [./app]}\nprogress:\n  files: [state/*.ckpt, 'a/[b']\n  output: 'step ([0-9]+'\n");
    for part in [
        "job.yaml:3:25",
        "`a/[b` is not a pattern of files",
        "job.yaml:4:11",
        "`step ([0-9]+` is not a regular expression: unclosed group",
    ] {
        assert!(mistakes.contains(part), "{part} is not in:\n{mistakes}");
    }
    assert!(mistakes_in("run: {command: [./app]}\nprogress: {files: []}\n").contains("job.yaml:2:12"));
    assert!(mistakes_in("run: {command: [./app]}\nprogress: {files: ['']}\n").contains("the pattern is empty"));
}

#[test]
fn refuses_limit_of_chain_that_nothing_submits() {
    let mistakes = mistakes_in("run: {command: [./app]}\nrequeue: {no_progress_limit: 5}\n");
    assert!(mistakes.contains("nothing submits the next allocation"), "{mistakes}");
}

#[test]
fn patterns_of_intercepted_files_are_checked_with_their_position() {
    let of = |checkpoint: &str| {
        mistakes_in(&format!("run: {{command: [./app], ranks: 3, nodes: 3}}\ncheckpoint: {checkpoint}\n"))
    };
    for (checkpoint, expected) in [
        ("{interpose: {files: 'state_[0-9'}}", "`state_[0-9` is not a regular expression"),
        ("{interpose: {files: 'a,,b'}}", "the list has an empty expression"),
        ("{interpose: {files: '0-1:state'}}", "there is no expression for rank 2"),
        ("{interpose: {library: ./lib.so}}", "`library` has no effect without `files`"),
        ("{interpose: {files: a, library: /my lib.so}}", "the path has a blank or a colon"),
        ("{source: scr-files, interpose: {files: a}}", "`interpose.files` has no effect with `source: scr-files`"),
    ] {
        let mistakes = of(checkpoint);
        assert!(mistakes.contains(expected) && mistakes.contains("job.yaml:2:"), "{checkpoint}: {mistakes}");
    }
}
