//! SCR's parameters and the spec: the order of precedence (`SCR manual §10`).
//!
//! The order is: environment, the file that `SCR_CONF_FILE` names, the spec, the site's file, default. Parameters are
//! converted to the text of the corresponding key, so that a value has one meaning and one check whatever its source,
//! and `holdfast check --explain` can name its origin.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_core::redundancy::registry;
use holdfast_model::NodeName;

use super::job::{GivenIdentity, JobSpec};
use super::keys::{self, Keys as _, ParameterKey};
use super::overrides::{ListOverride, OverrideLevel, Overrides};
use super::parameters::declared;
use super::registered::ManagerFacts;
use super::registry::Registry;
use super::settings::Origin;
use crate::params::conf::{self, ConfError, FileOwner};
use crate::params::declaration::AllowedSource;
use crate::params::descriptors::CheckpointDescriptor;
use crate::params::source::Sources;
use crate::params::{self, CopyType, ParamError, ParamWarning, ParamWarningKind, Parameters, Setting, value};

/// The site's file: in SCR the system configuration file. Without it, the file of this path below the directory in
/// which the program is installed counts (`/opt/holdfast/bin/holdfast`: `/opt/holdfast/etc/holdfast/scr.conf`).
pub const SYSTEM_FILE: &str = "/etc/holdfast/scr.conf";

/// The parameter of the site's file that allows `checkpoint.data_plane: plain`.
pub const PLAIN_DATA: &str = "HOLDFAST_PLAIN_DATA";

/// The path of the site's file for this program.
fn system_file() -> PathBuf {
    let installed = || {
        let program = std::env::current_exe().ok()?;
        Some(program.parent()?.parent()?.join(SYSTEM_FILE.trim_start_matches('/')))
    };
    let path = PathBuf::from(SYSTEM_FILE);
    if path.exists() { path } else { installed().unwrap_or(path) }
}

