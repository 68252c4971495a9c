//! The text of a new spec: what was chosen, each with its reason, and what is likely to be changed next, in comments.

use std::fmt::Write as _;
use std::path::Path;

use super::choice::Choice;
use super::program::Program;
use super::surroundings::Surroundings;
use crate::launch::registry::registered;
use crate::spec::resolved::list_item;

/// The size of sets in large jobs, as in SCR.
const LARGEST_SET: u32 = 8;
/// The width of the comments.
const WIDTH: usize = 110;

/// The spec. `file` is its name in the commands of its first lines; a relative hosts file is beside it.
pub fn yaml(program: &Program, surroundings: &Surroundings, choice: &Choice, file: &Path) -> String {
    let mut text = Text::default();
    let file = file.display();
    text.comment(0, &format!("The job spec of `{}`, written by `holdfast init`.", program.command.join(" ")));
    text.line("#");
    text.line(format_args!("#   holdfast check {file}            report mistakes; --explain: every setting"));
    text.line(format_args!("#   holdfast run --dry-run {file}    show what would be started where"));
    text.line(format_args!("#   holdfast run {file}"));
    text.line("#");
    text.line("# `holdfast check --reference` prints all keys, with their defaults.\n");
    text.line(format_args!("job: {}", list_item(&program.name)));
    text.comment(0, "Checkpoints, index and event log: on the parallel file system. Relative to this file.");
    text.line(format_args!("prefix: {}\n", list_item(&format!("./{}-run", program.name))));
    allocation(&mut text, surroundings, choice);
    run(&mut text, program, choice);
    checkpoint(&mut text, program, choice);
    text.0
}

fn allocation(text: &mut Text, surroundings: &Surroundings, choice: &Choice) {
    text.line("allocation:");
    text.comment(2, &sentence(&choice.manager.how));
    match surroundings {
        Surroundings::Allocation { .. } | Surroundings::Outside { .. } => {
            text.line(format_args!("  manager: {}", choice.manager.what));
        }
        Surroundings::HostsFile { path, .. } => {
            text.line(format_args!("  hosts_file: {}", list_item(&path.to_string_lossy())));
        }
        Surroundings::Hosts { hosts, .. } => {
            text.line(format_args!("  hosts: [{}]", list(hosts)));
        }
        Surroundings::OneMachine { nodes } => {
            text.comment(
                2,
                "On a cluster, leave `allocation` out: `auto` uses the allocation of the resource manager.",
            );
            text.line(format_args!("  manager: {}\n  nodes: {nodes}", choice.manager.what));
            text.comment(2, "A node that is lost after the second checkpoint, to see what is restored:");
            text.line("  # faults: [{node: 1, after_checkpoint: 2}]");
        }
    }
    let is_managed = matches!(surroundings, Surroundings::Allocation { .. } | Surroundings::Outside { .. });
    let registered = registered();
    let manager = registered.managers.iter().find(|facts| is_managed && facts.name == choice.manager.what);
    if let Some(requeue) = manager.and_then(|facts| facts.requeue.as_ref()) {
        text.line("");
        text.comment(0, "At exit code 75 (not finished) the batch script is submitted again:");
        text.line(format_args!("# requeue: {}", requeue.suggested));
    }
    text.line("");
}

fn run(text: &mut Text, program: &Program, choice: &Choice) {
    text.line("run:");
    match choice.run_nodes {
        Some(nodes) => {
            text.comment(
                2,
                "The other nodes of the allocation are spares: they take the ranks of nodes that are lost.",
            );
            text.line(format_args!("  nodes: {nodes}"));
        }
        None => {
            text.comment(
                2,
                "Default: all nodes of the allocation. Fewer leave spares for the ranks of nodes that are lost.",
            );
            text.line("  # nodes: 4");
        }
    }
    text.line("  ranks_per_node: 1");
    text.comment(2, &format!("Launcher {}: {}.", choice.launcher.what, choice.launcher.how));
    if !choice.launcher_is_default {
        text.line(format_args!("  launcher: {}", choice.launcher.what));
    }
    if let Some(program) = &choice.launcher_program {
        text.line(format_args!("  launcher_program: {}", list_item(program)));
    }
    if let Some(option) = choice.launcher_option {
        text.line(format_args!("  launcher_options: [{option}]"));
    }
    text.line(format_args!("  command: [{}]\n", list(&program.command)));
}

fn checkpoint(text: &mut Text, program: &Program, choice: &Choice) {
    text.line("checkpoint:");
    text.comment(2, &sentence(&choice.source.how));
    if choice.source.what == "none" {
        let name = list(&program.command);
        text.comment(2, "After a failure it starts from the beginning. To protect it, write one of these instead:");
        text.line("  #");
        text.comment(2, "It renames a file into place whenever it has saved its state (docs/command.md):");
        text.line("  #   source: command\n  #   watch: {files: [\"state.$HOLDFAST_RANK\"]}");
        text.line(format_args!("  #   resume: [{name}, \"$HOLDFAST_RESTART_DIR/state.$HOLDFAST_RANK\"]"));
        text.comment(2, "A command saves its state while it runs:");
        text.line("  #   source: command");
        text.line("  #   command: {save: [cp, state, \"$HOLDFAST_CHECKPOINT_DIR/state\"], every: 10min}");
        text.comment(2, "It writes one file a rank: docs/interpose.md. It calls the API: docs/libscr.md.");
    }
    text.line(format_args!("  source: {}", choice.source.what));
    if matches!(choice.source.what, "scr" | "variables") {
        text.comment(2, "How often a checkpoint is due:");
        text.line("  # every: 10min");
    }
    match choice.run_nodes {
        _ if choice.source.what == "none" => {}
        Some(1) => {
            text.comment(
                2,
                "With one node nothing protects a checkpoint from its loss but a copy in the prefix directory.",
            );
            text.line("  flush: {every: 1}");
        }
        nodes => {
            text.comment(2, "What protects a checkpoint from the loss of nodes: one of each set may be lost.");
            let size = nodes.map_or(LARGEST_SET, |nodes| nodes.min(LARGEST_SET));
            text.line(format_args!("  redundancy: [{{scheme: xor, set_size: {size}}}]"));
        }
    }
}

/// A reason as a sentence about the program.
fn sentence(how: &str) -> String {
    let mut letters = how.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn list(words: &[String]) -> String {
    words.iter().map(|word| list_item(word)).collect::<Vec<_>>().join(", ")
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    /// A comment of as many lines as it needs. Control characters would end it.
    fn comment(&mut self, indent: usize, text: &str) {
        let mut line = String::new();
        for word in text.split(|letter: char| letter.is_whitespace() || letter.is_control()) {
            if !line.is_empty() && line.chars().count() + word.chars().count() >= WIDTH {
                self.line(format_args!("{:indent$}#{line}", ""));
                line.clear();
            }
            line.push(' ');
            line.push_str(word);
        }
        self.line(format_args!("{:indent$}#{line}", ""));
    }
}
