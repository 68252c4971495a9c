//! SCR's parameters and the spec: what stands above what (`SCR manual §10`).
//!
//! The order is: environment, the file that `SCR_CONF_FILE` names, the spec, the site's file, default. What is set above or
//! below the spec becomes the text of its key, so that a value has one meaning and one check wherever it comes from, and
//! `holdfast check --explain` can name its place.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast_core::params::conf::{self, ConfError, Entry, FileOwner};
use holdfast_core::params::source::{self, Sources};
use holdfast_core::params::{CopyType, ParamError, Parameters, Runs};

use super::checkpoint::{Checkpoint, FlushMode, Scheme};
use super::reading::{Choice, Overrides};
use super::settings::Origin;
use super::{JobSpec, Step};

/// The site's file: what SCR calls the system configuration file.
pub const SYSTEM_FILE: &str = "/etc/holdfast/scr.conf";

/// The number of nodes of a Slurm allocation, in its environment: the name, and the older name.
const SLURM_NODES: [&str; 2] = ["SLURM_JOB_NUM_NODES", "SLURM_NNODES"];

/// Everything outside of the spec that decides settings.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    pub(super) above: Overrides,
    pub(super) below: Overrides,
    sources: Sources,
    warnings: Vec<String>,
    /// The nodes of the Slurm allocation that this process stands in.
    pub(super) allocated_nodes: Option<u32>,
}

/// Why the surroundings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SurroundingsError {
    /// A configuration file.
    #[error(transparent)]
    File(#[from] ConfError),
    /// A parameter in one of the sources.
    #[error(transparent)]
    Parameter(#[from] ParamError),
}

impl Surroundings {
    /// Those of this process: its environment, the user's file, the site's file.
    ///
    /// # Errors
    /// A file that cannot be read or is misspelt, a parameter that is not what it must be.
    pub fn of_process() -> Result<Self, SurroundingsError> {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Surroundings::new(variables, Path::new(SYSTEM_FILE))
    }

    /// Those of this environment, with its `SCR_CONF_FILE`, and this system file, if it exists.
    ///
    /// # Errors
    /// As [`Surroundings::of_process`].
    pub fn new(
        variables: impl IntoIterator<Item = (String, String)>,
        system_file: &Path,
    ) -> Result<Self, SurroundingsError> {
        let variables: BTreeMap<String, String> = variables.into_iter().collect();
        let allocated_nodes = SLURM_NODES.iter().find_map(|name| variables.get(*name)?.parse().ok());
        let mut sources = Sources::new(variables);
        if let Some(path) = sources.user_file().map(str::to_owned) {
            sources = sources.with_user_file(conf::read(Path::new(&path), FileOwner::User)?);
        }
        if system_file.exists() {
            sources = sources.with_system_file(conf::read(system_file, FileOwner::System)?);
        }
        Ok(Surroundings { allocated_nodes, ..Surroundings::of(sources)? })
    }

    fn of(sources: Sources) -> Result<Self, SurroundingsError> {
        let parameters = Parameters::resolve(&sources)?;
        let warnings = parameters.warnings().iter().map(ToString::to_string).collect();
        let mut surroundings = Surroundings { sources, warnings, ..Surroundings::default() };
        surroundings.take_single_values(&parameters);
        surroundings.take_runs(&parameters);
        surroundings.take_descriptors(&parameters);
        Ok(surroundings)
    }

    /// What in them has no effect; worth telling.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn set(&mut self, key: &str, text: String, name: &str, origin: &source::Origin) {
        let (overrides, from) = match origin {
            source::Origin::Environment => (&mut self.above, name.to_owned()),
            source::Origin::UserFile(place) => (&mut self.above, format!("{name} ({place})")),
            source::Origin::SystemFile(place) => (&mut self.below, format!("{name} ({place})")),
            source::Origin::Default | source::Origin::Spec(_) => return,
        };
        overrides.values.insert(key.to_owned(), (text, Origin::Parameter(from)));
    }

    fn take_single_values(&mut self, parameters: &Parameters) {
        for explained in parameters.explain().iter().filter(|explained| !explained.value.is_empty()) {
            let Some((_, key, form)) = KEYS.iter().find(|(name, _, _)| *name == explained.name) else { continue };
            self.set(key, form.text(&explained.value), explained.name, &explained.origin);
        }
    }

    fn take_runs(&mut self, parameters: &Parameters) {
        let attempts = match parameters.runs.value {
            // The first launch is no relaunch.
            Runs::AtMost(runs) => runs.saturating_sub(1),
            Runs::NoLimit => u32::MAX,
        };
        self.set("relaunch.attempts", attempts.to_string(), "SCR_RUNS", &parameters.runs.origin);
    }

    /// `SCR_COPY_TYPE` asks for one descriptor, or for those of the CKPTDESC lines; either takes the place of a whole list.
    fn take_descriptors(&mut self, parameters: &Parameters) {
        let caches = &parameters.descriptors().cache;
        if let Some(first) = caches.iter().find(|cache| cache.origin != source::Origin::Default)
            && parameters.explain().iter().all(|explained| explained.origin != first.origin)
        {
            self.set_length("checkpoint.cache", caches.len(), &first.origin);
            for (at, cache) in caches.iter().enumerate() {
                let key = |name: &str| format!("checkpoint.cache[{at}].{name}");
                self.set(&key("base"), cache.base.clone(), "CACHEDESC", &cache.origin);
                self.set(&key("keep"), cache.size.to_string(), "CACHEDESC", &cache.origin);
            }
        }
        let copy_type = &parameters.copy_type;
        match copy_type.value {
            CopyType::Scheme(scheme) => {
                self.set_length("checkpoint.redundancy", 1, &copy_type.origin);
                let key = "checkpoint.redundancy[0].scheme";
                self.set(key, scheme.to_string().to_lowercase(), "SCR_COPY_TYPE", &copy_type.origin);
            }
            CopyType::File => {
                let descriptors = parameters.descriptors().checkpoint.iter().filter(|descriptor| descriptor.enabled);
                let descriptors: Vec<_> = descriptors.collect();
                self.set_length("checkpoint.redundancy", descriptors.len(), &copy_type.origin);
                for (at, descriptor) in descriptors.into_iter().enumerate() {
                    let mut set = |name: &str, text: String| {
                        let key = format!("checkpoint.redundancy[{at}].{name}");
                        self.set(&key, text, "CKPTDESC", &descriptor.origin);
                    };
                    set("scheme", descriptor.scheme.to_string().to_lowercase());
                    set("set_size", descriptor.set_size.to_string());
                    set("hop_distance", descriptor.hop_distance.to_string());
                    set("every", descriptor.interval.to_string());
                    set("cache", descriptor.base.clone());
                }
            }
        }
    }

    fn set_length(&mut self, key: &str, length: usize, origin: &source::Origin) {
        let overrides = match origin {
            source::Origin::Environment | source::Origin::UserFile(_) => &mut self.above,
            source::Origin::SystemFile(_) => &mut self.below,
            source::Origin::Default | source::Origin::Spec(_) => return,
        };
        overrides.lengths.insert(key.to_owned(), length);
    }
}

