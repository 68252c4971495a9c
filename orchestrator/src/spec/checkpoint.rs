//! `checkpoint:` who writes checkpoints, where they are kept, how they are protected, and when they are copied out.

use std::path::PathBuf;
use std::time::Duration;

use super::reading::{BANDWIDTH, BYTES, Choice, PERCENT, SWITCH, Section, TEXT};

/// Everything about the checkpoints of one run. The defaults are SCR's (`SCR manual §10`).
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Who produces the files.
    pub source: Source,
    /// Base of the control directory on every node, and the capacity it must have.
    pub control: ControlDirectory,
    /// Bases of the cache on every node; at least one.
    pub cache: Vec<Cache>,
    /// Redundancy descriptors; at least one. Checkpoint `id` takes the one with the largest `every` that divides it.
    pub redundancy: Vec<Redundancy>,
    /// When and how checkpoints are copied to the prefix.
    pub flush: Flush,
    /// Where a run looks for a checkpoint to go on from.
    pub restart: Restart,
    /// When CRC32s are computed and compared.
    pub crc: Crc,
    /// When the application is told that a checkpoint is due.
    pub need: Need,
    /// How agents protect what they send each other.
    pub data_plane: DataPlane,
}

/// A source of checkpoint files (DESIGN §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The application calls our API.
    Scr,
    /// The application links LLNL's SCR library; we take the place of its scripts.
    ScrFiles,
}

impl Choice for Source {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("scr", Source::Scr), ("scr-files", Source::ScrFiles)];
    const LATER: &'static [&'static str] = &["fti", "command", "jubatus"];
}

/// The control directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlDirectory {
    /// `<base>/<user>/scr.<job id>` is the directory itself.
    pub base: PathBuf,
    /// Bytes that its file system must offer; a node with less is down. `None` = not checked.
    pub bytes: Option<u64>,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// `<base>/<user>/scr.<job id>` is the directory itself.
    pub base: PathBuf,
    /// Checkpoints kept in it.
    pub keep: u32,
    /// Bytes that its file system must offer; a node with less is down. `None` = not checked.
    pub bytes: Option<u64>,
}

/// One redundancy descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redundancy {
    /// How files are protected.
    pub scheme: Scheme,
    /// XOR: members of a group, at least 2.
    pub set_size: u32,
    /// Distance in nodes between the members of a group, or to the partner.
    pub hop_distance: u32,
    /// Every how many checkpoints it is used.
    pub every: u64,
    /// The base of the cache that its checkpoints are kept in: one of [`Checkpoint::cache`].
    pub cache: PathBuf,
    /// What is expected to fail together; no group has two members in one.
    pub failure_domain: FailureDomain,
}

/// A redundancy scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// No redundancy: survives the application, not the node.
    Local,
    /// A full copy on another node.
    Partner,
    /// One XOR piece a member: survives one member of each group.
    Xor,
}

impl Choice for Scheme {
    const AVAILABLE: &'static [(&'static str, Self)] =
        &[("local", Scheme::Local), ("partner", Scheme::Partner), ("xor", Scheme::Xor)];
    const LATER: &'static [&'static str] = &["rs"];
}

/// A failure domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureDomain {
    /// Each node fails by itself.
    Node,
}

impl Choice for FailureDomain {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("node", FailureDomain::Node)];
    const LATER: &'static [&'static str] = &["rack", "switch", "chassis"];
}

/// Copies to the prefix while the application runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flush {
    /// Every how many checkpoints; 0 = never (the drain copies what is newest all the same).
    pub every: u64,
    /// Whether the application waits.
    pub mode: FlushMode,
    /// Asynchronous: bytes a second from one node, at most; 0 = not limited.
    pub bandwidth: u64,
    /// Asynchronous: share of one processor that a copy may use on a node; 0 = not limited.
    pub percent: f64,
    /// Also flush the checkpoint that a run was restarted from.
    pub on_restart: bool,
}

/// Whether the application waits for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// It waits.
    Sync,
    /// It goes on.
    Async,
}

impl Choice for FlushMode {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("sync", FlushMode::Sync), ("async", FlushMode::Async)];
}

/// Where a run looks for a checkpoint to go on from: first in the caches, then on the prefix, else it starts afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Look in the caches: distribute and rebuild.
    pub distribute: bool,
    /// Look on the prefix: fetch.
    pub fetch: bool,
}

