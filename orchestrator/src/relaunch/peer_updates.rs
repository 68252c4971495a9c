//! What agents need of each other: the leader, where all others listen (it passes that on with its orders); the
//! others, where the leader listens. Everything that one batch of events brings about goes into one action:
//! nodes that return by the hundred cost one message an agent, not one for each of them.

use std::collections::{BTreeMap, BTreeSet};

use super::action::Action;
use super::machine::Machine;
use super::snapshot::Phase;

/// What was noted while events were taken in, by positions of nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingUpdates {
    /// They are to get the generation once more: they lost it, or did not accept it yet.
    pub prepare: BTreeSet<u32>,
    /// Their agents listen elsewhere now.
    pub moved: BTreeSet<u32>,
    /// They went on with the generation that was on their disk, and do not know where the others listen now.
    pub adopted: BTreeSet<u32>,
    /// Nodes without ranks that went down: the run goes on without them.
    pub down: BTreeSet<u32>,
}

impl Machine {
    /// Makes actions of the notices, as far as the generation that they are about is still there.
    pub(super) fn flush_updates(&mut self, out: &mut Vec<Action>) {
        let PendingUpdates { prepare, moved, adopted, down } = std::mem::take(&mut self.pending_updates);
        if !matches!(self.state.head.phase, Phase::Preparing | Phase::Running) {
            return;
        }
        let generation = self.generation();
        let is_up = |position: &u32| self.state.nodes[*position as usize].is_healthy();
        let prepare: Vec<u32> = prepare.into_iter().filter(is_up).collect();
        if !prepare.is_empty() {
            out.push(Action::Prepare { generation, placement: self.current_placement(), to: self.names_of(prepare) });
        }
        let Some(leader) = self.leader else { return };
        let update = |addresses, down: Vec<u32>, to: Vec<u32>, out: &mut Vec<Action>| {
            if !to.is_empty() {
                let (down, to) = (self.names_of(down), self.names_of(to));
                out.push(Action::UpdatePeers { generation, addresses, down, to });
            }
        };
        let address = |position: u32| Some((self.name(position), self.state.nodes[position as usize].address?));
        let leader_is_up = is_up(&leader);
        if leader_is_up && adopted.contains(&leader) {
            let addresses = self.agents().map(|(name, address)| (name.clone(), address)).collect();
            let down = (0u32..).zip(&self.state.nodes).filter(|(_, node)| node.is_down()).map(|(at, _)| at);
            update(addresses, down.collect(), vec![leader], out);
        } else if leader_is_up {
            let others = moved.iter().copied().filter(|position| *position != leader && is_up(position));
            let addresses: BTreeMap<_, _> = others.filter_map(address).collect();
            if !addresses.is_empty() || !down.is_empty() {
                update(addresses, down.into_iter().collect(), vec![leader], out);
            }
        }
        let is_other = |position: &u32| *position != leader && is_up(position);
        let to: Vec<u32> = if moved.contains(&leader) {
            self.healthy_nodes().filter(is_other).collect()
        } else {
            adopted.into_iter().filter(is_other).collect()
        };
        // A leader that is not up is on its way to another address, which all get when it is.
        if leader_is_up {
            update(address(leader).into_iter().collect(), Vec::new(), to, out);
        }
    }
}
