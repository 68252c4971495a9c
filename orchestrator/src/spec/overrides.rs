//! Settings from outside of the spec, by key path: those that override it, those that replace its defaults, and those
//! that the site's file fixes. In a job of several steps they apply to each step.

use std::collections::BTreeMap;

use super::settings::Origin;

/// All settings from outside of the spec.
#[derive(Clone, Debug, Default)]
pub(super) struct Overrides {
    /// Fixed by the site's file: the spec must not have other values.
    pub(super) fixed: OverrideLevel,
    /// Take precedence over the spec.
    pub(super) above: OverrideLevel,
    /// Replace the defaults.
    pub(super) below: OverrideLevel,
}

/// Settings of one precedence.
#[derive(Clone, Debug, Default)]
pub(super) struct OverrideLevel {
    /// Single values: text and origin. `[*]` in a path means each element of a list; `NAME=DIR` is the value of a table
    /// line for a directory.
    pub(super) values: BTreeMap<String, (String, Origin)>,
    /// Lists that are replaced.
    pub(super) lists: BTreeMap<String, (ListOverride, Origin)>,
}

/// How a list is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListOverride {
    /// By so many elements, whose values are in [`OverrideLevel::values`].
    Elements(usize),
    /// By one element, that of the spec whose key has this value, else its first. Its other keys stay.
    One { key: &'static str, value: String },
}

impl ListOverride {
    pub(super) fn length(&self) -> usize {
        match self {
            ListOverride::Elements(length) => *length,
            ListOverride::One { .. } => 1,
        }
    }
}

impl OverrideLevel {
    pub(super) fn value(&self, path: &str) -> Option<(&str, &Origin)> {
        self.values.get(step_free(path)).map(|(text, origin)| (text.as_str(), origin))
    }

    /// The value for the key of each element of its list.
    pub(super) fn value_of_each(&self, path: &str) -> Option<(&str, &Origin)> {
        let path = step_free(path);
        let (list, rest) = path.split_once('[')?;
        let (_, key) = rest.split_once(']')?;
        self.value(&format!("{list}[*]{key}"))
    }

    pub(super) fn list(&self, path: &str) -> Option<(&ListOverride, &Origin)> {
        self.lists.get(step_free(path)).map(|(list, origin)| (list, origin))
    }

    /// True if the list is replaced that the path leads into.
    pub(super) fn replaces_list_of(&self, path: &str) -> bool {
        step_free(path).split_once('[').is_some_and(|(list, _)| self.lists.contains_key(list))
    }
}

/// The path relative to its step.
fn step_free(path: &str) -> &str {
    let inside = path.strip_prefix("steps[").and_then(|rest| rest.split_once("].")).map(|(_, inside)| inside);
    // Each step has a prefix directory of its own.
    inside.filter(|inside| *inside != "prefix").unwrap_or(path)
}
