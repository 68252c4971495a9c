//! Values for tests and benchmarks: a new field of the settings is added here once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::{
    CrcOnCopy, CrcPolicy, DataPlane, Descriptor, FlushMode, FlushPolicy, NeedPolicy, RestartPolicy, RestartRanks,
    Scheme, VariablesPolicy,
};

use crate::run::{Cache, Settings, SourceName};

/// Settings with one cache at `base` that keeps `keep` checkpoints, protected by `scheme` with its default numbers;
/// without flushes, checksums and halt conditions.
pub fn settings(prefix: impl Into<PathBuf>, base: &str, keep: u32, scheme: Scheme) -> Settings {
    Settings {
        prefix: prefix.into(),
        caches: vec![Cache { base: base.to_owned(), keep }],
        descriptors: vec![Descriptor::new(0, scheme, base)],
        levels: BTreeMap::new(),
        restart: RestartPolicy {
            distribute: true,
            fetch: true,
            fetch_width: 256,
            from_prefix: false,
            ranks: RestartRanks::Same,
        },
        flush: FlushPolicy {
            every: 0,
            mode: FlushMode::Sync,
            width: 256,
            bandwidth: 0,
            percent: 0.0,
            on_restart: false,
            keep: 0,
            container: None,
        },
        crc: CrcPolicy { on_copy: CrcOnCopy::Never, on_flush: false, on_restart: false, on_delete: false },
        source: SourceName("scr".to_owned()),
        need: NeedPolicy::default(),
        schedule: None,
        variables: VariablesPolicy::default(),
        halt_seconds: 0,
        allocation_end: None,
        piece_bytes: 512 << 10,
        copy_bytes: 1 << 20,
        copy_threads: None,
        redundancy_width: 32,
        stream_timeout: Duration::from_secs(120),
        data_plane: DataPlane::Encrypted,
        watchdog: None,
        newest: None,
        mtbf: None,
        ignored: BTreeSet::new(),
    }
}
