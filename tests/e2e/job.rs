//! The job of these tests: a small heat equation on a few virtual nodes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::world::{Ran, Running, World};

#[derive(Clone)]
pub struct Job<'a> {
    world: &'a World,
    /// Virtual nodes.
    pub nodes: u32,
    /// Nodes of the run.
    pub on: u32,
    /// Ranks on each.
    pub per_node: u32,
    /// Steps to compute.
    pub steps: u32,
    /// Steps between checkpoints.
    pub every: u32,
    /// Columns and rows.
    pub size: &'static str,
    /// Further arguments of the application.
    pub heat: Vec<String>,
    /// Injected faults.
    pub faults: Vec<String>,
    /// `redundancy:`, as a YAML list.
    pub redundancy: String,
    /// `flush:`, as a YAML map.
    pub flush: String,
    /// Further lines below `checkpoint:`.
    pub checkpoint: Vec<String>,
    /// Further lines at the top.
    pub top: Vec<String>,
    /// The longest accepted silence of an agent. Longer than the default, for machines that are busy with other
    /// tests; the end of an agent's process is detected at once in any case.
    pub down_after: &'static str,
    /// `halt.grace`, unless a line at the top has `halt:`. Zero: a signal kills ranks that wait at their checkpoint.
    pub grace: &'static str,
    /// Further keys of `health:`, each after a comma.
    health: String,
    /// Further lines below `allocation:`.
    pub allocation: Vec<String>,
}

/// A step that is a multiple of the checkpoint interval, at which the application waits for [`Job::go_on`].
const HOLD: &str = "go-on";

impl<'a> Job<'a> {
    /// Four ranks on four nodes, `spares` more nodes; a checkpoint every 5 of 40 steps, nothing flushed before the end.
    pub fn new(world: &'a World, spares: u32) -> Self {
        Job {
            world,
            nodes: 4 + spares,
            on: 4,
            per_node: 1,
            steps: 40,
            every: 5,
            size: "24x24",
            heat: Vec::new(),
            faults: Vec::new(),
            redundancy: "[{scheme: xor, set_size: 4}]".to_owned(),
            flush: "{every: 0}".to_owned(),
            checkpoint: Vec::new(),
            top: Vec::new(),
            down_after: "10s",
            grace: "0s",
            health: String::new(),
            allocation: Vec::new(),
        }
    }

    /// Adds injected faults, written as in a spec.
    pub fn faults(mut self, failure: &str) -> Self {
        self.faults.push(failure.to_owned());
        self
    }

    /// The application waits after this checkpoint.
    pub fn holding_after(self, checkpoint: u32) -> Self {
        let step = checkpoint * self.every;
        self.holding_at(step)
    }

    /// The application waits at this step.
    pub fn holding_at(mut self, step: u32) -> Self {
        let until = self.world.path(HOLD).to_string_lossy().into_owned();
        self.heat.extend(["--hold-at".to_owned(), step.to_string(), "--until".to_owned(), until]);
        self
    }

    /// Arguments of the application, separated by blanks.
    pub fn heat(mut self, arguments: &str) -> Self {
        self.heat.extend(arguments.split_whitespace().map(str::to_owned));
        self
    }

    pub fn redundancy(mut self, list: &str) -> Self {
        self.redundancy = list.to_owned();
        self
    }

    pub fn flush(mut self, map: &str) -> Self {
        self.flush = map.to_owned();
        self
    }

    /// `halt.grace`.
    pub fn grace(mut self, grace: &'static str) -> Self {
        self.grace = grace;
        self
    }

    /// A line at the top of the spec.
    pub fn top(mut self, line: &str) -> Self {
        self.top.push(line.to_owned());
        self
    }

    /// A line below `checkpoint:`.
    pub fn checkpoint(mut self, line: &str) -> Self {
        self.checkpoint.push(line.to_owned());
        self
    }

    /// A line below `allocation:`.
    pub fn allocation(mut self, line: &str) -> Self {
        self.allocation.push(line.to_owned());
        self
    }

    /// Lets the application continue.
    pub fn go_on(&self) {
        fs::write(self.world.path(HOLD), "").unwrap();
    }

    fn output(&self) -> PathBuf {
        self.world.path("end.heat")
    }

    /// More keys of `health:`.
    pub fn health(mut self, keys: &str) -> Self {
        self.health = format!(", {keys}");
        self
    }

