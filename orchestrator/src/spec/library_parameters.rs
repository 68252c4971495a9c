//! The settings in force as parameters of LLNL's library (`SCR manual §10`): what `scr_srun` exports, and the others.
//!
//! The library takes SCR_CNTL_BASE from its system configuration file only. Lists of caches and descriptors can only
//! be in a file, which SCR_CONF_FILE names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use holdfast_core::hostlist;
use holdfast_model::{CrcOnCopy, FlushMode, NodeName};

use super::checkpoint::Checkpoint;

/// The parameters that are exported to the ranks.
pub const NAMES: &[&str] = &[
    "SCR_PREFIX",
    "SCR_NODELIST",
    "SCR_JOB_ID",
    "SCR_JOB_NAME",
    "SCR_USER_NAME",
    "SCR_CACHE_BASE",
    "SCR_CACHE_SIZE",
    "SCR_COPY_TYPE",
    "SCR_SET_SIZE",
    "SCR_HOP_DISTANCE",
    "SCR_DISTRIBUTE",
    "SCR_FETCH",
    "SCR_FETCH_WIDTH",
    "SCR_FLUSH",
    "SCR_FLUSH_WIDTH",
    "SCR_FLUSH_ASYNC_PERCENT",
    "SCR_FLUSH_ON_RESTART",
    "SCR_FLUSH_ASYNC",
    "SCR_FLUSH_ASYNC_BW",
    "SCR_CRC_ON_COPY",
    "SCR_CRC_ON_FLUSH",
    "SCR_MPI_BUF_SIZE",
    "SCR_FILE_BUF_SIZE",
    "SCR_CHECKPOINT_INTERVAL",
    "SCR_CHECKPOINT_SECONDS",
    "SCR_CHECKPOINT_OVERHEAD",
    "SCR_HALT_SECONDS",
];
/// The variable that names the user's configuration file.
pub const USER_FILE: &str = "SCR_CONF_FILE";

/// The job whose parameters these are.
#[derive(Clone, Copy, Debug)]
pub struct LibraryJob<'a> {
    pub name: &'a str,
    pub id: &'a str,
    pub user: &'a str,
    /// Of the allocation.
    pub nodes: &'a [NodeName],
    pub prefix: &'a Path,
    /// The time before the end of the allocation at which to halt.
    pub before_end: Duration,
}

/// The variables of the ranks, and the text of the configuration file if one is needed.
pub fn of_job(job: LibraryJob<'_>, checkpoint: &Checkpoint) -> (BTreeMap<String, String>, Option<String>) {
    let Checkpoint { cache, redundancy, flush, restart, crc, need, piece_size, copy_buffer, .. } = checkpoint;
    let file = needs_file(checkpoint).then(|| lists(checkpoint));
    let switch = |on: bool| u8::from(on).to_string();
    let mut variables = BTreeMap::new();
    let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
    set("SCR_PREFIX", job.prefix.to_string_lossy().into_owned());
    set("SCR_NODELIST", hostlist::compress(job.nodes));
    set("SCR_JOB_ID", job.id.to_owned());
    set("SCR_JOB_NAME", job.name.to_owned());
    set("SCR_USER_NAME", job.user.to_owned());
    if let Some(cache) = cache.first() {
        set("SCR_CACHE_BASE", cache.base.to_string_lossy().into_owned());
        set("SCR_CACHE_SIZE", cache.keep.to_string());
    }
    if let Some(first) = redundancy.first() {
        set("SCR_COPY_TYPE", if file.is_some() { "FILE".to_owned() } else { first.scheme.to_string() });
        set("SCR_SET_SIZE", first.set_size.to_string());
        set("SCR_HOP_DISTANCE", first.hop_distance.to_string());
    }
    set("SCR_DISTRIBUTE", switch(restart.distribute));
    set("SCR_FETCH", switch(restart.fetch));
    set("SCR_FLUSH", flush.every.to_string());
    set("SCR_FETCH_WIDTH", restart.fetch_width.to_string());
    set("SCR_FLUSH_WIDTH", flush.width.to_string());
    set("SCR_FLUSH_ASYNC_PERCENT", flush.percent.to_string());
    set("SCR_FLUSH_ON_RESTART", switch(flush.on_restart));
    set("SCR_FLUSH_ASYNC", switch(flush.mode == FlushMode::Async));
    set("SCR_FLUSH_ASYNC_BW", flush.bandwidth.to_string());
    set("SCR_CRC_ON_COPY", switch(crc.on_copy != CrcOnCopy::Never));
    set("SCR_CRC_ON_FLUSH", switch(crc.on_flush));
    set("SCR_MPI_BUF_SIZE", piece_size.to_string());
    set("SCR_FILE_BUF_SIZE", copy_buffer.to_string());
    set("SCR_CHECKPOINT_INTERVAL", need.interval.to_string());
    set("SCR_CHECKPOINT_SECONDS", need.seconds.to_string());
    set("SCR_CHECKPOINT_OVERHEAD", need.overhead.to_string());
    set("SCR_HALT_SECONDS", job.before_end.as_secs().to_string());
    (variables, file)
}

