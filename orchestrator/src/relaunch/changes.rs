//! The changes of the machine's state since it was written last. Their size depends on what the events changed, not on
//! the size of the state.
//!
//! `Machine::take_changes` returns them, [`Snapshot::apply`] updates an older snapshot with them. The first snapshot
//! with all changes applied in their order equals `Machine::snapshot`. The times of the last answers of the nodes and
//! the observations of the watchdog are in neither: an orchestrator that takes over begins with new ones.

use holdfast_model::{Rank, RankEnd};
use serde::{Deserialize, Serialize};

use super::classify::{ActiveGeneration, GenerationFacts};
use super::node_state::NodeState;
use super::snapshot::{Head, PastGeneration, Snapshot};
use super::tracked::{SetChanges, VecChanges};

/// Changes of a [`Snapshot`], to be serialised and applied in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<Box<Head>>,
    #[serde(default, skip_serializing_if = "VecChanges::is_empty")]
    nodes: VecChanges<NodeState>,
    /// Ranks that are on another node than before; all of them with the first placement.
    #[serde(default, skip_serializing_if = "VecChanges::is_empty")]
    homes: VecChanges<u32>,
    #[serde(default, skip_serializing_if = "VecChanges::is_empty")]
    history: VecChanges<PastGeneration>,
    #[serde(default, skip_serializing_if = "SetChanges::is_empty")]
    waiting: SetChanges,
    #[serde(default, skip_serializing_if = "SetChanges::is_empty")]
    unkilled: SetChanges,
    #[serde(default, skip_serializing_if = "SetChanges::is_empty")]
    unanswered: SetChanges,
    #[serde(default, rename = "run", skip_serializing_if = "Option::is_none")]
    active: Option<ActiveChanges>,
}

/// Changes of the generation under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ActiveChanges {
    /// It has ended.
    Over,
    /// It began.
    Begun(Box<ActiveGeneration>),
    Changed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        facts: Option<Box<GenerationFacts>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ended: Vec<(Rank, RankEnd)>,
        #[serde(default, skip_serializing_if = "SetChanges::is_empty")]
        down: SetChanges,
        #[serde(default, skip_serializing_if = "SetChanges::is_empty")]
        left: SetChanges,
    },
}

/// The small parts of the snapshot at the last call, which are compared to find changes.
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

impl LastTaken {
    /// The changes of the state since the last call.
    pub(super) fn take_changes(&mut self, state: &mut Snapshot) -> Changes {
        let active = self.active_changes(state);
        let head = (self.head != state.head).then(|| Box::new(state.head.clone()));
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
            *self = LastTaken::of(state);
        }
        changes
    }

    fn active_changes(&self, state: &mut Snapshot) -> Option<ActiveChanges> {
        let Some(active) = &mut state.active else {
            return self.active.is_some().then_some(ActiveChanges::Over);
        };
        let (ended, down) = (active.ended.take_changes(), active.down.take_changes());
        let left = active.left.take_changes();
        match &self.active {
            Some(before) if before.generation == active.facts.generation => {
                let facts = (*before != active.facts).then(|| Box::new(active.facts.clone()));
                let same = facts.is_none() && ended.is_empty() && down.is_empty() && left.is_empty();
                (!same).then_some(ActiveChanges::Changed { facts, ended, down, left })
            }
            _ => Some(ActiveChanges::Begun(Box::new(active.clone()))),
        }
    }
}

/// The changes do not belong to the snapshot that they were to be applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the changes are not of this state")]
pub struct Unfit;

impl Snapshot {
    /// Applies changes.
    ///
    /// # Errors
    /// The changes belong to another snapshot; this one cannot be used any more.
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
            (Some(ActiveChanges::Changed { facts, ended, down, left }), Some(active)) => {
                if let Some(facts) = facts {
                    active.facts = (**facts).clone();
                }
                active.ended.apply(ended);
                active.down.apply(down);
                active.left.apply(left);
            }
            (Some(ActiveChanges::Changed { .. }), None) => return Err(Unfit),
        }
        if fit { Ok(()) } else { Err(Unfit) }
    }
}
