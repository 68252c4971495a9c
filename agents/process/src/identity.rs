//! Which process is meant by a process id.

use serde::{Deserialize, Serialize};

use crate::stat::ProcessStat;

/// Names one process of this boot, also after its number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: u32,
    /// In clock ticks since the machine was booted.
    pub start_time: u64,
}

impl ProcessId {
    /// The process that has this number now.
    pub fn of(pid: u32) -> Option<ProcessId> {
        Some(ProcessId { pid, start_time: start_time(pid)? })
    }
}

/// The time at which the process was started. `None`: there is no such process.
pub fn start_time(pid: u32) -> Option<u64> {
    ProcessStat::of(pid).map(|stat| stat.start_time)
}

/// The same of a process that has not ended.
pub fn running_since(pid: u32) -> Option<u64> {
    ProcessStat::of(pid).filter(|stat| !stat.has_ended()).map(|stat| stat.start_time)
}
