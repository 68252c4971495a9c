//! What changed in the memory of the machine since it was written last: as much as the events changed, not as much as
//! there is.
//!
//! [`Machine::take_changes`] gives it, [`Snapshot::apply`] brings an older snapshot up to date with it. All changes
//! applied in their order to the first snapshot are [`Machine::snapshot`]. What is not in the snapshot is not in the
//! changes: when a node was heard of last, and the watchdog's memory; whoever takes over begins both anew.

use holdfast_model::{Rank, RankEnd};
use serde::{Deserialize, Serialize};

use super::classify::{Facts, Run};
use super::machine::Machine;
use super::nodes::Node;
use super::snapshot::{Head, PastGeneration, Snapshot};
use super::tracked::{MemberChanges, RecordChanges};

/// Changes of a [`Snapshot`]. Opaque: serialise them, keep them, apply them in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<Box<Head>>,
    #[serde(default, skip_serializing_if = "RecordChanges::is_empty")]
    nodes: RecordChanges<Node>,
    /// Ranks that have another home than before; all of them with the first placement.
    #[serde(default, skip_serializing_if = "RecordChanges::is_empty")]
    homes: RecordChanges<u32>,
    #[serde(default, skip_serializing_if = "RecordChanges::is_empty")]
    history: RecordChanges<PastGeneration>,
    #[serde(default, skip_serializing_if = "MemberChanges::is_empty")]
    waiting: MemberChanges,
    #[serde(default, skip_serializing_if = "MemberChanges::is_empty")]
    unkilled: MemberChanges,
    #[serde(default, skip_serializing_if = "MemberChanges::is_empty")]
    unheard: MemberChanges,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RunChanges>,
}

/// What changed in the run under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RunChanges {
    /// There is none any more.
    Over,
    /// It began.
    Begun(Box<Run>),
    /// It goes on.
    Changed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        facts: Option<Box<Facts>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ended: Vec<(Rank, RankEnd)>,
        #[serde(default, skip_serializing_if = "MemberChanges::is_empty")]
        down: MemberChanges,
    },
}

/// The parts of a snapshot that are compared with what they were, because they are small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    head: Head,
    run: Option<Facts>,
}

impl Taken {
    pub fn of(state: &Snapshot) -> Self {
        Taken { head: state.head.clone(), run: state.run.as_ref().map(|run| run.facts.clone()) }
    }
}

impl Changes {
    /// True if nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

impl Machine {
    /// What changed since this was asked last, or since [`new`](Self::new) or [`restore`](Self::restore).
    pub fn take_changes(&mut self) -> Changes {
        let run = self.run_changes();
        let state = &mut self.state;
        let head = (self.taken.head != state.head).then(|| Box::new(state.head.clone()));
        let changes = Changes {
            nodes: state.nodes.take_changes(),
            homes: state.homes.take_changes(),
            history: state.history.take_changes(),
            waiting: state.waiting.take_changes(),
            unkilled: state.unkilled.take_changes(),
            unheard: state.unheard.take_changes(),
            run,
            head,
        };
        if changes.head.is_some() || changes.run.is_some() {
            self.taken = Taken::of(state);
        }
        changes
    }

    fn run_changes(&mut self) -> Option<RunChanges> {
        let Some(run) = &mut self.state.run else {
            return self.taken.run.is_some().then_some(RunChanges::Over);
        };
        let (ended, down) = (run.ended.take_changes(), run.down.take_changes());
        match &self.taken.run {
            Some(before) if before.generation == run.facts.generation => {
                let facts = (*before != run.facts).then(|| Box::new(run.facts.clone()));
                let same = facts.is_none() && ended.is_empty() && down.is_empty();
                (!same).then_some(RunChanges::Changed { facts, ended, down })
            }
            _ => Some(RunChanges::Begun(Box::new(run.clone()))),
        }
    }
}

/// Changes do not fit the snapshot that they were to be applied to: they are of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the changes are not of this state")]
pub struct Unfit;

impl Snapshot {
    /// Brings the snapshot up to date.
    ///
    /// # Errors
    /// The changes are of another snapshot; this one is then of no use any more.
    pub fn apply(&mut self, changes: &Changes) -> Result<(), Unfit> {
        let Changes { head, nodes, homes, history, waiting, unkilled, unheard, run } = changes;
        if let Some(head) = head {
            self.head = (**head).clone();
        }
        let fit = self.nodes.apply(nodes) && self.homes.apply(homes) && self.history.apply(history);
        self.waiting.apply(waiting);
        self.unkilled.apply(unkilled);
        self.unheard.apply(unheard);
        match (run, &mut self.run) {
            (None, _) => {}
            (Some(RunChanges::Over), _) => self.run = None,
            (Some(RunChanges::Begun(run)), _) => self.run = Some((**run).clone()),
            (Some(RunChanges::Changed { facts, ended, down }), Some(run)) => {
                if let Some(facts) = facts {
                    run.facts = (**facts).clone();
                }
                run.ended.apply(ended);
                run.down.apply(down);
            }
            (Some(RunChanges::Changed { .. }), None) => return Err(Unfit),
        }
        if fit { Ok(()) } else { Err(Unfit) }
    }
}
