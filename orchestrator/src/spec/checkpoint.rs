//! `checkpoint:`: what writes checkpoints, where they are kept, how they are protected, and when they are flushed.
//!
//! The defaults are SCR's (`SCR manual §10`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_core::redundancy::numbers::SchemeNumber;
use holdfast_core::redundancy::registry;
use holdfast_model::{
    AsyncRedundancy, ContainerKind, ContainerPolicy, CrcOnCopy, CrcPolicy, DataPlane, FlushMode, FlushPolicy,
    LevelPolicy, NeedPolicy, RestartPolicy, RestartRanks, Scheme, SchemeNumbers, SnapshotIntervals, VariablesLayout,
    VariablesPolicy,
};
use holdfast_rank::Until;
use holdfast_rank::watch::WatchedPattern;

use super::frequency::{Frequency, SHORTEST, frequency};
use super::jubatus::Jubatus;
use super::keys::{Declared, KeyOf, Parameter, Shape, elements, keys, scr, section, source, words};
use super::reading::Section;
use super::value_kinds::{
    Choice, ParameterValue, ScrSpelling, bandwidth, bytes, bytes_within, choice, duration, file_patterns, path,
    percent, redundancy_scheme, save_end, signal_name, spelling, switch, whole,
};
use crate::params::declaration::AllowedSource;

pub(super) const TEMPORARY: &str = "/tmp";
/// Smaller pieces cost more in system calls than the work on them.
const SMALLEST_BUFFER: u64 = 4 << 10;
/// Larger ones gain nothing, and each agent has several.
const LARGEST_BUFFER: u64 = 64 << 20;

/// More gain nothing on one node.
const MOST_COPY_THREADS: u64 = 64;
/// An agent carries out its orders on a limited number of threads.
const MOST_REDUNDANCY_WIDTH: u64 = 1024;
const CHECKPOINT_PATTERN: Parameter = Parameter { source: AllowedSource::Environment, ..scr("SCR_CHECKPOINT_PATTERN") };
/// Off in SCR.
const CRC_ON_COPY: Parameter = Parameter { default: Some("0"), spelling: Some(CRC_IN_SCR), ..scr("SCR_CRC_ON_COPY") };
/// Without the parameter it is 512 KiB: SCR's messages of 128 KiB suit MPI.
const MESSAGE_BUFFER: Parameter =
    Parameter { default: Some("128KB"), effect: "key {key}; without it 512 KiB", ..scr("SCR_MPI_BUF_SIZE") };
/// SCR leaves the flush out.
const OVERHEAD: Parameter =
    Parameter { effect: "key {key}; with the flushes that ranks wait for", ..scr("SCR_CHECKPOINT_OVERHEAD") };
/// Selects one scheme, or several descriptors.
const COPY_TYPE: Parameter = Parameter {
    value: Some(ParameterValue::Text),
    effect: "one descriptor, key {key}; SINGLE of SCR 3: `local`; FILE: CKPTDESC lines",
    of_each: false,
    ..scr("SCR_COPY_TYPE")
};
/// A healthy disk may need as long for one piece.
const SHORTEST_STREAM_TIMEOUT: Duration = Duration::from_secs(1);