/// How a parameter's value is written in a spec.
#[derive(Clone, Copy)]
enum Form {
    Same,
    /// `1` is `true`, `0` is `false`.
    Switch,
    /// `1` is `async`, `0` is `sync`.
    Mode,
    /// A number of seconds is a duration.
    Seconds,
}

impl Form {
    fn text(self, value: &str) -> String {
        match (self, value) {
            (Form::Switch, "1") => "true".to_owned(),
            (Form::Switch, _) => "false".to_owned(),
            (Form::Mode, "1") => FlushMode::Async.word().to_owned(),
            (Form::Mode, _) => FlushMode::Sync.word().to_owned(),
            (Form::Seconds, seconds) => format!("{seconds}s"),
            (Form::Same, value) => value.to_owned(),
        }
    }
}

/// The parameters that have a key of one value in the spec.
const KEYS: [(&str, &str, Form); 20] = [
    ("SCR_PREFIX", "prefix", Form::Same),
    ("SCR_CNTL_BASE", "checkpoint.control.base", Form::Same),
    ("SCR_CACHE_BASE", "checkpoint.cache[0].base", Form::Same),
    ("SCR_CACHE_SIZE", "checkpoint.cache[0].keep", Form::Same),
    ("SCR_HOP_DISTANCE", "checkpoint.redundancy[0].hop_distance", Form::Same),
    ("SCR_SET_SIZE", "checkpoint.redundancy[0].set_size", Form::Same),
    ("SCR_FLUSH", "checkpoint.flush.every", Form::Same),
    ("SCR_FLUSH_ASYNC", "checkpoint.flush.mode", Form::Mode),
    ("SCR_FLUSH_ASYNC_BW", "checkpoint.flush.bandwidth", Form::Same),
    ("SCR_FLUSH_ASYNC_PERCENT", "checkpoint.flush.percent", Form::Same),
    ("SCR_FLUSH_ON_RESTART", "checkpoint.flush.on_restart", Form::Switch),
    ("SCR_DISTRIBUTE", "checkpoint.restart.distribute", Form::Switch),
    ("SCR_FETCH", "checkpoint.restart.fetch", Form::Switch),
    ("SCR_CRC_ON_COPY", "checkpoint.crc.on_copy", Form::Switch),
    ("SCR_CRC_ON_FLUSH", "checkpoint.crc.on_flush", Form::Switch),
    ("SCR_CHECKPOINT_INTERVAL", "checkpoint.need.interval", Form::Same),
    ("SCR_CHECKPOINT_SECONDS", "checkpoint.need.seconds", Form::Same),
    ("SCR_CHECKPOINT_OVERHEAD", "checkpoint.need.overhead", Form::Same),
    ("SCR_HALT_SECONDS", "halt.before_end", Form::Seconds),
    ("SCR_MIN_NODES", "relaunch.min_nodes", Form::Same),
];

