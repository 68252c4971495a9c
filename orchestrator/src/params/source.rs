//! Where values come from, in which order, and what a user may not set.

use std::collections::HashMap;

use holdfast_core::kvtree::Tree;

use super::conf::ConfLine;
use super::declaration::{AllowedSource, Declaration, Effect};
use super::origin::{FileLine, Origin};
use super::setting::{self, ParamError, ParamWarning, ParamWarningKind, Setting};
use super::value::ValueKind;

/// Everything that values can come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    environment: HashMap<String, String>,
    user: Vec<ConfLine>,
    system: Vec<ConfLine>,
}

impl Sources {
    /// These environment variables and no files. A variable that is empty counts as not set: batch scripts export
    /// empty ones for "nothing".
    pub fn new(environment: impl IntoIterator<Item = (String, String)>) -> Self {
        let environment = environment.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        Sources { environment, ..Sources::default() }
    }

    /// The path of the user's file (`SCR_CONF_FILE`), for the caller to read.
    pub fn user_file(&self) -> Option<&str> {
        self.environment.get("SCR_CONF_FILE").map(String::as_str)
    }

    #[must_use]
    pub fn with_user_file(mut self, entries: Vec<ConfLine>) -> Self {
        self.user = entries;
        self
    }

    #[must_use]
    pub fn with_system_file(mut self, entries: Vec<ConfLine>) -> Self {
        self.system = entries;
        self
    }

    /// What the first source that has a parameter says about it: each value, with the further pairs of its line. Empty
    /// if none has it. `allowed` are the sources that may set it.
    pub fn tree(&self, name: &str, allowed: AllowedSource) -> Tree {
        let is_fixed = self.fixed(name).is_some();
        let mut tree = Tree::new();
        let user_may = allowed != AllowedSource::SystemFile && !is_fixed;
        let variable = self.environment.get(name).filter(|_| user_may && allowed != AllowedSource::Files);
        if let Some(value) = variable {
            tree.entry(value);
            return tree;
        }
        let files_may = allowed != AllowedSource::Environment;
        for (lines, may) in [(&self.user, files_may && user_may), (&self.system, files_may)] {
            for line in lines.iter().filter(|line| may && line.key == name) {
                let pairs = tree.entry(&line.value);
                line.pairs.iter().for_each(|(key, value)| pairs.put(key, value));
            }
            if !tree.is_empty() {
                break;
            }
        }
        tree
    }

    /// The value of a parameter and its place in the first source that has it. `allowed` are the sources that may set
    /// it.
    pub fn find(&self, name: &str, allowed: AllowedSource) -> Option<(String, Origin)> {
        let user_may = allowed != AllowedSource::SystemFile && self.fixed(name).is_none();
        let files_may = allowed != AllowedSource::Environment;
        // Of a repeated key the last line counts, as for the original's serial programs.
        let last = |entries: &[ConfLine], may: bool| {
            let entry = entries.iter().rfind(|entry| may && entry.key == name)?;
            Some((entry.value.clone(), entry.origin.clone()))
        };
        let variable = self.environment.get(name).filter(|_| user_may);
        variable
            .map(|value| (value.clone(), Origin::Environment))
            .or_else(|| last(&self.user, user_may && files_may))
            .or_else(|| last(&self.system, files_may))
    }

    /// The line of the system file that fixes this parameter.
    fn fixed(&self, name: &str) -> Option<&FileLine> {
        let of = |name: &str| {
            self.system.iter().rfind(|entry| entry.key == name).and_then(|entry| match &entry.origin {
                Origin::Fixed(place) => Some(place),
                _ => None,
            })
        };
        let others = FIXED_TOGETHER.iter().find(|group| group.contains(&name)).into_iter().flatten();
        of(name).or_else(|| others.into_iter().find_map(|other| of(other)))
    }
}

/// Parameters that set the same thing: if the system file fixes one, the others are fixed too.
const FIXED_TOGETHER: [[&str; 2]; 2] = [["SCR_CACHE_BASE", "CACHEDESC"], ["SCR_COPY_TYPE", "CKPTDESC"]];

/// Looks values up in their order.
pub(super) struct Resolver<'a> {
    declared: &'a [Declaration],
    sources: &'a Sources,
    pub(super) settings: Vec<Setting>,
}

impl<'a> Resolver<'a> {
    /// The values of all parameters but tables.
    pub(super) fn new(declared: &'a [Declaration], sources: &'a Sources) -> Result<Self, ParamError> {
        let mut resolver = Resolver { declared, sources, settings: Vec::new() };
        for parameter in declared.iter().filter(|parameter| !parameter.is_table()) {
            let setting = resolver.resolved(parameter)?;
            resolver.settings.push(setting);
        }
        Ok(resolver)
    }

