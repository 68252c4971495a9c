//! `holdfast status`: what a running job is doing.

use std::collections::BTreeMap;
use std::io::{self, Write};

use holdfast_model::{CheckpointId, NodeName};
use holdfast_wire::agent::{HaltState, Health};
use serde_json::{Value, json};

use super::contact::Contact;
use super::failure::Failure;
use super::job::JobSelection;
use super::output::{Output, Report, Style, document, printable};
use crate::exit;
use crate::relaunch::explain::{Activity, Condition, NodeExplanation};

/// Show what a running job is doing: nodes, generation, newest checkpoint and whether it is protected
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast status job.yaml
  holdfast status --json --prefix ./heat-run

JSON: {version, job, job_id, orchestrator, generation, phase, checkpoint, protected, nodes: [{name, state, ranks, reason}…], halt}

Exit codes: 0 shown; 69 no job of this prefix is running")]
pub struct StatusArgs {
    /// The job
    #[command(flatten)]
    pub job: JobSelection,
}

pub(super) fn run(args: StatusArgs, style: Style) -> Result<u8, Failure> {
    let contact = Contact::of(&args.job, &style)?;
    let (health, halt) = super::runtime::block_on(async { (contact.health().await, contact.halt(None).await.ok()) })?;
    if health.is_empty() && !contact.driven {
        return Err(contact.nobody());
    }
    style.result(&Status { contact, health, halt })?;
    Ok(exit::FINISHED)
}

struct Status {
    contact: Contact,
    health: BTreeMap<NodeName, Health>,
    halt: Option<HaltState>,
}

/// One node, as it is shown.
struct NodeLine {
    name: String,
    state: &'static str,
    ranks: Vec<u32>,
    reason: Option<String>,
}

impl Status {
    /// What the orchestrator decided, with what the agents say now.
    fn nodes(&self) -> Vec<NodeLine> {
        let explained = self.contact.state.explanation.iter().flat_map(|explanation| &explanation.nodes);
        let line = |node: &NodeExplanation| {
            let health = self.health.get(&node.node);
            let (state, reason) = match (&node.condition, health) {
                (Condition::Down(verdict), _) => ("down", Some(verdict.reason.to_string())),
                (_, None) => ("silent", None),
                (_, Some(_)) if node.used => ("used", None),
                (_, Some(_)) => ("spare", None),
            };
            let ranks = health.map(|health| health.ranks.iter().map(|rank| rank.0).collect()).unwrap_or_default();
            NodeLine { name: node.node.to_string(), state, ranks, reason }
        };
        explained.map(line).collect()
    }

    fn checkpoint(&self) -> Option<CheckpointId> {
        let decided = self.contact.state.explanation.as_ref().and_then(|explanation| explanation.newest);
        self.health.values().filter_map(|health| health.newest).max().max(decided)
    }

    fn protected(&self) -> bool {
        self.contact.state.explanation.as_ref().is_some_and(|explanation| explanation.protected)
    }

    fn phase(&self) -> Option<Activity> {
        self.contact.state.explanation.as_ref().map(|explanation| explanation.phase)
    }
}

impl Report for Status {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        let state = &self.contact.state;
        let phase = self.phase().map_or_else(|| "starting".to_owned(), |phase| phase.to_string());
        writeln!(to, "job {} ({}): {phase}, generation {}", state.job, state.agents.job_id, state.generation)?;
        if !self.contact.driven {
            writeln!(to, "its orchestrator (process {}) is gone; `holdfast run` takes it over", state.orchestrator)?;
        }
        match self.checkpoint() {
            Some(id) if self.protected() => writeln!(to, "newest checkpoint {id}, protected")?,
            Some(id) => writeln!(to, "newest checkpoint {id}, not protected")?,
            None => writeln!(to, "no checkpoint yet")?,
        }
        for node in self.nodes() {
            let ranks: Vec<String> = node.ranks.iter().map(ToString::to_string).collect();
            let ranks = if ranks.is_empty() { String::new() } else { format!("  ranks {}", ranks.join(",")) };
            let reason = node.reason.map(|reason| format!("  {}", printable(&reason))).unwrap_or_default();
            writeln!(to, "  {:12} {}{ranks}{reason}", printable(&node.name), node.state)?;
        }
        match self.halt.as_ref().and_then(|halt| halt.met.as_ref()) {
            Some(met) => writeln!(to, "halt: {}", printable(met)),
            None => Ok(()),
        }
    }

    fn json(&self) -> Value {
        let state = &self.contact.state;
        let node = |node: NodeLine| json!({"name": node.name, "state": node.state, "ranks": node.ranks, "reason": node.reason});
        document(json!({
            "job": state.job,
            "job_id": state.agents.job_id,
            "orchestrator": self.contact.driven.then_some(state.orchestrator),
            "generation": state.generation,
            "phase": self.phase(),
            "checkpoint": self.checkpoint(),
            "protected": self.protected(),
            "nodes": self.nodes().into_iter().map(node).collect::<Vec<_>>(),
            "halt": self.halt,
        }))
    }
}
