//! Nodes that the user excludes: no ranks are placed on them.
//!
//! A node that is excluded before its agent is up needs none. The agent of one that is excluded later goes on to run:
//! checkpoint files in the node's cache are copied from there to the nodes that take its ranks, and drained. Ranks on
//! the node run to the end of their generation, unless the user wants them ended now.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_model::NodeName;

use crate::events::{DownReason, LogEvent, TimedReason, nodes_text};
use crate::relaunch::action::Action;
use crate::relaunch::exclusion::Exclusion;
use crate::relaunch::machine::Machine;
use crate::relaunch::node_state::{NodeStatus, Starting};
use crate::relaunch::snapshot::Phase;

impl Machine {
    /// Makes `excluded` the excluded nodes. Nodes that are not in the allocation are ignored.
    pub(super) fn set_exclusions(
        &mut self,
        now: Duration,
        excluded: &BTreeMap<NodeName, Exclusion>,
        out: &mut Vec<Action>,
    ) {
        let (mut is_changed, mut new, mut ended) = (false, Vec::new(), Vec::new());
        for position in 0..self.state.nodes.len() as u32 {
            // The job lends no excluded node.
            if self.state.nodes[position as usize].is_not_lent() {
                continue;
            }
            let wanted = excluded.get(&self.state.names[position as usize]);
            let present = self.state.nodes[position as usize].excluded.as_ref();
            match (wanted, present) {
                (None, None) => continue,
                (Some(exclusion), Some(present)) if present.reason == *exclusion => continue,
                (Some(exclusion), before) => {
                    if before.is_none() {
                        new.push((position, exclusion));
                    }
                    self.exclude(now, position, exclusion, before.is_none(), out);
                    if exclusion.now {
                        ended.push(position);
                    }
                }
                (None, Some(_)) => self.include(position, out),
            }
            is_changed = true;
        }
        if !is_changed {
            return;
        }
        self.index_homes();
        ended.retain(|position| self.is_used(*position) && !self.state.nodes[*position as usize].is_out());
        let is_running = self.state.head.phase == Phase::Running;
        let is_delayed = is_running && self.usable() < self.needed();
        for (position, exclusion) in new {
            let ranks = match self.state.head.phase {
                Phase::Preparing | Phase::Running | Phase::Ending { .. } => self.ranks_on[position as usize].clone(),
                _ => Vec::new(),
            };
            let (node, reason) = (self.name(position), exclusion.reason.clone());
            self.record(LogEvent::NodeExcluded { node, reason, ranks, now: exclusion.now && !is_delayed }, out);
        }
        match self.state.head.phase {
            // Its placement may use the node.
            Phase::Preparing => self.set_phase(Phase::Gathering),
            Phase::Running if !ended.is_empty() => self.end_excluded(now, &ended, out),
            _ => self.end_delayed(now, out),
        }
        self.want_nodes(out);
    }

    /// Ends the generation because of nodes whose exclusion was delayed, if enough others can be used now.
    pub(super) fn end_delayed(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.state.head.phase != Phase::Running || self.usable() < self.needed() {
            return;
        }
        let is_delayed = |position: &u32| {
            let node = &self.state.nodes[*position as usize];
            node.keeps_ranks && node.excluded.is_some() && self.is_used(*position) && !node.is_out()
        };
        let delayed: Vec<u32> = (0..self.state.nodes.len() as u32).filter(is_delayed).collect();
        if delayed.is_empty() {
            return;
        }
        for position in &delayed {
            self.state.nodes.change(*position).keeps_ranks = false;
        }
        self.end_excluded(now, &delayed, out);
    }

    fn exclude(&mut self, now: Duration, position: u32, exclusion: &Exclusion, is_new: bool, out: &mut Vec<Action>) {
        let node = &self.state.nodes[position as usize];
        if is_new && node.is_starting() && node.address.is_none() {
            self.need_no_agent(now, position, exclusion);
            self.fence(position, out);
        }
        self.state.nodes.change(position).excluded = Some(TimedReason { reason: exclusion.clone(), at: now });
    }

    fn need_no_agent(&mut self, now: Duration, position: u32, exclusion: &Exclusion) {
        let reason = DownReason::Excluded { reason: exclusion.reason.clone() };
        self.set_status(position, NodeStatus::Down { cause: TimedReason { reason, at: now } });
    }

    /// The node may get ranks again: as a spare of the generation under way, or in the next one.
    fn include(&mut self, position: u32, out: &mut Vec<Action>) {
        let node = self.state.nodes.change(position);
        (node.excluded, node.keeps_ranks) = (None, false);
        self.record(LogEvent::NodeIncluded { node: self.name(position) }, out);
        if !self.state.nodes[position as usize].has_no_agent() {
            return;
        }
        self.set_status(position, NodeStatus::Starting(Starting::first(self.contacts.time())));
        out.push(Action::StartAgent { node: self.name(position) });
    }

    /// Ends the generation because of ranks on excluded nodes, unless too few nodes are left for another one.
    fn end_excluded(&mut self, now: Duration, ended: &[u32], out: &mut Vec<Action>) {
        if self.state.active.as_ref().is_none_or(|active| active.expects_end()) {
            return;
        }
        let (left, needed) = (self.usable(), self.needed());
        let nodes = self.names_of(ended.iter().copied());
        if left < needed {
            for position in ended {
                self.state.nodes.change(*position).keeps_ranks = true;
            }
            self.record(LogEvent::ExclusionDelayed { nodes, left, needed }, out);
            return;
        }
        if let Some(active) = &mut self.state.active {
            active.facts.excluded.clone_from(&nodes);
        }
        let seen = format!("excluded by the user: {}", nodes_text(&nodes));
        self.end_generation(now, seen, out);
    }

    /// Nodes that may get ranks, now or when their agents are up.
    pub(super) fn usable(&self) -> u32 {
        self.count.starting + self.count.healthy - self.count.excluded
    }

    /// Marks the nodes that are excluded when the loop begins. Their agents are not started.
    pub(super) fn exclude_at_start(&mut self, now: Duration, out: &mut Vec<Action>) {
        let excluded = self.config.excluded.clone();
        for position in 0..self.state.nodes.len() as u32 {
            if self.state.nodes[position as usize].is_not_lent() {
                continue;
            }
            let wanted = excluded.get(&self.state.names[position as usize]);
            match wanted {
                Some(exclusion) => {
                    if !self.state.nodes[position as usize].is_out() {
                        self.need_no_agent(now, position, exclusion);
                    }
                    self.state.nodes.change(position).excluded =
                        Some(TimedReason { reason: exclusion.clone(), at: now });
                    let (node, reason) = (self.name(position), exclusion.reason.clone());
                    self.record(LogEvent::NodeExcluded { node, reason, ranks: Vec::new(), now: false }, out);
                }
                // Excluded in a former step or run.
                None if self.state.nodes[position as usize].excluded.is_some() => {
                    self.state.nodes.change(position).excluded = None;
                    self.record(LogEvent::NodeIncluded { node: self.name(position) }, out);
                    if self.state.nodes[position as usize].has_no_agent() {
                        let starting = Starting::first(self.contacts.time());
                        self.set_status(position, NodeStatus::Starting(starting));
                    }
                }
                None => {}
            }
        }
        self.index_homes();
    }
}
