//! The list of all parameters: default, who may set each, and its effect. Reader, warnings, documentation and tests use
//! this list.

/// A parameter, or a table of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration {
    pub name: &'static str,
    /// As text; empty for none.
    pub default: &'static str,
    pub source: AllowedSource,
    pub effect: Effect,
}

/// Who may set a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedSource {
    /// The environment, the user's file, the system file.
    Any,
    /// A file only: a line of a table.
    Files,
    SystemFile,
    /// `scr_srun` looks for it nowhere else.
    Environment,
}

/// What becomes of a value that is not the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It has the effect that the text describes.
    Acts(&'static str),
    /// It is an error, with this reason.
    Refused(&'static str),
    /// It has no effect, and a warning gives this reason.
    Warned(&'static str),
}

const NO_DATABASE: &str = "events are written to the event log only, not to a database";

const fn acts(name: &'static str, default: &'static str, text: &'static str) -> Declaration {
    Declaration { name, default, source: AllowedSource::Any, effect: Effect::Acts(text) }
}

const fn refused(name: &'static str, default: &'static str, reason: &'static str) -> Declaration {
    Declaration { name, default, source: AllowedSource::Any, effect: Effect::Refused(reason) }
}

const fn warned(name: &'static str, default: &'static str, reason: &'static str) -> Declaration {
    Declaration { name, default, source: AllowedSource::Any, effect: Effect::Warned(reason) }
}

const fn only(source: AllowedSource, declaration: Declaration) -> Declaration {
    Declaration { source, ..declaration }
}

/// Every parameter, in the order of `docs/scr-files.md` §16.
pub const DECLARED: &[Declaration] = &[
    acts("SCR_ENABLE", "1", "0: the application is launched once, without agents and checkpoints; its exit code"),
    warned("SCR_DEBUG", "0", "`--verbose` and HOLDFAST_LOG show more"),
    warned("SCR_LOG_ENABLE", "1", "the event log belongs to the state of the job (`scr_log_event` obeys it)"),
    acts("SCR_USER_NAME", "", "user in the names of control and cache directories"),
    acts("SCR_JOB_ID", "", "job id in directory names; Slurm's own id stays, with a warning"),
    acts("SCR_JOB_NAME", "", "key `job`"),
    only(AllowedSource::SystemFile, acts("SCR_CNTL_BASE", "/tmp", "key `checkpoint.control.base`")),
    acts("SCR_CACHE_BASE", "/tmp", "key `checkpoint.cache[0].base`"),
    acts("SCR_CACHE_SIZE", "2", "key `checkpoint.cache[*].keep`"),
    only(AllowedSource::Files, acts("CACHEDESC", "", "keys `base` and `keep` of `checkpoint.cache[n]`")),
    only(AllowedSource::Files, acts("CNTLDIR", "", "BYTES: key `checkpoint.control.bytes`")),
    only(AllowedSource::Files, acts("CACHEDIR", "", "BYTES: key `checkpoint.cache[n].bytes`")),
    acts("SCR_COPY_TYPE", "XOR", "one descriptor, key `checkpoint.redundancy[0].scheme`; FILE: CKPTDESC lines"),
    only(AllowedSource::Files, acts("CKPTDESC", "", "keys of `checkpoint.redundancy[n]`")),
    acts("SCR_HOP_DISTANCE", "1", "key `checkpoint.redundancy[*].hop_distance`"),
    acts("SCR_SET_SIZE", "8", "key `checkpoint.redundancy[*].set_size`"),
    acts("SCR_DISTRIBUTE", "1", "key `checkpoint.restart.distribute`"),
    acts("SCR_FETCH", "1", "key `checkpoint.restart.fetch`"),
    acts("SCR_FETCH_WIDTH", "256", "key `checkpoint.restart.fetch_width`"),
    acts("SCR_FLUSH", "10", "key `checkpoint.flush.every`"),
    acts("SCR_FLUSH_WIDTH", "256", "key `checkpoint.flush.width`"),
    acts("SCR_FLUSH_ON_RESTART", "0", "key `checkpoint.flush.on_restart`"),
    refused(
        "SCR_GLOBAL_RESTART",
        "0",
        "ranks restart from files in cache: use the path that SCR_Route_file returns, and SCR_FLUSH_ON_RESTART=1 to \
         have the checkpoint on the prefix directory as well",
    ),
    acts("SCR_FLUSH_ASYNC", "0", "key `checkpoint.flush.mode`"),
    acts("SCR_FLUSH_ASYNC_BW", "200MB", "key `checkpoint.flush.bandwidth`: of all nodes together"),
    acts("SCR_FLUSH_ASYNC_PERCENT", "0", "key `checkpoint.flush.percent`"),
    acts("SCR_CRC_ON_COPY", "0", "key `checkpoint.crc.on_copy`"),
    acts("SCR_CRC_ON_FLUSH", "1", "key `checkpoint.crc.on_flush`"),
    warned("SCR_CRC_ON_DELETE", "0", "files are not read before they are deleted"),
    acts("SCR_MPI_BUF_SIZE", "128KB", "key `checkpoint.piece_size`; without it 1 MiB"),
    acts("SCR_FILE_BUF_SIZE", "1MB", "key `checkpoint.copy_buffer`"),
    acts("SCR_HALT_SECONDS", "0", "key `halt.before_end`"),
    acts("SCR_CHECKPOINT_INTERVAL", "0", "key `checkpoint.need.interval`"),
    acts("SCR_CHECKPOINT_SECONDS", "0", "key `checkpoint.need.seconds`"),
    acts("SCR_CHECKPOINT_OVERHEAD", "0", "key `checkpoint.need.overhead`"),
    warned(
        "SCR_TRANSFER_SECS",
        "60",
        "agents receive flush orders at once; a transfer file of LLNL's library is read every 50 ms",
    ),
    acts("SCR_EXCLUDE_NODES", "", "key `allocation.exclude`"),
    acts("SCR_PREFIX", "", "key `prefix`; a warning if the spec names another directory"),
    only(AllowedSource::Environment, acts("SCR_RUNS", "", "key `relaunch.attempts`: one less")),
    only(AllowedSource::Environment, acts("SCR_RETRIES", "", "key `relaunch.attempts`")),
    only(AllowedSource::Environment, acts("SCR_MIN_NODES", "", "key `relaunch.min_nodes`")),
    only(AllowedSource::Environment, warned("SCR_NODELIST", "", "the nodes are those of the allocation")),
    only(AllowedSource::Environment, acts("SCR_CHECKPOINT_PATTERN", "", "key `checkpoint.interpose.files`")),
    only(AllowedSource::Environment, acts("SCR_CONF_FILE", "", "path of the user's file")),
    warned("SCR_DB_ENABLE", "0", NO_DATABASE),
    warned("SCR_DB_DEBUG", "0", NO_DATABASE),
    warned("SCR_DB_HOST", "", NO_DATABASE),
    warned("SCR_DB_USER", "", NO_DATABASE),
    warned("SCR_DB_PASS", "", NO_DATABASE),
    warned("SCR_DB_NAME", "", NO_DATABASE),
];

impl Declaration {
    /// The declaration with this name.
    pub fn of(name: &str) -> Option<&'static Declaration> {
        DECLARED.iter().find(|declaration| declaration.name == name)
    }

    /// True for a table, each of whose lines is one entry.
    pub fn is_table(&self) -> bool {
        self.source == AllowedSource::Files
    }
}

/// Parameters that set the same thing: if the system file fixes one, the others are fixed too.
pub(super) fn fixed_with(name: &str) -> &'static [&'static str] {
    const CACHES: &[&str] = &["SCR_CACHE_BASE", "CACHEDESC"];
    const DESCRIPTORS: &[&str] = &["SCR_COPY_TYPE", "CKPTDESC"];
    [CACHES, DESCRIPTORS].into_iter().find(|group| group.contains(&name)).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_is_declared_once() {
        for (at, declaration) in DECLARED.iter().enumerate() {
            assert!(DECLARED[at + 1..].iter().all(|other| other.name != declaration.name), "{declaration:?}");
        }
    }
}
