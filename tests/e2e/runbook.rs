//! The runbook in `playbooks/README.md`: each failure is brought about on virtual nodes, and the commands of its
//! section are run and print what the section shows.

use std::fs;
use std::path::Path;

use holdfast_testkit::pages;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::job::Job;
use crate::world::World;

/// The sections with commands; each has a test below.
const SECTIONS: [&str; 9] = [
    "A node is killed",
    "Nodes are killed, and no spare is left",
    "A cache is full, or a quota is used up",
    "The application fails",
    "The application hangs",
    "The nodes are needed for something else",
    "The orchestrator is killed",
    "The drain fails",
    "A checkpoint in the prefix directory is damaged",
];

fn runbook() -> String {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../playbooks/README.md")).unwrap();
    page.split_once("\n## Failure by failure\n").unwrap().1.to_owned()
}

#[test]
fn every_section_of_the_runbook_with_commands_has_a_test() {
    let runbook = runbook();
    let with_commands = runbook.split("\n### ").skip(1).filter(|section| section.contains("\n```sh\n"));
    let titles: Vec<&str> = with_commands.map(|section| section.lines().next().unwrap()).collect();
    assert_eq!(titles, SECTIONS);
}

/// Runs the commands of a section in the directory of the job; `before` sees each block before it is run.
fn carry_out_with(world: &World, title: &str, before: impl Fn(&str)) {
    assert!(SECTIONS.contains(&title));
    let runbook = runbook();
    let section = runbook.split_once(&format!("\n### {title}\n")).unwrap().1;
    let section = section.split("\n## ").next().unwrap().split("\n### ").next().unwrap();
    assert!(section.contains("\n```sh\n") && section.contains("\n```text\n"), "{section}");
    let programs = Path::new(env!("CARGO_BIN_EXE_holdfast")).parent().unwrap().to_string_lossy();
    pages::carry_out(
        section,
        |file, _| panic!("{file}: a runbook has no files"),
        |commands| {
            before(commands);
            let mut bash = world.command("bash");
            bash.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()));
            let ran = world.run(bash.args(["-euc", commands])).with_code(0);
            format!("{}{}", ran.out, ran.err)
        },
    );
    assert_events(world, section);
}

/// Each event of a section is in the event log, with the fields and values that are in parentheses behind its name.
fn assert_events(world: &World, section: &str) {
    let paragraph = section.split_once("*Events*:").unwrap().1.split("\n\n").next().unwrap();
    let events = world.events();
    let (mut name, mut found) = ("", Vec::new());
    let mut is_field = false;
    // Every second part is between backquotes.
    for (number, part) in paragraph.split('`').enumerate() {
        if number % 2 == 0 {
            is_field = part.rfind(['(', ')']).map_or(is_field, |at| part[at..].starts_with('('));
            continue;
        }
        if is_field {
            let (field, value) = part.split_once(": ").map_or((part, None), |(field, value)| (field, Some(value)));
            found.retain(|event: &&Value| {
                event.get(field).is_some_and(|content| value.is_none_or(|value| content == value))
            });
        } else {
            name = part;
            found = events.iter().filter(|event| event["event"] == name).collect();
        }
        assert!(!found.is_empty(), "no event {name} with {part}: {events:#?}");
    }
}

fn carry_out(world: &World, title: &str) {
    carry_out_with(world, title, |_| {});
}

const LOSS: &str = "{node: 1, after_checkpoint: 3}";

#[test]
fn node_is_killed(world: &World) {
    let job = Job::new(world, 1).faults(LOSS).holding_after(4);
    let mut running = job.start();
    running.sees_where("restarted", "source", "rebuilt");
    running.sees("checkpoint 4", |event| event["event"] == "checkpoint_protected" && event["checkpoint"] == 4);
    carry_out(world, SECTIONS[0]);
    job.finishes(running);
}

#[test]
fn nodes_are_killed_and_no_spare_is_left(world: &World) {
    Job::new(world, 0).faults(LOSS).run(75);
    let next = Job::new(world, 1);
    next.spec();
    carry_out(world, SECTIONS[1]);
    next.assert_result();
}

#[test]
fn cache_is_full(world: &World) {
    let mut job = Job::new(world, 0);
    job.size = "256x256";
    let mut limited = world.command("bash");
    limited.args(["-c", "ulimit -f 64; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_holdfast"), "run"]);
    world.run(limited.arg(job.spec())).with_code(91);
    carry_out(world, SECTIONS[2]);
    job.assert_result();
}

#[test]
fn application_fails(world: &World) {
    let spec = Job::new(world, 0).yaml();
    let failing: String = spec
        .lines()
        .map(|line| match line.trim_start().strip_prefix("command: ") {
            Some(_) => "  command: [sh, -c, \"echo no input file >&2; exit 3\"]\n".to_owned(),
            None => format!("{line}\n"),
        })
        .collect();
    world.run_spec(&failing).with_code(91);
    carry_out(world, SECTIONS[3]);
}

#[test]
fn application_hangs(world: &World) {
    let running = Job::new(world, 0).holding_after(4).reaches(4);
    carry_out(world, SECTIONS[4]);
    running.ends_with(75);
}

#[test]
fn nodes_are_needed_for_something_else(world: &World) {
    let job = Job::new(world, 0).heat("--step-delay 50ms");
    let running = job.reaches(1);
    carry_out(world, SECTIONS[5]);
    running.ends_with(75);
    job.assert_result();
}

#[test]
fn orchestrator_is_killed(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    let running = job.reaches(4);
    // Otherwise the agents report again what the state does not have.
    world.sees_recorded(4);
    running.killed();
    carry_out_with(world, SECTIONS[6], |commands| {
        if commands.contains("holdfast run") {
            job.go_on();
        }
    });
    job.assert_result();
}

#[test]
fn drain_fails(world: &World) {
    let job = Job::new(world, 0).holding_after(4).flush("{every: 3}");
    let mut running = job.reaches(4);
    // The directory that the drain will write, recorded as that of an earlier attempt: a file cannot replace a
    // directory that is not empty.
    let job_id = running.sees_event("job_started")["job_id"].as_str().unwrap().to_owned();
    let name = format!("scr.2026-01-02_03:04:05.{job_id}.4");
    let in_the_way = world.prefix().join(&name).join("rank_1.ckpt");
    fs::create_dir_all(in_the_way.join("in the way")).unwrap();
    let note = json!({"job_id": job_id, "checkpoint": 4, "directory": name});
    fs::write(world.prefix().join(".holdfast/drain.json"), note.to_string()).unwrap();
    running.signal(Signal::TERM);
    running.ends_with(73);
    carry_out_with(world, SECTIONS[7], |commands| {
        if commands.contains("holdfast drain") {
            fs::remove_dir_all(&in_the_way).unwrap();
        }
    });
}

#[test]
fn checkpoint_in_the_prefix_directory_is_damaged(world: &World) {
    let job = Job::new(world, 0).flush("{every: 2}");
    job.run(0);
    let newest = fs::canonicalize(world.path("pfs/scr.current")).unwrap();
    let file = newest.join("rank_1.ckpt");
    let mut bytes = fs::read(&file).unwrap();
    bytes[100] ^= 1;
    fs::write(&file, bytes).unwrap();
    carry_out(world, SECTIONS[8]);
    job.assert_result();
}