keys! {
    /// The checkpoints of one step.
    pub struct Checkpoint {
        /// What produces the checkpoint files. {sources}
        source: &'static str = source(),
        /// How often there are checkpoints. `10min`: so long after the end of the last one; `50 calls`: at every so
        /// many calls of a program that asks; `auto`: as far apart as is best for what one costs and for how often
        /// something fails (`health.mtbf`), but so that they block the ranks for at most 5 % of the time. Default:
        /// `auto` with `command` and `jubatus`; with `variables` the intervals of its levels, of which a time here is
        /// the shortest; with the others each call.
        every: Option<Frequency> = frequency().optional(),
        /// Only `source: command`: a command or a signal has the program write its files.
        command: SaveCommand = section::<SaveCommand>(),
        /// Only `source: command`: files that the program renames into place.
        watch: WatchedFiles = section::<WatchedFiles>(),
        /// Only `source: jubatus`: the servers of the ranks, and when their models are saved.
        jubatus: Jubatus = section::<Jubatus>(),
        /// Only `source: command`: the program and its arguments when there is a checkpoint to restart from:
        /// `[./app, --restart, "$HOLDFAST_RESTART_DIR"]`. Default: `run.command`.
        resume: Option<Vec<String>> = words(),
        /// Checkpoint files of a program that calls no function of SCR; docs/interpose.md.
        interpose: Interpose = section::<Interpose>(),
        /// Directory for small state files on each node.
        control: ControlDirectory = section::<ControlDirectory>(),
        /// Directories for checkpoint data on each node; there can be several.
        cache: Vec<Cache> = elements::<Cache>(),
        /// How checkpoints are protected. With several descriptors, a checkpoint uses the one with the largest `every`
        /// that divides its id; one descriptor must have `every: 1`.
        redundancy: Vec<Redundancy> = elements::<Redundancy>(),
        /// Copies to the prefix while the application runs. The newest checkpoint is always drained at the end.
        flush: FlushPolicy = section::<FlushPolicy>(),
        /// The copy of the newest checkpoint to the prefix at the end of the job.
        drain: Drain = section::<Drain>(),
        /// Where a run looks for a checkpoint to restart from: the caches, then the prefix. Without one it starts from
        /// the beginning.
        restart: RestartPolicy = section::<RestartPolicy>(),
        /// When the CRC32s of files are computed. A recorded one is compared whenever the file is copied, and before a
        /// rebuild uses it; a file that differs counts as lost.
        crc: CrcPolicy = section::<CrcPolicy>(),
        /// When SCR_Need_checkpoint returns true: when any of these conditions holds; always, if none is set.
        need: NeedPolicy = section::<NeedPolicy>(),
        /// With `source: variables`: how files are written, and when a snapshot saves the variables.
        variables: VariablesPolicy = section::<VariablesPolicy>(),
        /// Size of the pieces in which an agent copies files between cache and prefix directory; each copy has a few of
        /// them in memory. Larger ones may suit a parallel file system with large blocks.
        copy_buffer: u64 = bytes_within(SMALLEST_BUFFER..=LARGEST_BUFFER).or(1 << 20).scr("SCR_FILE_BUF_SIZE"),
        /// Maximum number of files that an agent copies or checks at a time, each with a buffer of its own;
        /// `flush.width` and `restart.fetch_width` may allow fewer. Default: 4, but not more than the node has
        /// processors, and at least 2.
        copy_threads: Option<u32> = whole::<u32>(1..=MOST_COPY_THREADS).optional(),
        /// Ranks of a node whose redundancy is computed, or whose files move to or from another node, at a time; each
        /// takes two threads and a connection. Further ranks wait for their turn.
        redundancy_width: u32 = whole::<u32>(1..=MOST_REDUNDANCY_WIDTH).or(32),
        /// Size of the pieces in which agents compute redundancy and send files to each other: a few of them should fit
        /// into a processor's cache.
        piece_size: u64 = bytes_within(SMALLEST_BUFFER..=LARGEST_BUFFER).or(512 << 10).scr(MESSAGE_BUFFER),
        /// While agents compute redundancy or send files to each other, an agent waits this long for the next data of
        /// another one, and a quarter as long for its connection. Then the step has failed; it is tried 8 times.
        stream_timeout: Duration = duration().or(Duration::from_secs(120)),
        /// What protects the data of checkpoints between agents. `encrypted`: TLS. `authenticated`: a keyed checksum,
        /// which detects every change but does not hide the data. `plain`: a CRC32C against damage; only where the site
        /// allows it (`HOLDFAST_PLAIN_DATA=1` in its `scr.conf`). All else is always sent over TLS.
        data_plane: DataPlane = choice().or(DataPlane::Encrypted),
    }
    checked by Checkpoint::check;
}