/// When CRC32s are computed and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc {
    /// When a file is copied from node to node.
    pub on_copy: bool,
    /// When a file is copied to the prefix.
    pub on_flush: bool,
}

/// When the application is told that a checkpoint is due (`SCR_Need_checkpoint`): when any of these says so; always,
/// if none is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// At every so many calls; 0 = not used.
    pub interval: u64,
    /// So long after the last checkpoint; zero = not used.
    pub seconds: Duration,
    /// While checkpointing takes less than this percentage of the time; 0 = not used.
    pub overhead: f64,
}

/// How agents protect what they send each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPlane {
    /// TLS: nobody reads it, nobody changes it.
    Encrypted,
}

impl Choice for DataPlane {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("encrypted", DataPlane::Encrypted)];
    const LATER: &'static [&'static str] = &["authenticated", "plain"];
}

const TEMPORARY: &str = "/tmp";

impl Checkpoint {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let source = section.choice("source", Source::Scr);
        let control = read_control(section.section("control"));
        let cache: Vec<Cache> = section.elements("cache").into_iter().map(read_cache).collect();
        let base = cache.first().map_or_else(|| PathBuf::from(TEMPORARY), |first| first.base.clone());
        let redundancy =
            section.elements("redundancy").into_iter().map(|element| read_redundancy(element, &base)).collect();
        let flush = read_flush(section.section("flush"));
        let restart = read_restart(section.section("restart"));
        let crc = read_crc(section.section("crc"));
        let need = read_need(section.section("need"));
        let data_plane = section.choice("data_plane", DataPlane::Encrypted);
        section.finish();
        Checkpoint { source, control, cache, redundancy, flush, restart, crc, need, data_plane }
    }
}

fn read_control(mut section: Section<'_>) -> ControlDirectory {
    let base = PathBuf::from(section.value("base", &TEXT, TEMPORARY.to_owned()));
    let bytes = section.optional("bytes", &BYTES);
    section.finish();
    ControlDirectory { base, bytes }
}

fn read_cache(mut section: Section<'_>) -> Cache {
    let base = PathBuf::from(section.value("base", &TEXT, TEMPORARY.to_owned()));
    let keep = section.number("keep", 1..=1000, 2) as u32;
    let bytes = section.optional("bytes", &BYTES);
    section.finish();
    Cache { base, keep, bytes }
}

fn read_redundancy(mut section: Section<'_>, first_cache: &std::path::Path) -> Redundancy {
    let scheme = section.choice("scheme", Scheme::Xor);
    let set_size = section.number("set_size", 1..=65_536, 8) as u32;
    let hop_distance = section.number("hop_distance", 1..=65_536, 1) as u32;
    let every = section.number("every", 1..=u64::MAX, 1);
    let cache = PathBuf::from(section.value("cache", &TEXT, first_cache.to_string_lossy().into_owned()));
    let failure_domain = section.choice("failure_domain", FailureDomain::Node);
    section.finish();
    Redundancy { scheme, set_size, hop_distance, every, cache, failure_domain }
}

fn read_flush(mut section: Section<'_>) -> Flush {
    let every = section.number("every", 0..=u64::MAX, 10);
    let mode = section.choice("mode", FlushMode::Sync);
    let bandwidth = section.value("bandwidth", &BANDWIDTH, 200 << 20);
    let percent = section.value("percent", &PERCENT, 0.0);
    let on_restart = section.value("on_restart", &SWITCH, false);
    section.finish();
    Flush { every, mode, bandwidth, percent, on_restart }
}

fn read_restart(mut section: Section<'_>) -> Restart {
    let distribute = section.value("distribute", &SWITCH, true);
    let fetch = section.value("fetch", &SWITCH, true);
    section.finish();
    Restart { distribute, fetch }
}

fn read_crc(mut section: Section<'_>) -> Crc {
    let on_copy = section.value("on_copy", &SWITCH, false);
    let on_flush = section.value("on_flush", &SWITCH, true);
    section.finish();
    Crc { on_copy, on_flush }
}

fn read_need(mut section: Section<'_>) -> Need {
    let interval = section.number("interval", 0..=u64::MAX, 0);
    let seconds = Duration::from_secs(section.number("seconds", 0..=u64::from(u32::MAX), 0));
    let overhead = section.value("overhead", &PERCENT, 0.0);
    section.finish();
    Need { interval, seconds, overhead }
}
