//! Orders that one agent carries out on its files.

use std::fs;
use std::path::Path;

use holdfast_agent::simulation::SimulatedAgent;
use holdfast_model::{Failure, FailureKind};
use holdfast_wire::peer::Order;

use super::faults::with_fault;
use crate::names::NodeIndex;
use crate::world::{Defect, PrefixState, World};

/// A defect: the application's files in a directory lose their second half.
fn halve_files(directory: &Path) {
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        let is_application = path.extension().is_some_and(|part| part == "0" || part == "1");
        if is_application {
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }
    }
}

impl World {
    /// Carries out an order that needs no other agent.
    pub fn perform_on_files(&mut self, at: NodeIndex, instance: u64, order: u64, what: Order) {
        let failed = |what: &str| Err(Failure::new(FailureKind::Io, what));
        let result = if self.disk_fails(at, what != Order::Inventory) {
            self.oracle.disk_failures += 1;
            failed("the disk fails")
        } else if self.prefix_state == PrefixState::Fails && matches!(what, Order::Fetch { .. } | Order::Flush { .. }) {
            failed("the prefix directory fails")
        } else {
            let flushed = match &what {
                Order::Flush { checkpoint, directory, .. } => Some((*checkpoint, directory.clone())),
                _ => None,
            };
            if flushed.is_some() && self.plan_power_loss() {
                return self.lose_power(at, |agent| agent.order(order, what));
            }
            let is_halt = matches!(what, Order::Halt { .. });
            let changes =
                !is_halt && !matches!(what, Order::Inventory | Order::Verify { .. } | Order::VerifyStored { .. });
            let fault = self.plan_call_fault();
            let carry_out = |agent: &SimulatedAgent| with_fault(fault, || agent.order(order, what));
            let Some(((result, fault), recorded)) = self.on_prefix(at, flushed.is_some(), carry_out) else { return };
            if is_halt {
                self.read_back_halt(at);
            }
            if self.agent_fault_happened(at, fault) {
                return;
            }
            if changes {
                self.read_back(at);
            }
            if let (Some((_, directory)), Some(Defect::FlushedByHalf)) = (&flushed, self.defect) {
                halve_files(directory);
            }
            if let (Some((checkpoint, directory)), Ok(result), Some(recorded)) = (flushed, &result, recorded) {
                self.check_flushed(checkpoint, &directory, result, &recorded);
            }
            result
        };
        if result.as_ref().is_err_and(|failure| failure.kind == FailureKind::Damaged) {
            self.oracle.disk_failures += 1;
        }
        self.order_done(at, instance, order, result);
    }
}