impl Checkpoint {
    /// What `data_plane` protects from.
    pub fn protection_on_the_network(&self) -> &'static str {
        match self.data_plane {
            DataPlane::Encrypted => "the data of checkpoints cannot be read on the network, and a change is detected",
            DataPlane::Authenticated => "the data of checkpoints can be read on the network, and a change is detected",
            DataPlane::Plain => "the data of checkpoints can be read and changed on the network; damage is detected",
        }
    }

    fn check(&self, section: &Section<'_>) {
        if self.stream_timeout < SHORTEST_STREAM_TIMEOUT {
            let help = "write a longer time: an agent that writes to a busy disk sends nothing meanwhile";
            section.mistake("stream_timeout", "shorter than 1s", help);
        }
    }
}

keys! {
    /// How a program is made to write its files, on each rank. Exactly one of `save`, `signal` and
    /// `watch.files` is needed.
    pub struct SaveCommand {
        /// A command, as a list: it writes the files into `$HOLDFAST_CHECKPOINT_DIR`, or has the program do so, and
        /// ends with exit code 0 when they are complete. No shell is involved.
        save: Option<Vec<String>> = words(),
        /// A signal to the program, such as `USR1`; it writes its files into `$HOLDFAST_CHECKPOINT_DIR`.
        signal: Option<String> = signal_name().optional(),
        /// When the files are complete after a signal: `file DONE`: there is a file of this name (which is not part of
        /// the checkpoint); `quiet 2s`: there are files, and none has changed for so long.
        until: Option<Until> = save_end().optional(),
        /// Time from the end of a checkpoint to the next one. Before a halt there is one at once. Default:
        /// `checkpoint.every`.
        every: Option<Duration> = duration().optional(),
        /// A checkpoint whose files are not complete after this time is dropped; the processes of the command are
        /// killed.
        timeout: Duration = duration().or(Duration::from_secs(60)),
    }
    checked by SaveCommand::check;
}

impl SaveCommand {
    fn check(&self, section: &Section<'_>) {
        if self.save.as_ref().is_some_and(|words| words.first().is_none_or(|word| word.trim().is_empty())) {
            section.mistake("save", "the command is empty", "write the program and its arguments: `save: [./save.sh]`");
        }
        if self.every.is_some_and(|every| every < SHORTEST) {
            section.mistake("every", "shorter than 100ms", "write `every: 10min`");
        }
        if self.timeout.is_zero() {
            section.mistake("timeout", "every checkpoint would be dropped", "write `timeout: 60s`");
        }
        match (&self.signal, &self.until) {
            (Some(_), None) => {
                let help = "write `until: file DONE` or `until: quiet 2s`";
                section.mistake("signal", "`until` is missing: when are the files complete?", help);
            }
            (None, Some(_)) => {
                let help = "leave it out: a command ends when the files are complete";
                section.mistake("until", "`until` has no effect without `signal`", help);
            }
            _ => {}
        }
        if let Some(Until::Quiet(time)) = &self.until
            && *time >= self.timeout
        {
            section.mistake("until", "not shorter than `timeout`", "make `timeout` longer");
        }
    }
}

keys! {
    /// Files that a program renames into place.
    pub struct WatchedFiles {
        /// Patterns, relative to the working directory of the rank: `["state/rank_$HOLDFAST_RANK.ckpt"]`. The last
        /// component can have `*`, `?` and `[a-z]`. A checkpoint is made when on each rank, for each pattern, a file
        /// was renamed into place; it has the newest one of each pattern.
        files: Option<Vec<String>> = words(),
    }
    checked by WatchedFiles::check;
}

impl WatchedFiles {
    fn check(&self, section: &Section<'_>) {
        if self.files.as_ref().is_some_and(Vec::is_empty) {
            section.mistake("files", "the list is empty", "write `files: [\"state/*.ckpt\"]`, or leave it out");
        }
        let mut names = BTreeMap::new();
        for (at, pattern) in self.files.iter().flatten().enumerate() {
            if let Err(error) = WatchedPattern::of(pattern) {
                section.mistake(&format!("files[{at}]"), error.to_string(), "write for example `state/*.ckpt`");
            }
            // Patterns may match one file; different files of one name cannot be in one checkpoint.
            let name = Path::new(pattern).file_name().filter(|name| !name.to_string_lossy().contains(['*', '?', '[']));
            if let Some(other) = name.and_then(|name| names.insert(name, pattern)).filter(|other| *other != pattern) {
                let message =
                    format!("`{pattern}` and `{other}` have the same name, and a checkpoint has no directories");
                section.mistake(&format!("files[{at}]"), message, "have the program give its files different names");
            }
        }
    }
}

