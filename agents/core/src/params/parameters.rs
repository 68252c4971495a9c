//! All parameters, typed, each with where it came from.

use std::path::PathBuf;
use std::time::Duration;

use super::descriptors::{self, CopyType, Defaults, Descriptors, DirectoryCheck};
use super::source::{Resolver, Sources};
use super::value;
use super::{Explained, ParamError, ParamWarning, Setting};
use crate::hostlist;
use crate::redundancy::registry;
use holdfast_model::NodeName;

/// How often the application may be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchLimit {
    /// So many times in all.
    AtMost(u32),
    /// As often as it takes.
    NoLimit,
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Parameters {
    /// `SCR_ENABLE`: without, the application is launched as it is.
    pub enable: Setting<bool>,
    /// `SCR_DEBUG`: verbosity.
    pub debug: Setting<u32>,
    /// `SCR_LOG_ENABLE`.
    pub log_enable: Setting<bool>,
    /// `SCR_USER_NAME`, else `USER`.
    pub user: Setting<Option<String>>,
    /// `SCR_JOB_ID`, else `SLURM_JOBID` or `SLURM_JOB_ID`.
    pub job_id: Setting<Option<String>>,
    /// `SCR_JOB_NAME`.
    pub job_name: Setting<Option<String>>,
    /// `SCR_CNTL_BASE`: above the control directory. Only the system file may set it.
    pub control_base: Setting<String>,
    /// `SCR_CACHE_BASE`: above the cache directory, unless a descriptor sets another.
    pub cache_base: Setting<String>,
    /// `SCR_CACHE_SIZE`: checkpoints kept there, unless a descriptor sets another.
    pub cache_size: Setting<u32>,
    /// `SCR_COPY_TYPE`.
    pub copy_type: Setting<CopyType>,
    /// `SCR_HOP_DISTANCE`, unless a descriptor sets another.
    pub hop_distance: Setting<u32>,
    /// `SCR_SET_SIZE`, unless a descriptor sets another.
    pub set_size: Setting<u32>,
    /// `SCR_DISTRIBUTE`: move files to where their ranks are, at the start of a run.
    pub distribute: Setting<bool>,
    /// `SCR_FETCH`: fetch from the prefix when the cache has nothing.
    pub fetch: Setting<bool>,
    /// `SCR_FETCH_WIDTH`: ranks that fetch at a time.
    pub fetch_width: Setting<u32>,
    /// `SCR_FLUSH`: flush ids that this divides; 0 never.
    pub flush: Setting<u32>,
    /// `SCR_FLUSH_WIDTH`: ranks that flush at a time.
    pub flush_width: Setting<u32>,
    /// `SCR_FLUSH_ON_RESTART`.
    pub flush_on_restart: Setting<bool>,
    /// `SCR_GLOBAL_RESTART`: rebuild, flush, then fetch.
    pub global_restart: Setting<bool>,
    /// `SCR_FLUSH_ASYNC`.
    pub flush_async: Setting<bool>,
    /// `SCR_FLUSH_ASYNC_BW`: bytes a second, of all nodes together.
    pub flush_async_bandwidth: Setting<u64>,
    /// `SCR_FLUSH_ASYNC_PERCENT`: of a CPU; 0 is no limit.
    pub flush_async_percent: Setting<f64>,
    /// `SCR_CRC_ON_COPY`.
    pub crc_on_copy: Setting<bool>,
    /// `SCR_CRC_ON_FLUSH`.
    pub crc_on_flush: Setting<bool>,
    /// `SCR_CRC_ON_DELETE`.
    pub crc_on_delete: Setting<bool>,
    /// `SCR_MPI_BUF_SIZE`: bytes of one message.
    pub message_buffer_bytes: Setting<u64>,
    /// `SCR_FILE_BUF_SIZE`: bytes of one read or write.
    pub file_buffer_bytes: Setting<u64>,
    /// `SCR_HALT_SECONDS`: seconds that must be left; 0 is no condition.
    pub halt_seconds: Setting<u32>,
    /// `SCR_CHECKPOINT_INTERVAL`.
    pub checkpoint_interval: Setting<u32>,
    /// `SCR_CHECKPOINT_SECONDS`.
    pub checkpoint_seconds: Setting<u32>,
    /// `SCR_CHECKPOINT_OVERHEAD`: percent.
    pub checkpoint_overhead: Setting<f64>,
    /// `SCR_TRANSFER_SECS`: between two looks at the transfer file.
    pub transfer_poll: Setting<Duration>,
    /// `SCR_EXCLUDE_NODES`.
    pub exclude_nodes: Setting<Option<Vec<NodeName>>>,
    /// `SCR_PREFIX`; `None` is the current directory.
    pub prefix: Setting<Option<PathBuf>>,
    /// `SCR_RUNS`, else one more than `SCR_RETRIES`, else 1; negative is no limit.
    pub runs: Setting<LaunchLimit>,
    /// `SCR_MIN_NODES`: fewer healthy ones end the loop.
    pub min_nodes: Setting<Option<u32>>,
    /// `SCR_CHECKPOINT_PATTERN`: the files of a program without calls.
    pub checkpoint_pattern: Setting<Option<String>>,
    /// `SCR_NODELIST`, else `SLURM_NODELIST` or `SLURM_JOB_NODELIST`.
    pub nodes: Setting<Option<Vec<NodeName>>>,
    /// `CNTLDIR`: what the control directories need.
    pub control_checks: Vec<DirectoryCheck>,
    /// `CACHEDIR`: what the cache directories need.
    pub cache_checks: Vec<DirectoryCheck>,
    descriptors: Descriptors,
    explained: Vec<Explained>,
    warnings: Vec<ParamWarning>,
}