    /// The spec, as text.
    pub fn yaml(&self) -> String {
        let quoted = |words: &[String]| {
            let words: Vec<String> = words.iter().map(|item| format!("{item:?}")).collect();
            words.join(", ")
        };
        let mut command: Vec<String> = ["holdfast", "example", "heat"].map(str::to_owned).into();
        if !self.heat.iter().any(|argument| argument == "--step-delay") {
            command.extend(["--step-delay", "0"].map(str::to_owned));
        }
        command.extend(["--steps".to_owned(), self.steps.to_string(), "--size".to_owned(), self.size.to_owned()]);
        command.extend(["--checkpoint-every".to_owned(), self.every.to_string()]);
        command.extend(["--output".to_owned(), self.output().to_string_lossy().into_owned()]);
        command.extend(self.heat.iter().cloned());
        let lines = |lines: &[String], indent: &str| -> String {
            lines.iter().map(|line| format!("{indent}{line}\n")).collect()
        };
        let mut top = self.top.clone();
        if !top.iter().any(|line| line.starts_with("halt:")) {
            top.push(format!("halt: {{grace: {}}}", self.grace));
        }
        let faults: Vec<String> = self.faults.iter().map(|failure| format!("- {failure}")).collect();
        let faults = if faults.is_empty() { String::new() } else { format!("  faults:\n{}", lines(&faults, "    ")) };
        format!(
            "job: heat\nprefix: {prefix:?}\nallocation:\n  manager: local\n  nodes: {nodes}\n{allocation}{faults}\
             run:\n  nodes: {on}\n  ranks_per_node: {per_node}\n  command: [{command}]\n\
             checkpoint:\n  redundancy: {redundancy}\n  flush: {flush}\n{checkpoint}\
             health: {{down_after: {down_after}{health}}}\n{top}",
            down_after = self.down_after,
            health = self.health,
            prefix = self.world.prefix(),
            nodes = self.nodes,
            allocation = lines(&self.allocation, "  "),
            on = self.on,
            per_node = self.per_node,
            command = quoted(&command),
            redundancy = self.redundancy,
            flush = self.flush,
            checkpoint = lines(&self.checkpoint, "  "),
            top = lines(&top, ""),
        )
    }

    /// The spec, as a file.
    pub fn spec(&self) -> PathBuf {
        self.world.write("job.yaml", &self.yaml())
    }

    /// Starts it, and kills its orchestrator after this checkpoint; the application continues.
    pub fn abandon_after(&self, checkpoint: u64) {
        self.reaches(checkpoint).killed();
    }

    /// The command that runs it.
    pub fn command_line(&self) -> Command {
        self.world.holdfast(["run".as_ref(), self.spec().as_os_str()])
    }

    pub fn start(&self) -> Running<'a> {
        self.world.start(self.command_line())
    }

    /// Starts it, and waits for this checkpoint.
    #[track_caller]
    pub fn reaches(&self, checkpoint: u64) -> Running<'a> {
        let mut running = self.start();
        running.sees_checkpoint(checkpoint);
        running
    }

    /// Starts it, and waits for the first event of this name.
    #[track_caller]
    pub fn start_to_event(&self, name: &str) -> Running<'a> {
        let mut running = self.start();
        running.sees_event(name);
        running
    }

    /// Starts it, and waits for the first event of this name that has this value in a field.
    #[track_caller]
    pub fn start_to(&self, name: &str, field: &str, value: impl Into<Value>) -> Running<'a> {
        let mut running = self.start();
        running.sees_where(name, field, value);
        running
    }

    /// Lets the application continue to its end, which has the expected result.
    #[track_caller]
    pub fn finishes(&self, running: Running<'_>) -> Ran {
        let ran = self.goes_on_to_its_end(running);
        self.assert_result();
        ran
    }

    /// Lets the application continue to its end.
    #[track_caller]
    pub fn goes_on_to_its_end(&self, running: Running<'_>) -> Ran {
        self.go_on();
        running.ends_with(0)
    }

    /// Runs it to its end, which has the expected result.
    #[track_caller]
    pub fn run_to_result(&self) -> Ran {
        let ran = self.run(0);
        self.assert_result();
        ran
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn run(&self, code: u8) -> Ran {
        self.start().ends_with(code)
    }

    /// Another command about this job.
    #[track_caller]
    pub fn command(&self, words: &[&str], code: u8) -> Ran {
        self.world.run(self.world.holdfast(words).arg(self.spec())).with_code(code)
    }

    /// Checks that the result is bit-identical to that of a failure-free run of one process.
    #[track_caller]
    pub fn assert_result(&self) {
        let reference = self.world.path("reference.heat");
        let steps = self.steps.to_string();
        let words = ["example", "heat", "--step-delay", "0", "--steps", &steps, "--size", self.size, "--output"];
        let mut command = self.world.holdfast(words);
        command.arg(&reference).env("SCR_ENABLE", "0");
        let serial = self.world.run(command).with_code(0);
        let checksum = serial.out.lines().find(|line| line.contains("checksum")).unwrap().to_owned();
        assert_eq!(fs::read(self.output()).unwrap(), fs::read(&reference).unwrap(), "the result differs");
        let output = self.output_of_rank_0();
        assert!(output.contains(&checksum), "{checksum:?} is not in {output:?}");
    }

    /// The output of rank 0 in the last generation.
    pub fn output_of_rank_0(&self) -> String {
        let generations = self.world.prefix().join(".holdfast/generations");
        let numbers = fs::read_dir(&generations).unwrap().flatten();
        let last = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max().unwrap();
        let last = generations.join(last.to_string());
        // Of a launcher that starts all ranks with one command.
        let of_all = || fs::read_to_string(last.join("ranks.out"));
        fs::read_to_string(last.join("rank_0.out")).or_else(|_| of_all()).unwrap()
    }
}
