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
    /// All writes of the step take a few bytes at once, which must make no difference.
    ShortWrites,
}

/// A fault at the call of this number, counted from 1, of those to which it applies.
#[derive(Clone, Copy, Debug)]
pub struct PlannedFault {
    fault: CallFault,
    at: u64,
}

impl PlannedFault {
    pub fn kills(self) -> bool {
        self.fault == CallFault::Kill
    }
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
            CallFault::ShortWrites => false,
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
            CallFault::Error(errno) => errno,
            _ => Errno::IO,
        })
    };
    if planned.is_some_and(|planned| planned.fault == CallFault::ShortWrites) {
        let (mut work, mut done) = (Some(work), None);
        calls::with_short_writes(&mut || done = work.take().map(|work| work()));
        return (done.unwrap(), Some(CallFault::ShortWrites));
    }
    (calls::observe(observer, work), fired.get())
}

impl World {
    /// A fault in the next step of a process, now and then.
    pub fn plan_call_fault(&mut self) -> Option<PlannedFault> {
        let rates = self.scenario.files?;
        let choice = self.dice.below(1000);
        let fault = if choice >= 1000 - rates.short_writes {
            CallFault::ShortWrites
        } else if self.injected_faults >= self.scenario.faults.most {
            return None;
        } else if choice < rates.kills {
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

    /// A fault in the next step of the orchestrator, now and then. It is not killed where none could take over: where
    /// that is not allowed for, and while its state could not be written.
    pub fn plan_orchestrator_fault(&mut self) -> Option<PlannedFault> {
        let planned = self.plan_call_fault()?;
        (!planned.kills() || self.can_be_taken_over()).then_some(planned)
    }

    /// Counts a fault that has happened; true if the process is dead.
    fn call_fault_happened(&mut self, fault: Option<CallFault>, process: &str) -> bool {
        let (Some(fault), Some(files)) = (fault, &mut self.files) else { return false };
        self.injected_faults += u32::from(fault != CallFault::ShortWrites);
        match fault {
            CallFault::Kill => files.tally.kills += 1,
            CallFault::Error(_) => files.tally.errors += 1,
            CallFault::ShortWrites => files.tally.short_writes += 1,
        }
        trace!(self, "{process}: {fault:?} at a call of this step");
        fault == CallFault::Kill
    }

    /// Counts a fault of the orchestrator that has happened; true if it is dead.
    pub fn orchestrator_fault_happened(&mut self, fault: Option<CallFault>) -> bool {
        if let (Some(CallFault::Error(_)), Some(files)) = (fault, &mut self.files) {
            files.tally.orchestrator_errors += 1;
        }
        self.call_fault_happened(fault, "the orchestrator")
    }

    /// As [`World::call_fault_happened`], for the agent of a node, which ends if it was killed.
    pub fn agent_fault_happened(&mut self, at: NodeIndex, fault: Option<CallFault>) -> bool {
        self.oracle.disk_failures += u32::from(matches!(fault, Some(CallFault::Error(_))));
        let killed = self.call_fault_happened(fault, &format!("n{at}"));
        if killed {
            self.agent_dies(at);
            self.notice_agent_loss(at, "killed");
        }
        killed
    }
}
