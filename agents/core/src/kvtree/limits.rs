//! How large a hash file may be, by its kind. Its content may be hostile, and each element takes 60 to 100 bytes of the
//! reader's memory, ten times as much as in the file.

use std::path::Path;

/// The most that is read of a hash file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Elements on all levels together.
    pub elements: usize,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Limits {
    /// The largest kind, a summary: of a million ranks, with a file and a redundancy file each.
    pub const LARGEST: Limits = Limits { elements: 16_000_000, bytes: 256 << 20 };
    /// The files of a node or of a member of a redundancy set: one element for each of a million files, or all their
    /// meta data for a hundred thousand.
    const FILES: Limits = Limits { elements: 2_000_000, bytes: 256 << 20 };
    /// The checkpoints of a prefix directory: twenty elements for each of a hundred thousand.
    const INDEX: Limits = Limits { elements: 2_000_000, bytes: 64 << 20 };
    /// What describes one file, one dataset, one node or one job.
    pub const ONE: Limits = Limits { elements: 10_000, bytes: 4 << 20 };

    /// Those of the kind of file that has this name.
    pub fn of(path: &Path) -> Self {
        match path.file_name().and_then(|name| name.to_str()).unwrap_or_default() {
            "summary.scr" => Limits::LARGEST,
            "index.scr" => Limits::INDEX,
            "flush.scrinfo" | "halt.scrinfo" | "nodes.scrinfo" | "dataset.holdfast" => Limits::ONE,
            // Filemaps, their logs, transfer files.
            name if [".scrinfo", ".scrfilemap", ".xor", ".log"].iter().any(|end| name.ends_with(end)) => Limits::FILES,
            // Meta files.
            name if name.ends_with(".scr") => Limits::ONE,
            // Tables of contents in containers, and files that have another name than SCR gives them.
            _ => Limits::LARGEST,
        }
    }
}
