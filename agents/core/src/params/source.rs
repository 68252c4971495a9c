//! Where values come from, in which order, and what a user may not set.

use std::collections::HashMap;

use super::conf::ConfLine;
use super::origin::Origin;
use super::setting::{Explained, ParamError, ParamWarning, ParamWarningKind, Setting};

/// Only the system file may set these.
const SYSTEM_FILE_ONLY: &[&str] = &["SCR_CNTL_BASE"];

/// Only the environment may set these (`scr_srun` looks for them nowhere else).
const ENVIRONMENT_ONLY: &[&str] =
    &["SCR_RUNS", "SCR_RETRIES", "SCR_MIN_NODES", "SCR_NODELIST", "SCR_CHECKPOINT_PATTERN", "SCR_CONF_FILE"];

/// Known to the original and of no meaning here: its event log in MySQL, and its test switches.
const WITHOUT_MEANING: &[&str] = &[
    "SCR_DB_ENABLE",
    "SCR_DB_DEBUG",
    "SCR_DB_HOST",
    "SCR_DB_USER",
    "SCR_DB_PASS",
    "SCR_DB_NAME",
    "SCR_CONF_FILE",
    "SCR_CHECKPOINT_PATTERN",
];

/// Keys that are tables: each line is one entry.
pub(super) const TABLES: &[&str] = &["CACHEDESC", "CKPTDESC", "CNTLDIR", "CACHEDIR"];

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
}

/// Looks values up in their order, and keeps what it did.
pub(super) struct Resolver<'a> {
    sources: &'a Sources,
    pub(super) explained: Vec<Explained>,
    asked: Vec<&'static str>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(sources: &'a Sources) -> Self {
        Resolver { sources, explained: Vec::new(), asked: Vec::new() }
    }

    pub(super) fn setting<T>(
        &mut self,
        name: &'static str,
        default: &str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Setting<T>, ParamError> {
        let (text, origin) = self.find(name).unwrap_or_else(|| (default.to_owned(), Origin::Default));
        self.parsed(name, text, origin, expected, parse)
    }

    pub(super) fn optional<T>(
        &mut self,
        names: &[&'static str],
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Setting<Option<T>>, ParamError> {
        let mut found = None;
        for name in names {
            let value = self.find(name);
            found = found.or(value.map(|(text, origin)| (*name, text, origin)));
        }
        match (found, names) {
            (Some((name, text, origin)), _) => self.parsed(name, text, origin, expected, |text| parse(text).map(Some)),
            (None, [name, ..]) => self.parsed(name, String::new(), Origin::Default, expected, |_| Some(None)),
            (None, []) => Ok(Setting { value: None, origin: Origin::Default }),
        }
    }

    fn parsed<T>(
        &mut self,
        name: &'static str,
        text: String,
        origin: Origin,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Setting<T>, ParamError> {
        match parse(&text) {
            Some(value) => {
                self.explained.push(Explained { name, value: text, origin: origin.clone() });
                Ok(Setting { value, origin })
            }
            None => Err(ParamError::Value { name: name.to_owned(), value: text, origin, expected }),
        }
    }

    /// The lines of a table: all of the first source that has any.
    pub(super) fn table(&self, name: &str) -> Vec<&'a ConfLine> {
        let Sources { user, system, .. } = self.sources;
        let lines = |entries: &'a [ConfLine]| entries.iter().filter(|entry| entry.key == name).collect::<Vec<_>>();
        [user, system].into_iter().map(|entries| lines(entries)).find(|lines| !lines.is_empty()).unwrap_or_default()
    }

    fn find(&mut self, name: &'static str) -> Option<(String, Origin)> {
        self.asked.push(name);
        let Sources { environment, user, system } = self.sources;
        let user_may = !SYSTEM_FILE_ONLY.contains(&name);
        // USER and the resource manager's variables are no parameters.
        let files_may = name.starts_with("SCR_") && !ENVIRONMENT_ONLY.contains(&name);
        // Of a repeated key the last line counts, as for the original's serial programs.
        let last = |entries: &[ConfLine], may: bool| {
            let entry = entries.iter().rfind(|entry| may && entry.key == name)?;
            Some((entry.value.clone(), entry.origin.clone()))
        };
        let variable = environment.get(name).filter(|_| user_may);
        variable
            .map(|value| (value.clone(), Origin::Environment))
            .or_else(|| last(user, user_may && files_may))
            .or_else(|| last(system, files_may))
    }

    /// The settings in the sources that had no effect, once all parameters have been read.
    pub(super) fn warnings(&self) -> Vec<ParamWarning> {
        let Sources { environment, user, system } = self.sources;
        let mut warnings = Vec::new();
        for name in SYSTEM_FILE_ONLY.iter().filter(|name| environment.contains_key(**name)) {
            let (name, kind) = ((*name).to_owned(), ParamWarningKind::SystemFileOnly);
            warnings.push(ParamWarning { name, origin: Origin::Environment, kind });
        }
        for (entries, of_user) in [(user, true), (system, false)] {
            for (index, entry) in entries.iter().enumerate() {
                let key = entry.key.as_str();
                let table = TABLES.contains(&key);
                let kind = if of_user && SYSTEM_FILE_ONLY.contains(&key) {
                    ParamWarningKind::SystemFileOnly
                } else if ENVIRONMENT_ONLY.contains(&key) {
                    ParamWarningKind::EnvironmentOnly
                } else if !(table
                    || key.starts_with("SCR_") && self.asked.contains(&key)
                    || WITHOUT_MEANING.contains(&key))
                {
                    ParamWarningKind::Unknown
                } else if !table && entries[index + 1..].iter().any(|later| later.key == key) {
                    ParamWarningKind::SetAgain
                } else {
                    // Further pairs have a meaning in tables only.
                    let extra = entry.pairs.iter().filter(|_| !table);
                    warnings.extend(extra.map(|(name, _)| ParamWarning {
                        name: name.clone(),
                        origin: entry.origin.clone(),
                        kind: ParamWarningKind::Unknown,
                    }));
                    continue;
                };
                warnings.push(ParamWarning { name: entry.key.clone(), origin: entry.origin.clone(), kind });
            }
        }
        warnings
    }
}
