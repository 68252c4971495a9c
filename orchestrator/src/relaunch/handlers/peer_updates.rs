//! The addresses that agents need of each other: the leader needs those of all others (it passes them on with its
//! orders), the others need the leader's. All updates of one batch of events go into one action, so that hundreds of
//! nodes that come back together cost one message for each agent.

use std::collections::BTreeMap;

use crate::relaunch::action::Action;
use crate::relaunch::machine::{Machine, PendingUpdates};
use crate::relaunch::snapshot::Phase;

impl Machine {
    /// Turns the updates into actions, unless their generation has ended.
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
        // A leader that is not up will have another address, which all others get then.
        if leader_is_up {
            update(address(leader).into_iter().collect(), Vec::new(), to, out);
        }
    }
}