impl JobSpec {
    /// SCR's parameters as they are in force for a step: what the spec decided, and what only they know (user, job id,
    /// excluded nodes, buffer sizes).
    ///
    /// # Errors
    /// A parameter that is not what it must be.
    pub fn parameters(&self, step: &Step, surroundings: &Surroundings) -> Result<Parameters, ParamError> {
        let sources = surroundings.sources.clone().with_spec(self.entries(step));
        Parameters::resolve(&sources)
    }

    /// The spec as lines of an SCR configuration file. SCR_CNTL_BASE is not among them: no user's file may set it.
    pub fn entries(&self, step: &Step) -> Vec<Entry> {
        let Checkpoint { cache, redundancy, flush, restart, crc, need, .. } = &step.checkpoint;
        let entry = |key: &str, value: String| Entry::new(key, value, source::Origin::Spec(step.name.clone()));
        let switch = |on: bool| u8::from(on).to_string();
        let mut entries = vec![
            entry("SCR_PREFIX", step.prefix.display().to_string()),
            entry("SCR_COPY_TYPE", "FILE".to_owned()),
            entry("SCR_FLUSH", flush.every.to_string()),
            entry("SCR_FLUSH_ASYNC", switch(flush.mode == FlushMode::Async)),
            entry("SCR_FLUSH_ASYNC_BW", flush.bandwidth.to_string()),
            entry("SCR_FLUSH_ASYNC_PERCENT", flush.percent.to_string()),
            entry("SCR_FLUSH_ON_RESTART", switch(flush.on_restart)),
            entry("SCR_DISTRIBUTE", switch(restart.distribute)),
            entry("SCR_FETCH", switch(restart.fetch)),
            entry("SCR_CRC_ON_COPY", switch(crc.on_copy)),
            entry("SCR_CRC_ON_FLUSH", switch(crc.on_flush)),
            entry("SCR_CHECKPOINT_INTERVAL", need.interval.to_string()),
            entry("SCR_CHECKPOINT_SECONDS", need.seconds.as_secs().to_string()),
            entry("SCR_CHECKPOINT_OVERHEAD", need.overhead.to_string()),
            entry("SCR_HALT_SECONDS", self.halt.before_end.as_secs().to_string()),
        ];
        for (at, cache) in cache.iter().enumerate() {
            let line = entry("CACHEDESC", at.to_string());
            entries.push(line.with("BASE", cache.base.display().to_string()).with("SIZE", cache.keep.to_string()));
        }
        for (at, descriptor) in redundancy.iter().enumerate() {
            let scheme = match descriptor.scheme {
                Scheme::Local => "LOCAL",
                Scheme::Partner => "PARTNER",
                Scheme::Xor => "XOR",
            };
            let line = entry("CKPTDESC", at.to_string())
                .with("BASE", descriptor.cache.display().to_string())
                .with("TYPE", scheme)
                .with("INTERVAL", descriptor.every.to_string())
                .with("HOP_DISTANCE", descriptor.hop_distance.to_string())
                .with("SET_SIZE", descriptor.set_size.to_string());
            entries.push(line);
        }
        entries
    }
}