/// Everything outside the spec that determines settings.
#[derive(Clone, Debug)]
pub struct Environment {
    pub(super) registered: Registry,
    pub(super) overrides: Overrides,
    /// `SCR_USER_NAME` and `SCR_JOB_ID`.
    pub identity: GivenIdentity,
    /// What disables checkpoints and relaunches: `SCR_ENABLE=0`, with its place.
    pub disabled: Option<String>,
    /// Parameters without effect.
    pub warnings: Vec<String>,
    /// A spec that needs more nodes than there are is a mistake.
    pub(super) checks_nodes: bool,
    /// The site's file allows `data_plane: plain`.
    pub(super) allows_plain_data: bool,
    variables: BTreeMap<String, String>,
    /// The name of the manager of this environment, and the nodes that it answered when it was asked.
    asked_nodes: Option<(&'static str, Vec<NodeName>)>,
}

/// An environment that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error(transparent)]
    File(#[from] ConfError),
    /// A parameter in one of the sources.
    #[error(transparent)]
    Parameter(#[from] ParamError),
}

impl Environment {
    /// No variables and no files.
    pub fn empty(registered: Registry) -> Self {
        let (overrides, identity, warnings, variables) = Default::default();
        Environment {
            registered,
            overrides,
            identity,
            disabled: None,
            warnings,
            checks_nodes: true,
            allows_plain_data: false,
            variables,
            asked_nodes: None,
        }
    }

    /// The same for a drain, which uses the nodes that it can reach, however many the run needs.
    pub fn for_drain(self) -> Self {
        Environment { checks_nodes: false, ..self }
    }

    /// The environment of this process: its variables, the user's file, the site's file.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, an invalid parameter.
    pub fn of_process(registered: Registry) -> Result<Self, EnvironmentError> {
        let environment = Environment::new(registered, process_variables(), &system_file())?;
        let ask = |manager: &ManagerFacts| Some((manager.name, manager.variables.ask_nodes?()));
        Ok(Environment { asked_nodes: environment.manager(None).and_then(ask), ..environment })
    }

    /// SCR's parameters of this process, for the commands that follow SCR.
    ///
    /// # Errors
    /// As [`Environment::of_process`].
    pub fn parameters_of_process() -> Result<Parameters, EnvironmentError> {
        resolve(&process_variables().collect(), &system_file())
    }

    /// The text of one parameter that every source may set, without its default. Mistakes in other parameters are left
    /// to the command that uses them. The declarations of all parameters are not needed, which is most of the time and
    /// memory of [`Environment::parameters_of_process`].
    pub fn value_of_process(name: &str) -> Option<String> {
        let (value, _) = Environment::sources_of_process().ok()?.find(name, AllowedSource::Any)?;
        Some(value)
    }

    /// What the values of SCR's parameters of this process come from.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn sources_of_process() -> Result<Sources, EnvironmentError> {
        sources(&process_variables().collect(), &system_file())
    }

    /// These variables, the file of their `SCR_CONF_FILE`, and this system file, if it exists.
    ///
    /// # Errors
    /// As [`Environment::of_process`].
    pub fn new(
        registered: Registry,
        variables: impl IntoIterator<Item = (String, String)>,
        system_file: &Path,
    ) -> Result<Self, EnvironmentError> {
        let variables: BTreeMap<String, String> = variables.into_iter().collect();
        let parameters = resolve(&variables, system_file)?;
        let warnings = parameters.warnings.iter().map(ToString::to_string).collect();
        let mut environment = Environment { warnings, variables, ..Environment::empty(registered) };
        environment.take_single_values(&parameters);
        environment.take_runs(&parameters);
        environment.take_descriptors(&parameters);
        environment.take_directories(&parameters);
        environment.take_identity(&parameters);
        let enable = parameters.get("SCR_ENABLE").filter(|enable| enable.read(value::switch) == Some(false));
        environment.allows_plain_data = parameters.read(PLAIN_DATA, value::switch) == Some(true);
        environment.disabled = enable.map(|enable| format!("SCR_ENABLE=0 ({})", enable.origin));
        Ok(environment)
    }

    /// `SCR_PREFIX`, for commands without a spec.
    pub fn prefix(&self) -> Option<PathBuf> {
        let Overrides { fixed, above, below } = &self.overrides;
        let mut levels = [fixed, above, below].into_iter();
        levels.find_map(|level| level.value("prefix")).map(|(prefix, _)| PathBuf::from(prefix))
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    /// The manager in force if the spec has `written`; `None` if its allocation cannot be used.
    pub(super) fn manager(&self, written: Option<&'static str>) -> Option<&'static ManagerFacts> {
        self.registered.manager(written, |name| self.variables.get(name).cloned()).ok()
    }

    /// The number of nodes of the allocation, if `manager` sets it by variables.
    pub(super) fn allocated_nodes(&self, manager: &ManagerFacts) -> Option<u32> {
        let asked = self.asked(manager);
        let asked = u32::try_from(asked.len()).ok().filter(|_| !asked.is_empty());
        manager.variables.node_count(|name| self.variable(name)).or(asked)
    }

    /// The nodes of the allocation, if `manager` names them in variables.
    pub(super) fn allocated_names(&self, manager: &ManagerFacts) -> Vec<NodeName> {
        let names = manager.variables.nodes(|name| self.variable(name));
        names.unwrap_or_else(|| self.asked(manager).to_vec())
    }

    /// The answer of `manager`, if it was asked for its nodes.
    fn asked(&self, manager: &ManagerFacts) -> &[NodeName] {
        match &self.asked_nodes {
            Some((name, nodes)) if *name == manager.name => nodes,
            _ => &[],
        }
    }

    /// The settings of the precedence that an origin has; `None` for defaults.
    fn level(&mut self, origin: &params::Origin) -> Option<&mut OverrideLevel> {
        match origin {
            params::Origin::Environment | params::Origin::UserFile(_) => Some(&mut self.overrides.above),
            params::Origin::SystemFile(_) => Some(&mut self.overrides.below),
            params::Origin::Fixed(_) => Some(&mut self.overrides.fixed),
            params::Origin::Default => None,
        }
    }

    fn set(&mut self, key: &str, text: String, name: &str, origin: &params::Origin) {
        self.set_as(origin, key, text, name, origin);
    }

    /// Sets a key with the precedence of another parameter.
    fn set_as(&mut self, level: &params::Origin, key: &str, text: String, name: &str, origin: &params::Origin) {
        let from = parameter(name, origin);
        if let Some(level) = self.level(level) {
            level.values.insert(key.to_owned(), (text, from));
        }
    }

    fn set_list(&mut self, key: &str, list: ListOverride, name: &str, origin: &params::Origin) {
        let from = parameter(name, origin);
        if let Some(level) = self.level(origin) {
            level.lists.insert(key.to_owned(), (list, from));
        }
    }

    fn take_single_values(&mut self, parameters: &Parameters) {
        let keys = keys::parameters(&JobSpec::declared());
        for ParameterKey { parameter, path, .. } in &keys {
            if let (Some(spelling), Some(set)) = (parameter.spelling, parameters.get(parameter.name)) {
                self.set(path, (spelling.to_key)(&set.value), set.name, &set.origin);
            }
        }
    }

    fn take_runs(&mut self, parameters: &Parameters) {
        // SCR_RUNS counts the first launch, SCR_RETRIES those after it.
        let (runs, retries) = (parameters.get("SCR_RUNS"), parameters.get("SCR_RETRIES"));
        let Some((set, first)) = runs.map(|set| (set, 1)).or(retries.map(|set| (set, 0))) else { return };
        if let (Some(_), Some(Setting { name, origin, .. })) = (runs, retries) {
            let (name, origin) = ((*name).to_owned(), origin.clone());
            let kind = ParamWarningKind::NoEffect("SCR_RUNS takes precedence");
            self.warnings.push(ParamWarning { name, origin, kind }.to_string());
        }
        let attempts = match set.read(value::signed) {
            // No limit.
            Some(count) if count < 0 => u32::MAX,
            Some(count) => u32::try_from((count - first).max(0)).unwrap_or(u32::MAX),
            None => return,
        };
        self.set("relaunch.attempts", attempts.to_string(), set.name, &set.origin);
    }

    /// `SCR_COPY_TYPE` selects one descriptor, or those of the CKPTDESC lines, which replace the entire list.
    fn take_descriptors(&mut self, parameters: &Parameters) {
        const CACHES: &str = "checkpoint.cache";
        const DESCRIPTORS: &str = "checkpoint.redundancy";
        let caches = &parameters.descriptors.cache;
        if let Some(first) = caches.iter().find(|cache| cache.origin != params::Origin::Default)
            && parameters.settings.iter().all(|setting| setting.origin != first.origin)
        {
            // One line that is fixed fixes the list.
            let fixed = caches.iter().find(|cache| matches!(cache.origin, params::Origin::Fixed(_)));
            let level = fixed.unwrap_or(first).origin.clone();
            self.set_list(CACHES, ListOverride::Elements(caches.len()), "CACHEDESC", &level);
            for (at, cache) in caches.iter().enumerate() {
                let key = |name: &str| format!("{CACHES}[{at}].{name}");
                self.set_as(&level, &key("base"), cache.base.clone(), "CACHEDESC", &cache.origin);
                self.set_as(&level, &key("keep"), cache.size.to_string(), "CACHEDESC", &cache.origin);
            }
        } else if let Some(origin @ params::Origin::Fixed(_)) =
            parameters.get("SCR_CACHE_BASE").map(|base| &base.origin)
        {
            self.set_list(CACHES, ListOverride::Elements(1), "SCR_CACHE_BASE", origin);
        }
        let CopyType { origin: copy_type, scheme } = &parameters.descriptors.copy_type;
        match scheme {
            Some(scheme) => {
                let scheme = scheme.to_string().to_lowercase();
                let one = ListOverride::One { key: "scheme", value: scheme.clone() };
                self.set_list(DESCRIPTORS, one, "SCR_COPY_TYPE", copy_type);
                for (key, text) in [("scheme", scheme), ("every", "1".to_owned()), ("enabled", "true".to_owned())] {
                    self.set(&format!("{DESCRIPTORS}[0].{key}"), text, "SCR_COPY_TYPE", copy_type);
                }
            }
            None => {
                let descriptors = &parameters.descriptors.checkpoint;
                let list = ListOverride::Elements(descriptors.len());
                self.set_list(DESCRIPTORS, list, "SCR_COPY_TYPE", copy_type);
                for (at, CheckpointDescriptor { descriptor, origin }) in descriptors.iter().enumerate() {
                    let mut set = |name: &str, text: String| {
                        let key = format!("{DESCRIPTORS}[{at}].{name}");
                        self.set_as(copy_type, &key, text, "CKPTDESC", origin);
                    };
                    set("scheme", descriptor.scheme.to_string().to_lowercase());
                    for number in registry::numbers_of(descriptor.scheme) {
                        set(number.key, number.of(&descriptor.numbers).to_string());
                    }
                    set("every", descriptor.interval.to_string());
                    set("cache", descriptor.base.clone());
                    set("enabled", descriptor.enabled.to_string());
                }
            }
        }
    }

    /// The capacities that the CNTLDIR and CACHEDIR lines require.
    fn take_directories(&mut self, parameters: &Parameters) {
        for (table, checks) in [("CNTLDIR", &parameters.control_checks), ("CACHEDIR", &parameters.cache_checks)] {
            for check in checks {
                let bytes = check.bytes.unwrap_or_default().to_string();
                self.set(&format!("{table}={}", check.directory), bytes, table, &check.origin);
            }
        }
    }

    fn take_identity(&mut self, parameters: &Parameters) {
        let value = |name: &str| parameters.text(name).map(str::to_owned);
        self.identity = GivenIdentity { user: value("SCR_USER_NAME"), job_id: value("SCR_JOB_ID") };
    }
}

/// The origin of a setting: a parameter and its place.
fn parameter(name: &str, origin: &params::Origin) -> Origin {
    Origin::Parameter(match origin {
        params::Origin::Environment | params::Origin::Default => name.to_owned(),
        params::Origin::UserFile(place) | params::Origin::SystemFile(place) | params::Origin::Fixed(place) => {
            format!("{name} ({place})")
        }
    })
}

fn process_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn resolve(variables: &BTreeMap<String, String>, system_file: &Path) -> Result<Parameters, EnvironmentError> {
    Ok(Parameters::resolve(&declared(), &sources(variables, system_file)?)?)
}

fn sources(variables: &BTreeMap<String, String>, system_file: &Path) -> Result<Sources, EnvironmentError> {
    let mut sources = Sources::new(variables.clone());
    if let Some(path) = sources.user_file().map(str::to_owned) {
        sources = sources.with_user_file(conf::read(Path::new(&path), FileOwner::User)?);
    }
    if system_file.exists() {
        sources = sources.with_system_file(conf::read(system_file, FileOwner::System)?);
    }
    Ok(sources)
}