impl Parameters {
    /// All parameters, from their sources in their order.
    ///
    /// # Errors
    /// The first one that is not what it must be: name, value, place, and what is expected.
    pub fn resolve(sources: &Sources) -> Result<Parameters, ParamError> {
        use value::{BYTES, COUNTING, DIRECTORY, PATH_NAME, PERCENT, SIGNED, SWITCH, WHOLE};
        const HOSTS: &str = "a host list like node[1-4,7]";
        let mut from = Resolver::new(sources);
        from.refuse_unsupported()?;
        let hosts = |text: &str| hostlist::expand(text).ok();
        let text = |text: &str| Some(text.to_owned());

        let runs = from.optional(&["SCR_RUNS"], SIGNED, value::signed)?;
        let retries = from.optional(&["SCR_RETRIES"], SIGNED, value::signed)?;
        let mut parameters = Parameters {
            enable: from.setting("SCR_ENABLE", SWITCH, value::switch)?,
            debug: from.setting("SCR_DEBUG", WHOLE, value::whole)?,
            log_enable: from.setting("SCR_LOG_ENABLE", SWITCH, value::switch)?,
            user: from.optional(&["SCR_USER_NAME", "USER"], PATH_NAME, value::path_name)?,
            job_id: from.optional(&["SCR_JOB_ID", "SLURM_JOBID", "SLURM_JOB_ID"], PATH_NAME, value::path_name)?,
            job_name: from.optional(&["SCR_JOB_NAME"], "a name", text)?,
            control_base: from.setting("SCR_CNTL_BASE", DIRECTORY, value::directory)?,
            cache_base: from.setting("SCR_CACHE_BASE", DIRECTORY, value::directory)?,
            cache_size: from.setting("SCR_CACHE_SIZE", WHOLE, value::whole)?,
            copy_type: from.setting("SCR_COPY_TYPE", "a redundancy scheme or FILE", copy_type)?,
            hop_distance: from.setting("SCR_HOP_DISTANCE", COUNTING, value::counting)?,
            set_size: from.setting("SCR_SET_SIZE", COUNTING, value::counting)?,
            distribute: from.setting("SCR_DISTRIBUTE", SWITCH, value::switch)?,
            fetch: from.setting("SCR_FETCH", SWITCH, value::switch)?,
            fetch_width: from.setting("SCR_FETCH_WIDTH", COUNTING, value::counting)?,
            flush: from.setting("SCR_FLUSH", WHOLE, value::whole)?,
            flush_width: from.setting("SCR_FLUSH_WIDTH", COUNTING, value::counting)?,
            flush_on_restart: from.setting("SCR_FLUSH_ON_RESTART", SWITCH, value::switch)?,
            global_restart: from.setting("SCR_GLOBAL_RESTART", SWITCH, value::switch)?,
            flush_async: from.setting("SCR_FLUSH_ASYNC", SWITCH, value::switch)?,
            flush_async_bandwidth: from.setting("SCR_FLUSH_ASYNC_BW", BYTES, value::bytes)?,
            flush_async_percent: from.setting("SCR_FLUSH_ASYNC_PERCENT", PERCENT, value::percent)?,
            crc_on_copy: from.setting("SCR_CRC_ON_COPY", SWITCH, value::switch)?,
            crc_on_flush: from.setting("SCR_CRC_ON_FLUSH", SWITCH, value::switch)?,
            crc_on_delete: from.setting("SCR_CRC_ON_DELETE", SWITCH, value::switch)?,
            message_buffer_bytes: from.setting("SCR_MPI_BUF_SIZE", BYTES, value::buffer)?,
            file_buffer_bytes: from.setting("SCR_FILE_BUF_SIZE", BYTES, value::buffer)?,
            halt_seconds: from.setting("SCR_HALT_SECONDS", WHOLE, value::whole)?,
            checkpoint_interval: from.setting("SCR_CHECKPOINT_INTERVAL", WHOLE, value::whole)?,
            checkpoint_seconds: from.setting("SCR_CHECKPOINT_SECONDS", WHOLE, value::whole)?,
            checkpoint_overhead: from.setting("SCR_CHECKPOINT_OVERHEAD", PERCENT, value::percent)?,
            transfer_poll: from.setting("SCR_TRANSFER_SECS", COUNTING, |text| {
                value::counting(text).map(|seconds| Duration::from_secs(seconds.into()))
            })?,
            exclude_nodes: from.optional(&["SCR_EXCLUDE_NODES"], HOSTS, hosts)?,
            prefix: from.optional(&["SCR_PREFIX"], "a directory", |text| Some(PathBuf::from(text)))?,
            runs: allowed_runs(runs, retries),
            min_nodes: from.optional(&["SCR_MIN_NODES"], COUNTING, value::counting)?,
            checkpoint_pattern: from.optional(&["SCR_CHECKPOINT_PATTERN"], "patterns of file names", text)?,
            nodes: from.optional(&["SCR_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"], HOSTS, hosts)?,
            control_checks: Vec::new(),
            cache_checks: Vec::new(),
            descriptors: Descriptors { checkpoint: Vec::new(), cache: Vec::new() },
            explained: Vec::new(),
            warnings: Vec::new(),
        };
        let mut warnings = from.warnings();
        parameters.control_checks = descriptors::directory_checks(&from, "CNTLDIR", &mut warnings)?;
        parameters.cache_checks = descriptors::directory_checks(&from, "CACHEDIR", &mut warnings)?;
        let defaults = Defaults {
            copy_type: &parameters.copy_type,
            cache_base: &parameters.cache_base,
            cache_size: parameters.cache_size.value,
            hop_distance: parameters.hop_distance.value,
            set_size: parameters.set_size.value,
        };
        parameters.descriptors = descriptors::requested(&from, &defaults, &mut warnings)?;
        parameters.explained = from.explained;
        parameters.warnings = warnings;
        Ok(parameters)
    }

    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Every parameter with its value as text and its source, in the order of this type.
    pub fn explain(&self) -> &[Explained] {
        &self.explained
    }

    /// What in the sources had no effect.
    pub fn warnings(&self) -> &[ParamWarning] {
        &self.warnings
    }
}

fn copy_type(text: &str) -> Option<CopyType> {
    Some(registry::named(text.trim()).map_or(CopyType::File, CopyType::Scheme))
}

fn allowed_runs(runs: Setting<Option<i64>>, retries: Setting<Option<i64>>) -> Setting<LaunchLimit> {
    let of = |count: i64| {
        u32::try_from(count)
            .map_or(if count < 0 { LaunchLimit::NoLimit } else { LaunchLimit::AtMost(u32::MAX) }, LaunchLimit::AtMost)
    };
    match (runs.value, retries.value) {
        (Some(count), _) => Setting { value: of(count), origin: runs.origin },
        // Negative retries are no limit as well: -1 must not become 0 runs.
        (None, Some(count)) if count < 0 => Setting { value: LaunchLimit::NoLimit, origin: retries.origin },
        (None, Some(count)) => Setting { value: of(count.saturating_add(1)), origin: retries.origin },
        (None, None) => Setting { value: LaunchLimit::AtMost(1), origin: runs.origin },
    }
}
