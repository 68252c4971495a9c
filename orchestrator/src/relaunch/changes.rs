//! What changed in the memory of the machine since it was written last: as much as the events changed, not as much as
//! there is.
//!
//! [`Machine::take_changes`] gives it, [`Snapshot::apply`] brings an older snapshot up to date with it. All changes
//! applied in their order to the first snapshot are [`Machine::snapshot`]. What is not in the snapshot is not in the
//! changes: when a node was heard of last, and the watchdog's memory; whoever takes over begins both anew.

use holdfast_model::{Rank, RankEnd};
use serde::{Deserialize, Serialize};

use super::classify::{ActiveGeneration, GenerationFacts};
use super::machine::Machine;
use super::node_state::NodeState;
use super::snapshot::{Head, PastGeneration, Snapshot};
use super::tracked::{SetChanges, VecChanges};

/// Changes of a [`Snapshot`]. Opaque: serialise them, keep them, apply them in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<Box<Head>>,
    #[serde(default, skip_serializing_if = "VecChanges::is_empty")]
    nodes: VecChanges<NodeState>,
    /// Ranks that have another home than before; all of them with the first placement.
    #[serde(default, skip_serializing_if = "VecChanges::is_empty")]
    homes: VecChanges<u32>,
    #[serde(default, skip_serializing_if = "VecChanges::is_empty")]
    history: VecChanges<PastGeneration>,
    #[serde(default, skip_serializing_if = "SetChanges::is_empty")]
    waiting: SetChanges,
    #[serde(default, skip_serializing_if = "SetChanges::is_empty")]
    unkilled: SetChanges,
    #[serde(default, rename = "unheard", skip_serializing_if = "SetChanges::is_empty")]
    unanswered: SetChanges,
    #[serde(default, rename = "run", skip_serializing_if = "Option::is_none")]
    active: Option<ActiveChanges>,
}

/// What changed in the run under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ActiveChanges {
    /// There is none any more.
    Over,
    /// It began.
    Begun(Box<ActiveGeneration>),
    /// It goes on.
    Changed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        facts: Option<Box<GenerationFacts>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ended: Vec<(Rank, RankEnd)>,
        #[serde(default, skip_serializing_if = "SetChanges::is_empty")]
        down: SetChanges,
    },
}

/// The parts of a snapshot that are compared with what they were, because they are small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastTaken {
    head: Head,
    active: Option<GenerationFacts>,
}

impl LastTaken {
    pub fn of(state: &Snapshot) -> Self {
        LastTaken { head: state.head.clone(), active: state.active.as_ref().map(|active| active.facts.clone()) }
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
        let active = self.active_changes();
        let state = &mut self.state;
        let head = (self.taken.head != state.head).then(|| Box::new(state.head.clone()));
        let changes = Changes {
            nodes: state.nodes.take_changes(),
            homes: state.homes.take_changes(),
            history: state.history.take_changes(),
            waiting: state.waiting.take_changes(),
            unkilled: state.unkilled.take_changes(),
            unanswered: state.unanswered.take_changes(),
            active,
            head,
        };
        if changes.head.is_some() || changes.active.is_some() {
            self.taken = LastTaken::of(state);
        }
        changes
    }

    fn active_changes(&mut self) -> Option<ActiveChanges> {
        let Some(active) = &mut self.state.active else {
            return self.taken.active.is_some().then_some(ActiveChanges::Over);
        };
        let (ended, down) = (active.ended.take_changes(), active.down.take_changes());
        match &self.taken.active {
            Some(before) if before.generation == active.facts.generation => {
                let facts = (*before != active.facts).then(|| Box::new(active.facts.clone()));
                let same = facts.is_none() && ended.is_empty() && down.is_empty();
                (!same).then_some(ActiveChanges::Changed { facts, ended, down })
            }
            _ => Some(ActiveChanges::Begun(Box::new(active.clone()))),
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
        let Changes { head, nodes, homes, history, waiting, unkilled, unanswered, active } = changes;
        if let Some(head) = head {
            self.head = (**head).clone();
        }
        let fit = self.nodes.apply(nodes) && self.homes.apply(homes) && self.history.apply(history);
        self.waiting.apply(waiting);
        self.unkilled.apply(unkilled);
        self.unanswered.apply(unanswered);
        match (active, &mut self.active) {
            (None, _) => {}
            (Some(ActiveChanges::Over), _) => self.active = None,
            (Some(ActiveChanges::Begun(active)), _) => self.active = Some((**active).clone()),
            (Some(ActiveChanges::Changed { facts, ended, down }), Some(active)) => {
                if let Some(facts) = facts {
                    active.facts = (**facts).clone();
                }
                active.ended.apply(ended);
                active.down.apply(down);
            }
            (Some(ActiveChanges::Changed { .. }), None) => return Err(Unfit),
        }
        if fit { Ok(()) } else { Err(Unfit) }
    }
}
