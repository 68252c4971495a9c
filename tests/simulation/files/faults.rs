//! Kills and errors at a call.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_core::calls::{self, Call};
use rustix::io::Errno;

use crate::names::NodeIndex;
use crate::world::{World, trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The process is killed before the call: it makes no other one.
    Kill,
    /// The call fails, and later ones succeed.
    Error(Errno),
}

/// A fault at the call of this number, counted from 1, of those to which it applies.
#[derive(Clone, Copy, Debug)]
pub struct PlannedFault {
    fault: CallFault,
    at: u64,
}

impl CallFault {
    fn applies(self, call: Call) -> bool {
        match self {
            // Between other calls, it leaves the same.
            CallFault::Kill => call.changes(),
            CallFault::Error(Errno::MFILE) => matches!(call, Call::Open | Call::Create | Call::List),
            CallFault::Error(Errno::NOSPC | Errno::DQUOT) => {
                call.changes() && !matches!(call, Call::Remove | Call::ChangeMode)
            }
            CallFault::Error(_) => true,
        }
    }
}

/// Does file work of one process on this thread; returns the fault, if the work came so far.
pub fn with_fault<T>(planned: Option<PlannedFault>, work: impl FnOnce() -> T) -> (T, Option<CallFault>) {
    let fired = Rc::new(Cell::new(None));
    let (seen, calls) = (fired.clone(), Cell::new(0));
    let observer = move |call: Call| {
        if seen.get() == Some(CallFault::Kill) {
            // Nothing that a dead process does has an effect.
            return Err(Errno::IO);
        }
        let Some(PlannedFault { fault, at }) = planned.filter(|planned| planned.fault.applies(call)) else {
            return Ok(());
        };
        calls.set(calls.get() + 1);
        if calls.get() != at {
            return Ok(());
        }
        seen.set(Some(fault));
        Err(match fault {
            CallFault::Kill => Errno::IO,
            CallFault::Error(errno) => errno,
        })
    };
    (calls::observe(observer, work), fired.get())
}

impl World {
    /// A fault in the next step of a process, now and then.
    pub fn plan_call_fault(&mut self) -> Option<PlannedFault> {
        let rates = self.scenario.files?;
        if self.injected_faults >= self.scenario.faults.most {
            return None;
        }
        let choice = self.dice.below(1000);
        let fault = if choice < rates.kills {
            CallFault::Kill
        } else if choice < rates.kills + rates.errors {
            let errors = [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::MFILE];
            CallFault::Error(errors[self.dice.below(errors.len())])
        } else {
            return None;
        };
        // Few calls as often as many.
        let most = 1 << self.dice.below(8);
        Some(PlannedFault { fault, at: 1 + self.dice.below(most) })
    }

    /// A kill in the next step of the orchestrator, now and then.
    pub fn plan_kill(&mut self) -> Option<PlannedFault> {
        self.plan_call_fault().filter(|planned| planned.fault == CallFault::Kill)
    }

    /// Counts a fault that has happened; true if the process is dead.
    pub fn call_fault_happened(&mut self, fault: Option<CallFault>, process: &str) -> bool {
        let (Some(fault), Some(files)) = (fault, &mut self.files) else { return false };
        self.injected_faults += 1;
        match fault {
            CallFault::Kill => files.tally.kills += 1,
            CallFault::Error(_) => {
                files.tally.errors += 1;
                self.oracle.disk_failures += 1;
            }
        }
        trace!(self, "{process}: {fault:?} at a call of this step");
        fault == CallFault::Kill
    }

    /// As [`World::call_fault_happened`], for the agent of a node, which ends if it was killed.
    pub fn agent_fault_happened(&mut self, at: NodeIndex, fault: Option<CallFault>) -> bool {
        let killed = self.call_fault_happened(fault, &format!("n{at}"));
        if killed {
            self.agent_dies(at);
            self.notice_agent_loss(at, "killed");
        }
        killed
    }
}
