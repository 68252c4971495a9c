//! `checkpoint:` who writes checkpoints, where they are kept, how they are protected, and when they are copied out.
//!
//! The defaults are SCR's (`SCR manual §10`).

use std::path::PathBuf;

use holdfast_core::redundancy::registry;
use holdfast_model::{CrcPolicy, FlushMode, FlushPolicy, NeedPolicy, RestartPolicy, Scheme};

use super::keys::{elements, keys, section};
use super::value_kinds::{Choice, bandwidth, bytes, choice, path, percent, redundancy_scheme, switch, whole};

const TEMPORARY: &str = "/tmp";

keys! {
    /// Everything about the checkpoints of one run.
    pub struct Checkpoint {
        /// What produces the checkpoint files. `scr`: the application, through Holdfast's API. Files that LLNL's own SCR
        /// library left on nodes are saved by `holdfast drain`, which does not ask for this key.
        source: CheckpointSource = choice().or(CheckpointSource::Scr),
        /// Small state on each node.
        control: ControlDirectory = section::<ControlDirectory>(),
        /// Checkpoint data on each node; several caches are possible.
        cache: Vec<Cache> = elements::<Cache>(),
        /// How checkpoints are protected. Of several descriptors, checkpoint `id` takes the one with the largest `every`
        /// that divides it; one must have `every: 1`.
        redundancy: Vec<Redundancy> = elements::<Redundancy>(),
        /// Copies to the prefix while the application runs. The newest checkpoint is copied at the end in any case.
        flush: FlushPolicy = section::<FlushPolicy>(),
        /// Where a run looks for a checkpoint to continue from: in the caches, then on the prefix; else it starts afresh.
        restart: RestartPolicy = section::<RestartPolicy>(),
        /// When CRC32s are computed and compared.
        crc: CrcPolicy = section::<CrcPolicy>(),
        /// When SCR_Need_checkpoint answers yes: when any of these does; always, if none is set.
        need: NeedPolicy = section::<NeedPolicy>(),
        /// How agents protect what they send each other.
        data_plane: DataPlane = choice().or(DataPlane::Encrypted),
    }
}

keys! {
    /// The control directory: `<base>/<user>/scr.<job id>`.
    pub struct ControlDirectory {
        /// Base of the control directory; only the site's file may set the parameter.
        base: PathBuf = path().or(TEMPORARY.into()).scr("SCR_CNTL_BASE"),
        /// Capacity that its file system must have; a node with less is down. Default: not checked.
        bytes: Option<u64> = bytes().optional(),
    }
}

