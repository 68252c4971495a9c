//! Runs one of these commands on several nodes: here, as a step of the Slurm job, or with pdsh as SCR's scripts do.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_core::hostlist;
use holdfast_model::NodeName;

use super::directories;
use super::result::{CompatError, failed, refused};
use crate::host::shell::quoted;
use crate::host::{external_command, host_name, program};

/// Maximum duration of a command on all nodes.
const WITHIN: Duration = Duration::from_secs(300);
/// Prefixes the lines of a task with the name of its node, as pdsh does.
const WITH_NODE: &str = r#""$@" | while IFS= read -r line; do printf '%s: %s\n' "$SLURMD_NODENAME" "$line"; done"#;

/// What the command printed on each node that answered.
pub(super) type NodeLines = BTreeMap<NodeName, Vec<String>>;

/// Runs a command on nodes of a job: of this one, or of the one with this id. Nodes that do not answer are left out.
///
/// # Errors
/// Nodes other than this one cannot be reached from here.
pub(super) fn run_on(
    nodes: &[NodeName],
    job: Option<&str>,
    command: &str,
    arguments: &[String],
) -> Result<NodeLines, CompatError> {
    let program = program::ourselves().map_err(|error| failed(&error))?.to_string_lossy().into_owned();
    let words = [&[program, "compat".to_owned(), command.to_owned()], arguments].concat();
    let own = own_name();
    if let [node] = nodes
        && *node == own
    {
        let lines = output(&words)?.lines().map(str::to_owned).collect();
        return Ok(BTreeMap::from([(own, lines)]));
    }
    let job = job.map(str::to_owned).or_else(directories::job_id);
    let step_of = job.filter(|_| which::which("srun").is_ok());
    let has_pdsh = which::which("pdsh").is_ok();
    if step_of.is_none() && !has_pdsh {
        return Err(refused(format!(
            "{} cannot be reached from here: this is not a Slurm job, and there is no pdsh",
            hostlist::compress(nodes)
        )));
    }
    let mut answers = match &step_of {
        Some(job) => by_node(&output(&step(job, nodes, &words))?),
        None => NodeLines::new(),
    };
    // A step does not start if Slurm refuses one of the nodes.
    let missing: Vec<NodeName> = nodes.iter().filter(|node| !answers.contains_key(*node)).cloned().collect();
    if !missing.is_empty() && has_pdsh {
        answers.extend(by_node(&output(&pdsh(&missing, &words))?));
    }
    Ok(answers)
}

/// The command line of pdsh.
fn pdsh(nodes: &[NodeName], command: &[String]) -> Vec<String> {
    let command: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    let (list, command) = (hostlist::compress(nodes), command.join(" "));
    ["pdsh", "-f", "256", "-S", "-w", &list, &command].map(str::to_owned).to_vec()
}

/// The name of this node: Slurm's, or that of the host.
pub(super) fn own_name() -> NodeName {
    NodeName::new(directories::variable(&["SLURMD_NODENAME"]).unwrap_or_else(host_name))
}

/// The command line of a step with one task a node.
fn step(job: &str, nodes: &[NodeName], command: &[String]) -> Vec<String> {
    let mut words: Vec<String> =
        ["srun", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--mpi=none", "--input=none", "--quiet"]
            .map(str::to_owned)
            .to_vec();
    let (count, list) = (nodes.len(), hostlist::compress(nodes));
    words.extend([format!("--jobid={job}"), format!("--nodes={count}"), format!("--ntasks={count}")]);
    words.extend(["--ntasks-per-node=1".to_owned(), format!("--nodelist={list}")]);
    words.extend(["sh", "-c", WITH_NODE, "sh"].map(str::to_owned));
    words.extend(command.iter().cloned());
    words
}

/// The standard output of a command line; its exit code does not matter, as that of one node must not hide the others.
fn output(words: &[String]) -> Result<String, CompatError> {
    let (program, arguments) = words.split_first().ok_or_else(|| refused("the command line is empty"))?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran = external_command::run(program, &arguments, &BTreeMap::new(), WITHIN).map_err(|error| failed(&error))?;
    for line in ran.errors.lines() {
        eprintln!("{}", super::super::output::printable(line));
    }
    Ok(ran.output)
}

/// Lines `node: text`, by node.
fn by_node(text: &str) -> NodeLines {
    let mut found = NodeLines::new();
    for line in text.lines() {
        // pdsh omits the blank before an empty line.
        if let Some((node, line)) = line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, ""))) {
            found.entry(NodeName::new(node)).or_default().push(line.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_belong_to_the_node_in_front_of_them() {
        let lines = by_node("n1: a: b\nn2: c\nn1: \nn1:\nnoise\n");
        assert_eq!(lines[&NodeName::new("n1")], ["a: b", "", ""]);
        assert_eq!(lines[&NodeName::new("n2")], ["c"]);
        assert_eq!(lines.len(), 2);
    }
}