keys! {
    /// Checkpoint files of a program that calls no function of SCR: libscr_interpose is loaded into it. Each rank must
    /// write files of its own.
    pub struct Interpose {
        /// The names of the checkpoint files: a regular expression that matches a part of the name that the program
        /// uses, `'state_[0-9]+\.ckpt$'`. Several have commas between them, and one may be for a range of ranks,
        /// `'0-0:latest$,0-N:part_[0-9]+$'`: a checkpoint is complete when a file for each was closed.
        files: Option<String> = file_patterns().optional().scr(CHECKPOINT_PATTERN),
        /// The path of the library on the nodes. Default: `libscr_interpose.so` beside the program `holdfast`, or in
        /// `../lib` or `../lib64` from there.
        library: Option<PathBuf> = path().optional(),
    }
    checked by Interpose::check;
}

impl Interpose {
    fn check(&self, section: &Section<'_>) {
        if self.library.as_ref().is_some_and(|library| library.to_string_lossy().contains([' ', ':'])) {
            let help = "use a path without them: LD_PRELOAD separates paths by them";
            section.mistake("library", "the path has a blank or a colon", help);
        }
        if self.library.is_some() && self.files.is_none() {
            section.mistake("library", "`library` has no effect without `files`", "write `files` too, or leave it out");
        }
    }
}

keys! {
    /// The control directory: `<base>/<user>/scr.<job id>`.
    pub struct ControlDirectory {
        /// Base of the control directory; only the site's file may set the parameter.
        base: PathBuf = path().or(TEMPORARY.into()).scr(scr("SCR_CNTL_BASE").only_from(AllowedSource::SystemFile)),
        /// Required capacity of its file system; a node with less is down. Before the first launch in an allocation as
        /// much must be free. Default: not checked.
        bytes: Option<u64> = bytes().scr_of_directory("CNTLDIR"),
    }
}

