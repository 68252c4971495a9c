//! SCR's parameters and the spec: the order of precedence (`SCR manual §10`).
//!
//! The order is: environment, the file that `SCR_CONF_FILE` names, the spec, the site's file, default. Parameters are
//! converted to the text of the corresponding key, so that a value has one meaning and one check whatever its source,
//! and `holdfast check --explain` can name its origin.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast_core::params::conf::{self, ConfError, FileOwner};
use holdfast_core::params::descriptors::CheckpointDescriptor;
use holdfast_core::params::source::Sources;
use holdfast_core::params::{self, CopyType, LaunchLimit, ParamError, Parameters};

use super::JobSpec;
use super::keys::{Declared, Keys as _, Parameter, Shape};
use super::reading::Overrides;
use super::registered::{ManagerFacts, NodeCount, Registered};
use super::settings::Origin;

/// The site's file: in SCR the system configuration file.
pub const SYSTEM_FILE: &str = "/etc/holdfast/scr.conf";

/// Everything outside the spec that determines settings.
#[derive(Clone, Debug)]
pub struct Environment {
    pub(super) registered: Registered,
    /// Takes precedence over the spec.
    pub(super) above: Overrides,
    /// Replaces the defaults.
    pub(super) below: Overrides,
    warnings: Vec<String>,
    variables: BTreeMap<String, String>,
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
    pub fn empty(registered: Registered) -> Self {
        let (above, below) = Default::default();
        Environment { registered, above, below, warnings: Vec::new(), variables: BTreeMap::new() }
    }

    /// The environment of this process: its variables, the user's file, the site's file.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, an invalid parameter.
    pub fn of_process(registered: Registered) -> Result<Self, EnvironmentError> {
        Environment::new(registered, process_variables(), Path::new(SYSTEM_FILE))
    }

    /// SCR's parameters of this process, for the commands that follow SCR.
    ///
    /// # Errors
    /// As [`Environment::of_process`].
    pub fn parameters_of_process() -> Result<Parameters, EnvironmentError> {
        resolve(&process_variables().collect(), Path::new(SYSTEM_FILE))
    }

    /// These variables, the file of their `SCR_CONF_FILE`, and this system file, if it exists.
    ///
    /// # Errors
    /// As [`Environment::of_process`].
    pub fn new(
        registered: Registered,
        variables: impl IntoIterator<Item = (String, String)>,
        system_file: &Path,
    ) -> Result<Self, EnvironmentError> {
        let variables: BTreeMap<String, String> = variables.into_iter().collect();
        let parameters = resolve(&variables, system_file)?;
        let warnings = parameters.warnings().iter().map(ToString::to_string).collect();
        let mut environment = Environment { warnings, variables, ..Environment::empty(registered) };
        environment.take_single_values(&parameters);
        environment.take_runs(&parameters);
        environment.take_descriptors(&parameters);
        Ok(environment)
    }

    /// Parameters without effect.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The manager in force if the spec has `written`; `None` if its allocation cannot be used.
    pub(super) fn manager(&self, written: Option<&'static str>) -> Option<&'static ManagerFacts> {
        self.registered.manager(written, |name| self.variables.get(name).cloned()).ok()
    }

    /// The number of nodes of the allocation, if `manager` sets it by variables.
    pub(super) fn allocated_nodes(&self, manager: &ManagerFacts) -> Option<u32> {
        let NodeCount::Variables(names) = manager.nodes else { return None };
        names.iter().find_map(|name| self.variables.get(*name)?.parse().ok())
    }

    fn set(&mut self, key: &str, text: String, name: &str, origin: &params::Origin) {
        let (overrides, from) = match origin {
            params::Origin::Environment => (&mut self.above, name.to_owned()),
            params::Origin::UserFile(place) => (&mut self.above, format!("{name} ({place})")),
            params::Origin::SystemFile(place) => (&mut self.below, format!("{name} ({place})")),
            params::Origin::Default => return,
        };
        overrides.values.insert(key.to_owned(), (text, Origin::Parameter(from)));
    }

    fn take_single_values(&mut self, parameters: &Parameters) {
        let keys = parameter_keys();
        for explained in parameters.explain().iter().filter(|explained| !explained.value.is_empty()) {
            if let Some((key, text)) = keys.get(explained.name) {
                self.set(key, text(&explained.value), explained.name, &explained.origin);
            }
        }
    }

    fn take_runs(&mut self, parameters: &Parameters) {
        let attempts = match parameters.runs.value {
            // SCR counts the first launch.
            LaunchLimit::AtMost(runs) => runs.saturating_sub(1),
            LaunchLimit::NoLimit => u32::MAX,
        };
        self.set("relaunch.attempts", attempts.to_string(), "SCR_RUNS", &parameters.runs.origin);
    }

    /// `SCR_COPY_TYPE` selects one descriptor, or those of the CKPTDESC lines; either replaces the entire list.
    fn take_descriptors(&mut self, parameters: &Parameters) {
        let caches = &parameters.descriptors().cache;
        if let Some(first) = caches.iter().find(|cache| cache.origin != params::Origin::Default)
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
                let descriptors = parameters.descriptors().checkpoint.iter().filter(|asked| asked.descriptor.enabled);
                let descriptors: Vec<_> = descriptors.collect();
                self.set_length("checkpoint.redundancy", descriptors.len(), &copy_type.origin);
                for (at, CheckpointDescriptor { descriptor, origin }) in descriptors.into_iter().enumerate() {
                    let mut set = |name: &str, text: String| {
                        let key = format!("checkpoint.redundancy[{at}].{name}");
                        self.set(&key, text, "CKPTDESC", origin);
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

    fn set_length(&mut self, key: &str, length: usize, origin: &params::Origin) {
        let overrides = match origin {
            params::Origin::Environment | params::Origin::UserFile(_) => &mut self.above,
            params::Origin::SystemFile(_) => &mut self.below,
            params::Origin::Default => return,
        };
        overrides.lengths.insert(key.to_owned(), length);
    }
}

fn process_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn resolve(variables: &BTreeMap<String, String>, system_file: &Path) -> Result<Parameters, EnvironmentError> {
    let mut sources = Sources::new(variables.clone());
    if let Some(path) = sources.user_file().map(str::to_owned) {
        sources = sources.with_user_file(conf::read(Path::new(&path), FileOwner::User)?);
    }
    if system_file.exists() {
        sources = sources.with_system_file(conf::read(system_file, FileOwner::System)?);
    }
    Ok(Parameters::resolve(&sources)?)
}

/// The key path that a parameter sets, and the conversion of its value.
type ParameterKey = (String, fn(&str) -> String);

/// The parameters that set one key, by name, from the declarations of the keys.
fn parameter_keys() -> BTreeMap<&'static str, ParameterKey> {
    let mut found = BTreeMap::new();
    collect(&JobSpec::declared(), "", &mut found);
    found
}

fn collect(keys: &[Declared], path: &str, found: &mut BTreeMap<&'static str, ParameterKey>) {
    for key in keys {
        match &key.shape {
            Shape::Value { parameter: Some(Parameter { name, text: Some(text) }), .. } => {
                found.insert(name, (format!("{path}{}", key.name), *text));
            }
            Shape::Section(below) => collect(below, &format!("{path}{}.", key.name), found),
            Shape::Elements(below) => collect(below, &format!("{path}{}[0].", key.name), found),
            Shape::Value { .. } | Shape::List(_) => {}
        }
    }
}
