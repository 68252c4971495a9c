//! `allocation:` what the resource manager lends us, and, for the local manager, which failures are rehearsed in it.

use std::time::Duration;

use holdfast_core::ids::{CheckpointId, NodeName};

use super::reading::{Choice, DURATION, Section, TEXT};

/// More virtual nodes than this on one machine is a typing mistake: each is a process.
const MAX_LOCAL_NODES: u64 = 1024;

/// The nodes of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Who lends them.
    pub manager: Manager,
    /// How many there are. Local manager: virtual nodes to start.
    pub nodes: u32,
    /// When the allocation ends, counted from its start. Local manager only; `None` = never.
    pub time_limit: Option<Duration>,
    /// Failures to rehearse. Local manager only.
    pub chaos: Vec<Chaos>,
}

/// A resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// Look at the environment: [`Manager::resolve`].
    Auto,
    /// This machine: virtual nodes, each an agent process with directories of its own.
    Local,
}

impl Choice for Manager {
    const AVAILABLE: &'static [(&'static str, Self)] =
        &[("auto", Manager::Auto), ("local", Manager::Local)];
    const LATER: &'static [&'static str] = &["slurm", "pbs", "lsf", "flux", "ssh"];
}

impl Manager {
    /// What `auto` means here: the manager whose variables the environment holds, else `local`.
    ///
    /// # Errors
    /// The name of the resource manager whose allocation this is, if this version cannot use it: taking its head node
    /// for the whole machine would run the job in the wrong place.
    pub fn resolve(
        self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Manager, &'static str> {
        const MARKS: [(&str, &str); 5] = [
            ("SLURM_JOB_ID", "slurm"),
            ("SLURM_JOBID", "slurm"),
            ("PBS_JOBID", "pbs"),
            ("LSB_JOBID", "lsf"),
            ("FLUX_JOB_ID", "flux"),
        ];
        match self {
            Manager::Local => Ok(Manager::Local),
            Manager::Auto => match MARKS
                .iter()
                .find(|(name, _)| variable(name).is_some_and(|value| !value.is_empty()))
            {
                Some((_, manager)) => Err(manager),
                None => Ok(Manager::Local),
            },
        }
    }
}

/// One rehearsed failure: when it strikes, whom, and how.
///
/// It strikes at `after` or `after_checkpoint`; with `during`, at the first such phase from then on. Each strikes once in a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chaos {
    /// The virtual node that is hit, whatever runs on it by then.
    pub node: NodeName,
    /// Not before this.
    pub after: ChaosAfter,
    /// Wait for this phase, and strike in the middle of it; `None` = strike at once.
    pub during: Option<ChaosPhase>,
    /// What happens.
    pub action: ChaosAction,
}

/// From when on a rehearsed failure may strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaosAfter {
    /// So long after the first launch of the application.
    Time(Duration),
    /// When this checkpoint is complete and protected ([`CheckpointId::NONE`]: from the beginning).
    Checkpoint(CheckpointId),
}

/// A phase in which a rehearsed failure strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaosPhase {
    /// The application is writing its checkpoint files.
    Write,
    /// The agents are encoding: the checkpoint is written but not protected.
    Encode,
    /// The agents are rebuilding lost files at the start of a run.
    Rebuild,
}

impl Choice for ChaosPhase {
    const AVAILABLE: &'static [(&'static str, Self)] = &[
        ("write", ChaosPhase::Write),
        ("encode", ChaosPhase::Encode),
        ("rebuild", ChaosPhase::Rebuild),
    ];
}

/// What a rehearsed failure does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaosAction {
    /// The node dies: agent and ranks are killed with SIGKILL, its control and cache directories are deleted.
    Kill,
    /// Only the agent dies (SIGKILL); ranks and directories stay.
    KillAgent,
}

impl Choice for ChaosAction {
    const AVAILABLE: &'static [(&'static str, Self)] = &[
        ("kill", ChaosAction::Kill),
        ("kill-agent", ChaosAction::KillAgent),
    ];
}

/// The name of a virtual node of the local manager, counted from 0.
pub fn virtual_node(index: u32) -> NodeName {
    NodeName::new(format!("node{index}"))
}

/// What was written; the number of nodes may still depend on what the runs need.
pub(super) struct Written {
    pub(super) manager: Manager,
    pub(super) nodes: Option<u32>,
    pub(super) time_limit: Option<Duration>,
    pub(super) chaos: Vec<Chaos>,
}

impl Written {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let manager = section.choice("manager", Manager::Auto);
        let nodes = section
            .optional_number("nodes", 1..=MAX_LOCAL_NODES)
            .map(|nodes| nodes as u32);
        let time_limit = section.optional("time_limit", &DURATION);
        let chaos = section
            .sections("chaos")
            .unwrap_or_default()
            .into_iter()
            .filter_map(read_chaos)
            .collect();
        section.finish();
        Written {
            manager,
            nodes,
            time_limit,
            chaos,
        }
    }

    /// With the number of nodes that was written, or that the runs need.
    pub(super) fn with_nodes(self, needed: u32) -> Allocation {
        let Written {
            manager,
            nodes,
            time_limit,
            chaos,
        } = self;
        Allocation {
            manager,
            nodes: nodes.unwrap_or(needed),
            time_limit,
            chaos,
        }
    }
}

fn read_chaos(mut section: Section<'_>) -> Option<Chaos> {
    let node = section
        .optional("node", &TEXT)
        .map(|text| match text.parse::<u32>() {
            Ok(index) => virtual_node(index),
            Err(_) => NodeName::new(text),
        });
    let time = section.optional("after", &DURATION);
    let checkpoint = section.optional_number("after_checkpoint", 0..=u64::MAX);
    let during = section.optional_choice("during");
    let action = section.choice("action", ChaosAction::Kill);
    let (reader, path) = (section.reader(), section.path());
    section.finish();
    if node.is_none() {
        reader.mistake(
            &path,
            "`node` is missing",
            "name the node that is hit: its number from 0, or its name",
        );
    }
    let after = match (time, checkpoint, during) {
        (Some(_), Some(_), _) => {
            let help = "write either `after` (a duration) or `after_checkpoint` (an id)";
            reader.mistake(
                &path,
                "`after` and `after_checkpoint` exclude each other",
                help,
            );
            return None;
        }
        (Some(time), None, _) => ChaosAfter::Time(time),
        (None, Some(id), _) => ChaosAfter::Checkpoint(CheckpointId(id)),
        (None, None, Some(_)) => ChaosAfter::Checkpoint(CheckpointId::NONE),
        (None, None, None) => {
            let help = "write `after: 2s`, `after_checkpoint: 3`, or `during: encode`";
            reader.mistake(&path, "nothing says when it strikes", help);
            return None;
        }
    };
    Some(Chaos {
        node: node?,
        after,
        during,
        action,
    })
}