keys! {
    /// One cache: `<base>/<user>/scr.<job id>`.
    pub struct Cache {
        /// Base of the cache directory.
        base: PathBuf = path().or(TEMPORARY.into()).scr(scr("SCR_CACHE_BASE").of_first()),
        /// Number of checkpoints kept in it. The oldest one is evicted before the next one is written. A checkpoint
        /// that is being flushed stays while another can be evicted. The newest one is evicted only with `keep: 1`:
        /// otherwise the application waits for the flush, which then has no `bandwidth` and `percent` limit.
        keep: u32 = whole(1..=1000).or(2).scr(scr("SCR_CACHE_SIZE").value(ParameterValue::Whole)),
        /// Required capacity, as for the control directory.
        bytes: Option<u64> = bytes().scr_of_directory("CACHEDIR"),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Redundancy {
    /// How files are protected.
    pub scheme: Scheme,
    pub numbers: SchemeNumbers,
    /// Used for checkpoints whose id this number divides.
    pub every: u64,
    /// The base of the cache that its checkpoints are kept in: one of [`Checkpoint::cache`].
    pub cache: PathBuf,
    /// Without, it is never used; the others keep their numbers.
    pub enabled: bool,
    /// Its own number of checkpoints kept, and the limits if the application does not wait for it.
    pub policy: LevelPolicy,
}

keys! {
    Redundancy => Redundancy;
    /// `local`: not protected; `partner`: a copy on another node; `xor`: one lost member of a set can be rebuilt; `rs`:
    /// several can.
    scheme = redundancy_scheme().or(registry::DEFAULT).see_scr(COPY_TYPE),
    /// The numbers of the schemes.
    numbers = numbers_of_schemes(),
    /// Used for checkpoints whose id this number divides.
    every = whole(1..=u64::MAX).or(1),
    /// The base of one of the caches. Default: the first.
    cache = path().same_as("cache[0].base"),
    /// Number of its own checkpoints kept. With several descriptors, the newest checkpoint of those that survive the
    /// most losses stays until a newer one survives as many: the cache may then hold one more. Default: its
    /// checkpoints count in `keep` of the cache.
    keep = whole::<u32>(1..=1000).optional(),
    /// `false`: never used. The numbers of the other descriptors stay.
    enabled = switch().or(true),
    /// The application goes on when its files are complete: the agents make the redundancy meanwhile. The next
    /// checkpoint waits for it, and the older one that is protected stays until then.
    r#async = switch().or(false),
    /// `async: true`: maximum on each node, of the checkpoint files that are read for it; 0 = unlimited. It does not
    /// apply while something waits for the redundancy: the next checkpoint, or the end of the run.
    bandwidth = bandwidth().or(0),
    /// `async: true`: maximum percentage of one processor that it uses on a node, as long as `bandwidth` applies; 0 =
    /// unlimited.
    percent = percent().or(0.0),
    |section| {
        let is_written = |key: &str| section.reader().is_decided(&section.path_of(key));
        for key in ["bandwidth", "percent"] {
            if !r#async && is_written(key) {
                let message = format!("`{key}` has no effect without `async: true`");
                section.mistake(key, message, "add `async: true`, or leave it out");
            }
        }
        if r#async && registry::is_unprotected(scheme) {
            let message = format!("`async: true` has no effect with `scheme: {}`", spelling(scheme));
            section.mistake("async", message, "leave it out: no redundancy is made");
        }
        if (1..SLOWEST_REDUNDANCY).contains(&bandwidth) {
            let message = format!("`bandwidth: {}/s` is too slow", super::quantity::format_bytes(bandwidth));
            section.mistake("bandwidth", message, "write at least `1MiB/s`, or 0 for no limit");
        }
        let policy = LevelPolicy { behind: r#async.then_some(AsyncRedundancy { bandwidth, percent }), keep };
        let own = registry::numbers_of(scheme);
        for number in registry::numbers() {
            let is_own = own.iter().any(|known| known.name == number.name);
            if !is_own && is_written(number.key) {
                let message = format!("`{}` has no effect with `scheme: {}`", number.key, spelling(scheme));
                section.mistake(number.key, message, "leave it out, or write a scheme that has it");
            }
        }
        let numbers = own.iter().map(|number| (number.name, number.of(&numbers))).collect();
        let cache = cache.unwrap_or_else(|| TEMPORARY.into());
        Redundancy { scheme, numbers, every, cache, enabled, policy }
    }
}

/// The members of a set wait for each other, but only for a limited time ([`Checkpoint::stream_timeout`]).
const SLOWEST_REDUNDANCY: u64 = 1 << 20;

/// The numbers of all redundancy schemes, each a key of its own.
fn numbers_of_schemes() -> KeyOf<SchemeNumbers> {
    let declared = |number: &'static SchemeNumber| Declared {
        name: number.key,
        documentation: number.documentation,
        shape: key_of(number).shape(),
    };
    KeyOf::new(
        |section, _| {
            let read = |number: &'static SchemeNumber| (number.name, key_of(number).read(section, number.key));
            registry::numbers().into_iter().map(read).collect()
        },
        move || Shape::Keys(registry::numbers().into_iter().map(declared).collect()),
    )
}

fn key_of(number: &SchemeNumber) -> KeyOf<u32> {
    let range = u64::from(*number.range.start())..=u64::from(*number.range.end());
    whole(range).or(number.default).scr(number.parameter)
}

keys! {
    /// The drain.
    pub struct Drain {
        /// Pack the files of the ranks into a few large files, instead of copying each file: a parallel file system
        /// creates and opens large numbers of files slowly. Outputs are always plain files.
        container: Option<ContainerPolicy> = section::<Container>(),
    }
}

/// The keys of a container.
#[derive(Debug)]
pub struct Container;

