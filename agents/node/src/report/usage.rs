//! Memory and load of the node, and the memory of this process.

use procfs::process::Process;
use sysinfo::{MemoryRefreshKind, System};

/// What was measured; 0 where it cannot be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct NodeUsage {
    /// Bytes.
    pub memory_total: u64,
    /// Bytes that programs can still get.
    pub memory_available: u64,
    /// Average over a minute.
    pub load: f64,
    /// Resident memory of this process, bytes.
    pub agent_memory: u64,
}

/// Measures `system`, which is made by the first measurement.
pub(super) fn measure(system: &mut Option<System>) -> NodeUsage {
    let mut usage = NodeUsage { agent_memory: resident(), ..NodeUsage::default() };
    if system.is_none() {
        *system = System::new().ok();
    }
    if let Some(system) = system {
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        usage.memory_total = system.total_memory();
        usage.memory_available = system.available_memory();
    }
    usage.load = System::load_average().map_or(0.0, |load| load.one);
    usage
}

/// The resident memory of this process in bytes; 0 if `/proc` cannot be read.
fn resident() -> u64 {
    let resident = Process::myself().and_then(|own| own.statm()).map_or(0, |statm| statm.resident);
    resident * procfs::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_and_this_process_are_measured() {
        let mut system = None;
        let usage = measure(&mut system);
        assert!(usage.memory_total >= usage.memory_available && usage.memory_available > 0, "{usage:?}");
        assert!(usage.agent_memory > 100_000 && usage.agent_memory < usage.memory_total, "{usage:?}");
        assert_eq!(measure(&mut system).memory_total, usage.memory_total);
    }
}
