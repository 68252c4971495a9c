//! Every setting in force and its origin: `holdfast check --explain` prints them, and mistakes that are found after
//! reading get their line from here.

use std::collections::HashMap;
use std::fmt;

use super::diagnostics::Position;

/// The origin of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The spec, at this position.
    Spec(Position),
    /// A variable of the environment, or another source of SCR's parameters, by name.
    Parameter(String),
    CommandLine,
    Default,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key path: `checkpoint.redundancy[0].set_size`.
    pub key: String,
    /// The value in the syntax of a spec; `none` if an optional one is not set.
    pub value: String,
    /// True if this is the default value.
    pub is_default: bool,
    pub origin: Origin,
}

/// The value of an optional setting that is not set.
pub const NOT_SET: &str = "none";

/// All settings of a spec, in the order of the reference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    list: Vec<Setting>,
    /// Positions of keys, including sections and lists, which have no value of their own.
    places: HashMap<String, Position>,
}

impl Settings {
    /// Every setting, in the order of `configs/reference.yaml`.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Setting> {
        self.list.iter()
    }

    /// The setting with this key path.
    pub fn get(&self, key: &str) -> Option<&Setting> {
        self.list.iter().find(|setting| setting.key == key)
    }

    /// Removes the settings whose keys are refused.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.list.retain(|setting| is_kept(&setting.key));
    }

    /// The position of the key in the spec or, if it is not written, of the nearest enclosing section.
    pub fn place(&self, key: &str) -> Option<Position> {
        let mut key = key;
        loop {
            if let Some(place) = self.places.get(key) {
                return Some(*place);
            }
            key = &key[..key.rfind(['.', '['])?];
        }
    }

    /// True if the key itself is in the spec.
    pub(super) fn is_written(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// For a spec that was made from a command line: removes all positions.
    pub(super) fn mark_command_line(&mut self) {
        for setting in self.list.iter_mut().filter(|setting| matches!(setting.origin, Origin::Spec(_))) {
            setting.origin = Origin::CommandLine;
        }
        self.places.clear();
    }

    /// True if the spec sets the key, or a key below it, to a value that is not its default.
    pub fn is_decided(&self, key: &str) -> bool {
        let below =
            |path: &str| path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        let written = |origin: &Origin| matches!(origin, Origin::Spec(_));
        self.list.iter().any(|setting| !setting.is_default && written(&setting.origin) && below(&setting.key))
    }

    pub(super) fn record(&mut self, key: String, value: String, is_default: bool, origin: Origin) {
        self.list.push(Setting { key, value, is_default, origin });
    }

    /// Keeps the first position: for a section that of its own key, not of the first key in it.
    pub(super) fn record_place(&mut self, key: String, place: Position) {
        self.places.entry(key).or_insert(place);
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Spec(place) => write!(f, "line {}", place.line),
            Origin::Parameter(name) => f.write_str(name),
            Origin::CommandLine => f.write_str("command line"),
            Origin::Default => f.write_str("default"),
        }
    }
}