keys! {
    Container => Option<ContainerPolicy>;
    /// `none`: plain files; `sion`: a container in the format of SIONlib.
    kind = choice().or(None),
    /// `kind: sion`: number of physical files; not more than ranks.
    files = whole(1..=65_536).or(8),
    |section| {
        if kind.is_none() && section.reader().is_decided(&section.path_of("files")) {
            section.mistake("files", "`files` has no effect without `kind: sion`", "add `kind: sion`, or leave it out");
        }
        kind.map(|kind| ContainerPolicy { kind, files })
    }
}

// The following structs are sent to the agents unchanged: they belong to the model.

keys! {
    FlushPolicy => FlushPolicy;
    /// Every this many checkpoints; 0 = never.
    every = whole(0..=u64::MAX).or(10).scr("SCR_FLUSH"),
    /// `sync`: the application waits; `async`: it continues, and the next flush waits for this one.
    mode = choice().or(FlushMode::Sync).scr(scr("SCR_FLUSH_ASYNC").spelled(MODE_IN_SCR)),
    /// `sync`, and the last flush of a run: number of ranks whose files are copied at a time. If it is smaller than the
    /// number of nodes, the nodes take turns.
    width = whole(1..=u32::MAX.into()).or(256).scr("SCR_FLUSH_WIDTH"),
    /// `async`, and the verification for `keep`: maximum of all nodes together, of which each gets the same part; 0 =
    /// unlimited. It does not apply while something waits: the end of the run, or a checkpoint for which the cache has
    /// no room.
    bandwidth = bandwidth().or(200 << 20).scr(scr("SCR_FLUSH_ASYNC_BW").effect("key {key}: of all nodes together")),
    /// The same: maximum percentage of one processor on a node, as long as `bandwidth` applies; 0 = unlimited.
    percent = percent().or(0.0).scr("SCR_FLUSH_ASYNC_PERCENT"),
    /// Also flush the checkpoint that a run was restarted from.
    on_restart = switch().or(false).scr("SCR_FLUSH_ON_RESTART"),
    /// Number of checkpoints of the job that stay in the prefix, the newest ones; 0 = all. After a flush or the drain,
    /// the new checkpoint is read and compared with its checksums, then older ones are deleted: never outputs, the
    /// current one, the one that the job restarted from, one that `holdfast index keep` marked, or what the job did not
    /// write with this key set.
    keep = whole(0..=u32::MAX.into()).or(0).scr("SCR_PREFIX_SIZE"),
    /// Pack the files of the ranks into a few large files, as `drain.container`.
    container = section::<Container>(),
    |_section| { FlushPolicy { every, mode, width, bandwidth, percent, on_restart, keep, container } }
}

keys! {
    RestartPolicy => RestartPolicy;
    /// Restart from the caches: move and rebuild files.
    distribute = switch().or(true).scr("SCR_DISTRIBUTE"),
    /// Restart from the prefix: fetch files.
    fetch = switch().or(true).scr("SCR_FETCH"),
    /// Number of ranks whose files are fetched at a time. If it is smaller than the number of nodes, the nodes take
    /// turns.
    fetch_width = whole(1..=u32::MAX.into()).or(256).scr("SCR_FETCH_WIDTH"),
    /// The ranks read the files in the prefix directory itself, for programs whose ranks read each other's files. A
    /// checkpoint in the caches is flushed first, and then deleted from them.
    from_prefix = switch().or(false).scr("SCR_GLOBAL_RESTART"),
    /// `same`: a checkpoint that another number of ranks wrote is refused. `any`: each rank can read the files of all
    /// ranks of it in the prefix directory. What is in the caches is drained for it first. For programs that ask which
    /// files there are.
    ranks = choice().or(RestartRanks::Same),
    |_section| { RestartPolicy { distribute, fetch, fetch_width, from_prefix, ranks } }
}

keys! {
    CrcPolicy => CrcPolicy;
    /// When a checkpoint is completed. `redundancy`: of the files that are read then, to encode them or to send them to
    /// a partner; `true`: of all files, also with `local`: each is read for it; `false`: of none.
    on_copy = choice().or(CrcOnCopy::WithRedundancy).scr(CRC_ON_COPY),
    /// When a file is copied to the prefix.
    on_flush = switch().or(true).scr("SCR_CRC_ON_FLUSH"),
    /// Before a restart from the caches, compare the files that stay where they are.
    on_restart = switch().or(true),
    /// Before a checkpoint is deleted from the caches, compare its files, and report those that differ: memory or disk
    /// of that node may be defective. Each file is read for it.
    on_delete = switch().or(false).scr("SCR_CRC_ON_DELETE"),
    |_section| { CrcPolicy { on_copy, on_flush, on_restart, on_delete } }
}