    fn resolved(&self, parameter: &Declaration) -> Result<Setting, ParamError> {
        let Declaration { name, default, value: kind, .. } = parameter;
        let Some((value, origin)) = self.sources.find(parameter.name, parameter.source) else {
            return Ok(Setting { name, value: default.clone(), origin: Origin::Default });
        };
        if !kind.accepts(&value) {
            return Err(ParamError::Value { name: (*name).to_owned(), value, origin, expected: kind.expected() });
        }
        if let Effect::Refused(reason) = parameter.effect
            && value.trim() != default
        {
            return Err(ParamError::Refused { name: (*name).to_owned(), value, origin, reason });
        }
        Ok(Setting { name, value, origin })
    }

    /// The value of a parameter that has one, at least by default.
    pub(super) fn setting(&self, name: &'static str) -> Result<&Setting, ParamError> {
        let missing = || ParamError::Missing { name: name.to_owned(), why: "redundancy descriptors need it" };
        setting::of(&self.settings, name).ok_or_else(missing)
    }

    /// `SCR_USER_NAME`, else `USER`, which is no parameter.
    pub(super) fn user(&self) -> Result<Option<String>, ParamError> {
        if let Some(given) = setting::of(&self.settings, "SCR_USER_NAME") {
            return Ok(Some(given.value.clone()));
        }
        let (name, kind) = ("USER", ValueKind::PathName);
        match self.sources.environment.get(name) {
            Some(user) if !kind.accepts(user) => {
                let (name, value) = (name.to_owned(), user.clone());
                Err(ParamError::Value { name, value, origin: Origin::Environment, expected: kind.expected() })
            }
            user => Ok(user.cloned()),
        }
    }

    /// The lines of a table: all of the first source that has any.
    pub(super) fn table(&self, name: &str) -> Vec<&'a ConfLine> {
        let Sources { user, system, .. } = self.sources;
        let user = if self.sources.fixed(name).is_some() { &[][..] } else { user };
        let lines = |entries: &'a [ConfLine]| entries.iter().filter(|entry| entry.key == name).collect::<Vec<_>>();
        [user, system].into_iter().map(lines).find(|lines| !lines.is_empty()).unwrap_or_default()
    }

    /// The settings in the sources that have no effect.
    pub(super) fn warnings(&self) -> Vec<ParamWarning> {
        let Sources { environment, user, system } = self.sources;
        let mut warnings = Vec::new();
        for declared in self.declared {
            let kind =
                environment.get(declared.name).and_then(|value| self.unused(declared, value, &Origin::Environment));
            warnings.extend(kind.map(|kind| {
                let origin = Origin::Environment;
                ParamWarning { name: declared.name.to_owned(), origin, kind }
            }));
        }
        let is_declared = |name: &str| self.declared.iter().any(|declared| declared.name == name);
        let unknown = environment.keys().filter(|name| name.starts_with("SCR_") && !is_declared(name));
        let mut unknown: Vec<ParamWarning> = unknown
            .map(|name| {
                let (origin, kind) = (Origin::Environment, ParamWarningKind::Unknown);
                ParamWarning { name: name.clone(), origin, kind }
            })
            .collect();
        unknown.sort_by(|one, other| one.name.cmp(&other.name));
        warnings.extend(unknown);
        for entries in [user, system] {
            for (index, entry) in entries.iter().enumerate() {
                let declared = self.declared.iter().find(|declaration| declaration.name == entry.key);
                let is_table = declared.is_some_and(Declaration::is_table);
                let repeated = !is_table && entries[index + 1..].iter().any(|later| later.key == entry.key);
                let kind = match declared {
                    None => Some(ParamWarningKind::Unknown),
                    Some(declared) => self
                        .unused(declared, &entry.value, &entry.origin)
                        .or(repeated.then_some(ParamWarningKind::SetAgain)),
                };
                if let Some(kind) = kind {
                    warnings.push(ParamWarning { name: entry.key.clone(), origin: entry.origin.clone(), kind });
                    continue;
                }
                // Further pairs have a meaning in tables only.
                let extra = entry.pairs.iter().filter(|_| !is_table);
                warnings.extend(extra.map(|(name, _)| ParamWarning {
                    name: name.clone(),
                    origin: entry.origin.clone(),
                    kind: ParamWarningKind::Unknown,
                }));
            }
        }
        warnings
    }

    /// Why a value of this origin has no effect.
    fn unused(&self, declared: &Declaration, value: &str, origin: &Origin) -> Option<ParamWarningKind> {
        let of_system = matches!(origin, Origin::SystemFile(_) | Origin::Fixed(_));
        match declared.source {
            AllowedSource::SystemFile if !of_system => return Some(ParamWarningKind::SystemFileOnly),
            AllowedSource::Environment if *origin != Origin::Environment => {
                return Some(ParamWarningKind::EnvironmentOnly);
            }
            // The original does not look there for tables either.
            AllowedSource::Files if *origin == Origin::Environment => return None,
            _ => {}
        }
        if let Effect::Warned(reason) = declared.effect {
            return (value.trim() != declared.default).then_some(ParamWarningKind::NoEffect(reason));
        }
        let fixed = self.sources.fixed(declared.name).filter(|_| !of_system);
        fixed.map(|place| ParamWarningKind::Fixed(place.clone()))
    }
}
