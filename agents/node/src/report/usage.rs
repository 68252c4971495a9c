//! Memory and load of the node, and the memory of this process.
//!
//! The files of `/proc` are opened once, and only the lines that are needed are read from them: an agent without work
//! does little else. As all files there, they never wait for a disk.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Longer than each content, or than the lines of it that are needed.
const CONTENT: usize = 256;

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

#[derive(Debug)]
pub(super) struct UsageFiles {
    memory: Option<File>,
    load: Option<File>,
    own: Option<File>,
}

impl UsageFiles {
    pub(super) fn open() -> Self {
        let open = |path: &str| File::open(path).ok();
        UsageFiles { memory: open("/proc/meminfo"), load: open("/proc/loadavg"), own: open("/proc/self/statm") }
    }

    pub(super) fn measure(&self) -> NodeUsage {
        let resident = read(self.own.as_ref(), |text| text.split(' ').nth(1)?.parse::<u64>().ok());
        let load = read(self.load.as_ref(), |text| text.split(' ').next()?.parse().ok());
        let memory =
            read(self.memory.as_ref(), |text| Some((bytes(text, "MemTotal:")?, bytes(text, "MemAvailable:")?)));
        let (memory_total, memory_available) = memory.unwrap_or_default();
        NodeUsage {
            memory_total,
            memory_available,
            load: load.unwrap_or_default(),
            agent_memory: resident.unwrap_or_default().saturating_mul(rustix::param::page_size() as u64),
        }
    }
}

/// What `parse` finds in the beginning of a file.
fn read<T>(file: Option<&File>, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut content = [0; CONTENT];
    let length = file?.read_at(&mut content, 0).ok()?;
    // Cut off anywhere, but these files are ASCII.
    parse(str::from_utf8(&content[..length]).ok()?)
}

/// A line of `/proc/meminfo`: `NAME:   NUMBER kB`.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_and_this_process_are_measured() {
        let usage = UsageFiles::open().measure();
        assert!(usage.memory_total >= usage.memory_available && usage.memory_available > 0, "{usage:?}");
        assert!(usage.agent_memory > 100_000 && usage.agent_memory < usage.memory_total, "{usage:?}");
        assert!(usage.load >= 0.0);
        let again = UsageFiles::open().measure();
        assert_eq!(again.memory_total, usage.memory_total);
    }

    #[test]
    fn lines_are_read_as_the_kernel_writes_them_and_what_is_missing_counts_as_nothing() {
        let text = "MemTotal:       24684096 kB\nMemFree:         9437652 kB\nMemAvailable:   23262548 kB\nBuffers";
        assert_eq!(bytes(text, "MemTotal:"), Some(24_684_096 << 10));
        assert_eq!(bytes(text, "MemAvailable:"), Some(23_262_548 << 10));
        assert_eq!(bytes(text, "Buffers:"), None);
        let nothing = UsageFiles { memory: None, load: None, own: None };
        assert_eq!(nothing.measure(), NodeUsage::default());
    }
}