keys! {
    NeedPolicy => NeedPolicy;
    /// At every this many calls; 0 = not used.
    interval = whole(0..=u32::MAX.into()).or(0).scr("SCR_CHECKPOINT_INTERVAL"),
    /// This many seconds after the last checkpoint; 0 = not used.
    seconds = whole(0..=u32::MAX.into()).or(0).scr("SCR_CHECKPOINT_SECONDS"),
    /// While checkpointing takes less than this percentage of the time; 0 = not used.
    overhead = percent().or(0.0).scr(OVERHEAD),
    |_section| { NeedPolicy { interval, time: Duration::from_secs(seconds), overhead } }
}

keys! {
    VariablesPolicy => VariablesPolicy;
    /// `document`: that of FTI's document and FTI 1.1, whose checksum covers every byte of the file. `chunked`: that of
    /// FTI after 1.6, in containers of 64 KiB or more, whose checksum covers the hashes of the containers: unchanged
    /// data are neither read nor hashed again.
    layout = choice().or(VariablesLayout::Document),
    /// Intervals after which a snapshot takes a checkpoint.
    snapshots = section::<SnapshotIntervals>(),
    |_section| { VariablesPolicy { layout, snapshots } }
}

keys! {
    SnapshotIntervals => SnapshotIntervals;
    /// Level 1, in the caches only; 0s = never.
    local = duration().or(Duration::from_secs(180)),
    /// Level 2, with a copy on another node; 0s = never.
    partner = duration().or(Duration::from_secs(300)),
    /// Level 3, with parity over a set of nodes; 0s = never.
    parity = duration().or(Duration::from_secs(420)),
    /// Level 4, flushed to the prefix; 0s = never.
    prefix = duration().or(Duration::from_secs(660)),
    |_section| { SnapshotIntervals { local, partner, parity, prefix } }
}

impl Choice for VariablesLayout {
    const AVAILABLE: &'static [(&'static str, Self)] =
        &[("document", VariablesLayout::Document), ("chunked", VariablesLayout::Chunked)];
}

impl Choice for RestartRanks {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("same", RestartRanks::Same), ("any", RestartRanks::Any)];
}

impl Choice for Option<ContainerKind> {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("none", None), ("sion", Some(ContainerKind::Sion))];
}

impl Choice for FlushMode {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("sync", FlushMode::Sync), ("async", FlushMode::Async)];
}

impl Choice for DataPlane {
    const AVAILABLE: &'static [(&'static str, Self)] = &[
        ("encrypted", DataPlane::Encrypted),
        ("authenticated", DataPlane::Authenticated),
        ("plain", DataPlane::Plain),
    ];
}

impl Choice for CrcOnCopy {
    const AVAILABLE: &'static [(&'static str, Self)] =
        &[("false", CrcOnCopy::Never), ("redundancy", CrcOnCopy::WithRedundancy), ("true", CrcOnCopy::Always)];
}

/// SCR_CRC_ON_COPY: 1 or 0.
const CRC_IN_SCR: ScrSpelling = ScrSpelling {
    value: ParameterValue::Switch,
    to_key: |text| (if text == "1" { CrcOnCopy::Always } else { CrcOnCopy::Never }).keyword().to_owned(),
    of_key: |text| u8::from(text != CrcOnCopy::Never.keyword()).to_string(),
};

/// SCR_FLUSH_ASYNC: 1 or 0.
const MODE_IN_SCR: ScrSpelling = ScrSpelling {
    value: ParameterValue::Switch,
    to_key: |text| (if text == "1" { FlushMode::Async } else { FlushMode::Sync }).keyword().to_owned(),
    of_key: |text| u8::from(text == FlushMode::Async.keyword()).to_string(),
};
