//! Where values come from, in which order, and what a user may not set.

use std::collections::HashMap;

use super::conf::ConfLine;
use super::declaration::{AllowedSource, DECLARED, Declaration, Effect, fixed_with};
use super::origin::{FileLine, Origin};
use super::setting::{Explained, ParamError, ParamWarning, ParamWarningKind, Setting};

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
}

impl<'a> Resolver<'a> {
    pub(super) fn new(sources: &'a Sources) -> Self {
        Resolver { sources, explained: Vec::new() }
    }

    pub(super) fn setting<T>(
        &mut self,
        name: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Setting<T>, ParamError> {
        let default = Declaration::of(name).map_or("", |declared| declared.default);
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
        let user = if self.fixed(name).is_some() { &[][..] } else { user };
        let lines = |entries: &'a [ConfLine]| entries.iter().filter(|entry| entry.key == name).collect::<Vec<_>>();
        [user, system].into_iter().map(lines).find(|lines| !lines.is_empty()).unwrap_or_default()
    }

    /// The line of the system file that fixes this parameter.
    fn fixed(&self, name: &str) -> Option<&'a FileLine> {
        let of = |name: &str| {
            self.sources.system.iter().rfind(|entry| entry.key == name).and_then(|entry| match &entry.origin {
                Origin::Fixed(place) => Some(place),
                _ => None,
            })
        };
        of(name).or_else(|| fixed_with(name).iter().find_map(|other| of(other)))
    }

    fn find(&self, name: &'static str) -> Option<(String, Origin)> {
        let Sources { environment, user, system } = self.sources;
        // USER and the resource manager's variables are no parameters.
        let source = Declaration::of(name).map_or(AllowedSource::Environment, |declared| declared.source);
        let user_may = source != AllowedSource::SystemFile && self.fixed(name).is_none();
        let files_may = source != AllowedSource::Environment;
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

    /// A parameter whose value is read nowhere else.
    ///
    /// # Errors
    /// A value that is not supported.
    pub(super) fn refuse_unsupported(&self) -> Result<(), ParamError> {
        for Declaration { name, default, effect, .. } in DECLARED {
            if let Effect::Refused(reason) = *effect
                && let Some((value, origin)) = self.find(name)
                && value.trim() != *default
            {
                return Err(ParamError::Refused { name, value, origin, reason });
            }
        }
        Ok(())
    }

    /// The settings in the sources that have no effect.
    pub(super) fn warnings(&self) -> Vec<ParamWarning> {
        let Sources { environment, user, system } = self.sources;
        let mut warnings = Vec::new();
        for declared in DECLARED {
            let kind =
                environment.get(declared.name).and_then(|value| self.unused(declared, value, &Origin::Environment));
            warnings.extend(kind.map(|kind| {
                let origin = Origin::Environment;
                ParamWarning { name: declared.name.to_owned(), origin, kind }
            }));
        }
        for entries in [user, system] {
            for (index, entry) in entries.iter().enumerate() {
                let declared = Declaration::of(&entry.key);
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
        let fixed = self.fixed(declared.name).filter(|_| !of_system);
        fixed.map(|place| ParamWarningKind::Fixed(place.clone()))
    }
}