keys! {
    /// One cache: `<base>/<user>/scr.<job id>`.
    pub struct Cache {
        /// Base of the cache directory.
        base: PathBuf = path().or(TEMPORARY.into()).scr("SCR_CACHE_BASE"),
        /// Checkpoints kept in it at a time.
        keep: u32 = whole(1..=1000).or(2).scr("SCR_CACHE_SIZE"),
        /// As for the control directory.
        bytes: Option<u64> = bytes().optional(),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redundancy {
    /// How files are protected.
    pub scheme: Scheme,
    /// Schemes with sets: members of a set, at least 2.
    pub set_size: u32,
    /// Distance in nodes between the members of a group, or to the partner.
    pub hop_distance: u32,
    /// Every how many checkpoints it is used.
    pub every: u64,
    /// The base of the cache that its checkpoints are kept in: one of [`Checkpoint::cache`].
    pub cache: PathBuf,
}

keys! {
    Redundancy => Redundancy;
    /// `local`: not protected; `partner`: a copy on another node; `xor`: one lost member of a set can be rebuilt.
    scheme = redundancy_scheme().or(registry::DEFAULT).see_scr("SCR_COPY_TYPE"),
    /// `xor`: members of a set, at least 2.
    set_size = whole(1..=65_536).or(8).scr("SCR_SET_SIZE"),
    /// Distance in nodes between members of a set, or to the partner.
    hop_distance = whole(1..=65_536).or(1).scr("SCR_HOP_DISTANCE"),
    /// Used for checkpoints that this number divides.
    every = whole(1..=u64::MAX).or(1),
    /// The base of one of the caches. Default: the first.
    cache = path().same_as("cache[0].base"),
    /// What fails together: no set has two members in one.
    failure_domain = choice().or(FailureDomain::Node),
    |section| {
        // Each node fails by itself: groups are formed over nodes, which is all that the one value asks for.
        let (FailureDomain::Node, _) = (failure_domain, section);
        Redundancy { scheme, set_size, hop_distance, every, cache: cache.unwrap_or_else(|| TEMPORARY.into()) }
    }
}

// What follows travels to the agents as it is: the structs are the model's.

keys! {
    FlushPolicy => FlushPolicy;
    /// Every so many checkpoints; 0 = never.
    every = whole(0..=u64::MAX).or(10).scr("SCR_FLUSH"),
    /// `sync`: the application waits; `async`: it continues.
    mode = choice().or(FlushMode::Sync).scr_as("SCR_FLUSH_ASYNC", mode_of_parameter),
    /// `async`: from one node, at most; 0 = not limited.
    bandwidth = bandwidth().or(200 << 20).scr("SCR_FLUSH_ASYNC_BW"),
    /// `async`: share of a processor, at most. Only 0, not limited, is available in this version.
    percent = percent().or(0.0).scr("SCR_FLUSH_ASYNC_PERCENT"),
    /// Also flush the checkpoint that a run was restarted from.
    on_restart = switch().or(false).scr("SCR_FLUSH_ON_RESTART"),
    |section| {
        if percent > 0.0 {
            let message = "limiting the processor's share is not available in this version";
            section.mistake("percent", message, "use `bandwidth` instead, or write 0");
        }
        FlushPolicy { every, mode, bandwidth, on_restart }
    }
}

keys! {
    RestartPolicy => RestartPolicy;
    /// Look in the caches: move and rebuild files.
    distribute = switch().or(true).scr("SCR_DISTRIBUTE"),
    /// Look on the prefix: fetch files.
    fetch = switch().or(true).scr("SCR_FETCH"),
    |_section| { RestartPolicy { distribute, fetch } }
}

keys! {
    CrcPolicy => CrcPolicy;
    /// When a file is copied from node to node.
    on_copy = switch().or(false).scr("SCR_CRC_ON_COPY"),
    /// When a file is copied to the prefix.
    on_flush = switch().or(true).scr("SCR_CRC_ON_FLUSH"),
    |_section| { CrcPolicy { on_copy, on_flush } }
}

keys! {
    NeedPolicy => NeedPolicy;
    /// At every so many calls; 0 = not used.
    interval = whole(0..=u32::MAX.into()).or(0).scr("SCR_CHECKPOINT_INTERVAL"),
    /// So many seconds after the last checkpoint; 0 = not used.
    seconds = whole(0..=u32::MAX.into()).or(0).scr("SCR_CHECKPOINT_SECONDS"),
    /// While checkpointing takes less than so many percent of the time; 0 = not used.
    overhead = percent().or(0.0).scr("SCR_CHECKPOINT_OVERHEAD"),
    |_section| { NeedPolicy { interval, seconds, overhead } }
}

/// What produces checkpoint files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointSource {
    /// The application calls our API.
    Scr,
}

impl Choice for CheckpointSource {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("scr", CheckpointSource::Scr)];
    const LATER: &'static [&'static str] = &["scr-files", "fti", "command", "jubatus"];
}

impl CheckpointSource {
    /// Its name, by which agents know it.
    pub fn name(self) -> &'static str {
        self.word()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureDomain {
    /// Each node fails by itself.
    Node,
}

impl Choice for FailureDomain {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("node", FailureDomain::Node)];
    const LATER: &'static [&'static str] = &["rack", "switch", "chassis"];
}

impl Choice for FlushMode {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("sync", FlushMode::Sync), ("async", FlushMode::Async)];
}

/// SCR_FLUSH_ASYNC: 1 or 0.
fn mode_of_parameter(text: &str) -> String {
    let mode = if text == "1" { FlushMode::Async } else { FlushMode::Sync };
    mode.word().to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_are_those_that_agents_have() {
        let available: Vec<&str> = CheckpointSource::AVAILABLE.iter().map(|(name, _)| *name).collect();
        let known: Vec<&str> = holdfast_agent::sources::REGISTRY.iter().map(|entry| entry.name).collect();
        assert_eq!(available, known);
    }
}