/// True if the settings cannot be expressed in variables alone.
pub fn needs_file(checkpoint: &Checkpoint) -> bool {
    checkpoint.cache.len() > 1 || checkpoint.redundancy.len() > 1
}

fn lists(checkpoint: &Checkpoint) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for (at, cache) in checkpoint.cache.iter().enumerate() {
        let _ = writeln!(text, "CACHEDESC={at} BASE={} SIZE={}", cache.base.display(), cache.keep);
    }
    for (at, descriptor) in checkpoint.redundancy.iter().enumerate() {
        let _ = writeln!(
            text,
            "CKPTDESC={at} ENABLED={} INTERVAL={} BASE={} TYPE={} HOP_DISTANCE={} SET_SIZE={}",
            u8::from(descriptor.enabled),
            descriptor.every,
            descriptor.cache.display(),
            descriptor.scheme,
            descriptor.hop_distance,
            descriptor.set_size
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::registry::registered;
    use crate::spec::{Environment, JobSpec};

    fn of(checkpoint: &str) -> (BTreeMap<String, String>, Option<String>) {
        let text = format!("run: {{command: [./app]}}\ncheckpoint: {checkpoint}\n");
        let spec = JobSpec::parse(&text, "job.yaml", &Environment::empty(registered())).unwrap();
        let nodes = ["n1".into(), "n2".into()];
        let (prefix, before_end) = (Path::new("/p"), Duration::from_secs(300));
        let job = LibraryJob { name: "heat", id: "7", user: "anna", nodes: &nodes, prefix, before_end };
        of_job(job, &spec.steps[0].checkpoint)
    }

    #[test]
    fn every_exported_parameter_is_listed_and_has_the_value_in_force() {
        let (variables, file) = of("{source: scr-files, cache: [{base: /ssd, keep: 3}], \
             redundancy: [{scheme: partner, hop_distance: 2}], flush: {every: 4, mode: async, bandwidth: 5MB/s}, \
             restart: {fetch: false}, crc: {on_copy: false}, need: {seconds: 60}, piece_size: 256KiB}");
        assert_eq!(variables.keys().map(String::as_str).collect::<Vec<_>>(), {
            let mut names = NAMES.to_vec();
            names.sort_unstable();
            names
        });
        for (name, value) in [
            ("SCR_PREFIX", "/p"),
            ("SCR_NODELIST", "n[1-2]"),
            ("SCR_JOB_ID", "7"),
            ("SCR_USER_NAME", "anna"),
            ("SCR_CACHE_BASE", "/ssd"),
            ("SCR_CACHE_SIZE", "3"),
            ("SCR_COPY_TYPE", "PARTNER"),
            ("SCR_HOP_DISTANCE", "2"),
            ("SCR_SET_SIZE", "8"),
            ("SCR_FLUSH", "4"),
            ("SCR_FLUSH_ASYNC", "1"),
            ("SCR_FETCH", "0"),
            ("SCR_DISTRIBUTE", "1"),
            ("SCR_CRC_ON_COPY", "0"),
            ("SCR_MPI_BUF_SIZE", "262144"),
            ("SCR_CHECKPOINT_SECONDS", "60"),
            ("SCR_HALT_SECONDS", "300"),
        ] {
            assert_eq!(variables[name], value, "{name}");
        }
        assert_eq!(file, None);
    }

    #[test]
    fn several_descriptors_are_in_a_file() {
        let (variables, file) = of("{source: scr-files, cache: [{base: /ram, keep: 1}, {base: /ssd}], redundancy: \
             [{scheme: local, cache: /ram}, {scheme: xor, set_size: 4, every: 2, cache: /ssd}]}");
        assert_eq!(variables["SCR_COPY_TYPE"], "FILE");
        assert_eq!(
            file.unwrap(),
            "CACHEDESC=0 BASE=/ram SIZE=1\nCACHEDESC=1 BASE=/ssd SIZE=2\n\
             CKPTDESC=0 ENABLED=1 INTERVAL=1 BASE=/ram TYPE=LOCAL HOP_DISTANCE=1 SET_SIZE=8\n\
             CKPTDESC=1 ENABLED=1 INTERVAL=2 BASE=/ssd TYPE=XOR HOP_DISTANCE=1 SET_SIZE=4\n"
        );
    }
}
