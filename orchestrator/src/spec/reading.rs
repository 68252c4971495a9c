//! From nodes to settings: reads the declared keys of each section. After a mistake the default is used, so that
//! reading continues and finds the next mistake.
//!
//! A section records which keys were read from it. At its end, all others are unknown, and the keys that were read are
//! the candidates for the nearest spelling. So the list of valid keys is always the one that is declared.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::diagnostics::{Diagnostic, Position, nearest};
use super::document::{Value, YamlEntry, YamlNode};
use super::manager_settings::ManagerSettings;
use super::other_names;
use super::overrides::{ListOverride, Overrides};
use super::registered::Registered;
use super::resolved;
use super::settings::{NOT_SET, Origin, Settings};
use super::value_kinds::ValueKind;
use super::without_choice::{self, WithoutChoice};

/// What to do about a key that the site's file fixes.
const FIXED_HELP: &str = "remove the key: users cannot change this setting at this site";

pub struct Reader {
    /// The resource managers and launchers that the spec may name.
    pub(super) registered: Registered,
    /// The readers of the keys that the managers declare.
    pub(super) manager_keys: Vec<ReadManagerKeys>,
    mistakes: RefCell<Vec<Diagnostic>>,
    /// About keys without effect that are read all the same.
    notes: RefCell<Vec<String>>,
    settings: RefCell<Settings>,
    overrides: Overrides,
    /// The directory of the spec file, absolute; `None` for a spec that is no file.
    base: Option<PathBuf>,
    /// The values for directories that were looked up.
    directories: RefCell<BTreeSet<String>>,
}

/// Reads the keys that a manager declares.
type ReadManagerKeys = fn(&mut Section<'_>) -> Arc<dyn ManagerSettings>;

/// A setting from outside of the spec: text and origin.
type Override<'a> = (&'a str, &'a Origin);

/// The source of the list that a section is an element of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListSource {
    /// The spec, or a setting that overrides it; or the section is no element.
    Spec,
    /// A setting that replaces the default.
    Below,
}

impl Reader {
    pub(super) fn new(
        registered: Registered,
        manager_keys: Vec<ReadManagerKeys>,
        overrides: Overrides,
        base: Option<PathBuf>,
    ) -> Self {
        let (mistakes, notes, settings, directories) = Default::default();
        Reader { registered, manager_keys, mistakes, notes, settings, overrides, base, directories }
    }

    /// The values of table lines (`NAME=DIR`) for directories that no section has, with their origins.
    pub(super) fn unused_directories(&self) -> Vec<(String, Origin)> {
        let levels = [&self.overrides.fixed, &self.overrides.above, &self.overrides.below];
        let of_directories = levels.into_iter().flat_map(|level| &level.values).filter(|(name, _)| name.contains('='));
        let used = self.directories.borrow();
        let unused = of_directories.filter(|(name, _)| !used.contains(*name));
        unused.map(|(name, (_, origin))| (name.clone(), origin.clone())).collect()
    }

    /// The root section.
    pub(super) fn root<'a>(&'a self, node: &'a YamlNode) -> Section<'a> {
        self.section(String::new(), Some(node))
    }

    /// The mistakes, the settings, and notes about keys without effect.
    pub(super) fn finish(self) -> (Vec<Diagnostic>, Settings, Vec<String>) {
        (self.mistakes.into_inner(), self.settings.into_inner(), self.notes.into_inner())
    }

    /// Adds a mistake at the position of a key.
    pub fn mistake(&self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        let place = self.settings.borrow().place(key);
        self.mistake_at(place, key, message.into(), Some(help.into()));
    }

    /// A path that Holdfast itself reads, absolute. What the spec has, or the default, is relative to the directory of
    /// the spec file; a value from elsewhere, and that of a spec that is no file, is relative to the working directory.
    pub fn absolute(&self, key: &str, path: PathBuf) -> PathBuf {
        let settings = self.settings.borrow();
        let of_spec = settings.get(key).is_none_or(|set| matches!(set.origin, Origin::Spec(_) | Origin::Default));
        let base = self.base.as_ref().filter(|_| of_spec);
        let joined = base.map_or_else(|| path.clone(), |base| base.join(&path));
        std::path::absolute(&joined).unwrap_or(joined)
    }

    /// True if the key itself is in the spec.
    pub fn is_written(&self, key: &str) -> bool {
        self.settings.borrow().is_written(key)
    }

    /// True if the spec sets the key, or a key below it, to a value that is not its default.
    pub fn is_decided(&self, key: &str) -> bool {
        self.settings.borrow().is_decided(key)
    }

    fn mistake_at(&self, place: Option<Position>, key: &str, message: String, help: Option<String>) {
        self.mistakes.borrow_mut().push(Diagnostic { place, key: key.to_owned(), message, help });
    }

    fn section<'a>(&'a self, path: String, node: Option<&'a YamlNode>) -> Section<'a> {
        let entries = match node {
            None | Some(YamlNode { value: Value::Nothing, .. }) => &[][..],
            Some(YamlNode { value: Value::Map(entries), place }) => {
                self.settings.borrow_mut().record_place(path.clone(), *place);
                self.refuse_repeated_keys(&path, entries);
                entries
            }
            Some(YamlNode { value, place }) => {
                let name = if path.is_empty() { "the spec".to_owned() } else { format!("`{path}`") };
                let message = format!("expected a section (lines of `key: value`), found {}", value.describe());
                let help = format!("{name} is a section; configs/reference.yaml lists its keys");
                self.mistake_at(Some(*place), &path, message, Some(help));
                &[]
            }
        };
        Section { reader: self, path, entries, known: Vec::new(), list: ListSource::Spec }
    }

    fn refuse_repeated_keys(&self, path: &str, entries: &[YamlEntry]) {
        let mut seen = BTreeMap::new();
        for entry in entries {
            if let Some(first) = seen.insert(entry.key.as_str(), entry.key_place) {
                let message = format!("duplicate key; the first is on line {}", first.line);
                let key = join(path, &entry.key);
                self.mistake_at(Some(entry.key_place), &key, message, Some("remove one of them".to_owned()));
            }
        }
    }
}

/// A section of the spec while it is read.
pub struct Section<'a> {
    reader: &'a Reader,
    path: String,
    entries: &'a [YamlEntry],
    known: Vec<&'static str>,
    list: ListSource,
}

impl<'a> Section<'a> {
    pub fn reader(&self) -> &'a Reader {
        self.reader
    }

    /// The key path of `key` in this section.
    pub fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// The key path of this section.
    pub fn path(&self) -> String {
        self.path.clone()
    }

    /// True if the section has `key` with a value. Does not mark the key as known.
    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key && !matches!(entry.node.value, Value::Nothing))
    }

    fn node(&mut self, key: &'static str) -> Option<&'a YamlNode> {
        self.known.push(key);
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        let place = if matches!(entry.node.value, Value::Scalar { .. }) { entry.node.place } else { entry.key_place };
        self.reader.settings.borrow_mut().record_place(self.path_of(key), place);
        (!matches!(entry.node.value, Value::Nothing)).then_some(&entry.node)
    }

    /// Adds a mistake at the position of a key of this section.
    pub fn mistake(&self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        self.reader.mistake(&self.path_of(key), message, help);
    }

    /// The value in force, as text, of a key of the parent section that was read before.
    pub(super) fn value_around(&self, key: &str) -> Option<String> {
        let around = self.path.rsplit_once('.').map_or("", |(around, _)| around);
        self.reader.settings.borrow().get(&join(around, key)).map(|setting| setting.value.clone())
    }

    /// Reads a value from the source with the highest precedence: override, spec, default.
    pub(super) fn single<T: Clone>(
        &mut self,
        key: &'static str,
        kind: &ValueKind<T>,
        default: Option<&T>,
    ) -> Option<T> {
        let path = self.path_of(key);
        self.single_of(key, &path, kind, default)
    }

    /// As [`Section::single`], for a value that a table sets for the directory in `base`.
    pub(super) fn single_of_directory<T: Clone>(
        &mut self,
        key: &'static str,
        table: &str,
        kind: &ValueKind<T>,
    ) -> Option<T> {
        let base = self.reader.settings.borrow().get(&self.path_of("base")).map(|base| base.value.clone());
        let name = format!("{table}={}", base.unwrap_or_default());
        self.reader.directories.borrow_mut().insert(name.clone());
        self.single_of(key, &name, kind, None)
    }

    /// The settings for a key from outside of the spec: above it, and below it.
    fn overrides(&self, name: &str) -> (Option<Override<'a>>, Option<Override<'a>>) {
        let Overrides { above, below, .. } = &self.reader.overrides;
        let own_below = match self.list {
            // The list of the spec has replaced the other.
            ListSource::Spec if below.replaces_list_of(name) => None,
            ListSource::Spec | ListSource::Below => below.value(name),
        };
        let of_each = match self.list {
            // The element has a value of its own; that for each is the default.
            ListSource::Below if own_below.is_some() => None,
            ListSource::Spec | ListSource::Below => above.value_of_each(name),
        };
        (above.value(name).or(of_each), own_below.or_else(|| below.value_of_each(name)))
    }

    /// `name` is the key's name in the overrides.
    fn single_of<T: Clone>(
        &mut self,
        key: &'static str,
        name: &str,
        kind: &ValueKind<T>,
        default: Option<&T>,
    ) -> Option<T> {
        let path = self.path_of(key);
        let node = self.node(key);
        let default_text = default.map_or_else(|| NOT_SET.to_owned(), kind.show);
        let default = default.cloned();
        let record = |value: String, origin: Origin| {
            let is_default = value == default_text;
            self.reader.settings.borrow_mut().record(path.clone(), value, is_default, origin);
        };
        let fixed = &self.reader.overrides.fixed;
        let fixed = fixed.value(name).or_else(|| fixed.value_of_each(name));
        if let (Some((text, origin)), Some(node)) = (fixed, node) {
            self.refuse_other_value(&path, node, kind, (text, origin));
        }
        let (above, below) = self.overrides(name);
        let (text, origin) = match (fixed.or(above), node, below) {
            (Some((text, origin)), _, _) | (None, None, Some((text, origin))) => (text, origin.clone()),
            (None, None, None) => {
                record(default_text.clone(), Origin::Default);
                return default;
            }
            (None, Some(YamlNode { value: Value::Scalar { text, .. }, place }), _) => {
                (text.as_str(), Origin::Spec(*place))
            }
            (None, Some(YamlNode { value, place }), _) => {
                let message = format!("expected {}, found {}", kind.expected, value.describe());
                self.reader.mistake_at(Some(*place), &path, message, None);
                return default;
            }
        };
        match (kind.read)(text.trim()) {
            Ok(value) => {
                record((kind.show)(&value), origin);
                Some(value)
            }
            Err(specific) => {
                let written = node.filter(|_| matches!(origin, Origin::Spec(_)));
                let found = written.map_or_else(|| format!("`{}`", text.escape_debug()), |node| node.value.describe());
                let (mut message, help) = match specific {
                    Some((message, help)) => (message, Some(help)),
                    None => (format!("expected {}, found {found}", kind.expected), None),
                };
                let place = match &origin {
                    Origin::Spec(place) => Some(*place),
                    Origin::Parameter(name) => {
                        message = format!("{message} (from {name})");
                        None
                    }
                    Origin::CommandLine | Origin::Default => None,
                };
                self.reader.mistake_at(place, &path, message, help);
                default
            }
        }
    }

    /// Refuses a value of the spec that differs from the one that the site's file fixes.
    fn refuse_other_value<T>(
        &self,
        path: &str,
        node: &YamlNode,
        kind: &ValueKind<T>,
        (fixed, origin): (&str, &Origin),
    ) {
        let shown = |text: &str| (kind.read)(text.trim()).ok().map(|value| (kind.show)(&value));
        let written = match &node.value {
            Value::Scalar { text, .. } => shown(text),
            _ => None,
        };
        let fixed = shown(fixed).unwrap_or_else(|| fixed.to_owned());
        if written.as_ref() != Some(&fixed) {
            let message = format!("the value is fixed to `{fixed}` by {origin}");
            self.reader.mistake_at(Some(node.place), path, message, Some(FIXED_HELP.to_owned()));
        }
    }

    /// A list of strings, such as a command. Numbers and booleans are read as text.
    pub(super) fn words(&mut self, key: &'static str) -> Option<Vec<String>> {
        let path = self.path_of(key);
        let node = self.node(key);
        let strings = match node {
            None => None,
            Some(YamlNode { value: Value::List(items), .. }) => {
                Some(items.iter().enumerate().filter_map(|(at, item)| self.string(&path, at, item)).collect::<Vec<_>>())
            }
            Some(YamlNode { value, place }) => {
                let message = format!("expected a list of strings, found {}", value.describe());
                let help = match value {
                    _ if key == "nodes" => "write the nodes of main and replica: `nodes: [0, 1]`".to_owned(),
                    Value::Scalar { text, .. } => {
                        let items: Vec<&str> = text.split_whitespace().collect();
                        format!("commands are not split by a shell: write `[{}]`", items.join(", "))
                    }
                    _ => "write `[program, argument, …]`".to_owned(),
                };
                self.reader.mistake_at(Some(*place), &path, message, Some(help));
                None
            }
        };
        let (shown, origin) = match (&strings, node) {
            (Some(strings), Some(node)) => {
                let items: Vec<String> = strings.iter().map(|text| resolved::list_item(text)).collect();
                (format!("[{}]", items.join(", ")), Origin::Spec(node.place))
            }
            _ => (NOT_SET.to_owned(), Origin::Default),
        };
        self.reader.settings.borrow_mut().record(path, shown, strings.is_none(), origin);
        strings
    }

    fn string(&self, path: &str, at: usize, item: &YamlNode) -> Option<String> {
        let mistake = |message: String, help: Option<String>| {
            self.reader.mistake_at(Some(item.place), &format!("{path}[{at}]"), message, help);
        };
        self.reader.settings.borrow_mut().record_place(format!("{path}[{at}]"), item.place);
        match &item.value {
            Value::Scalar { text, .. } if text.contains('\0') => {
                mistake("the text contains a NUL byte".to_owned(), None);
                None
            }
            Value::Scalar { text, .. } => Some(text.clone()),
            value => {
                mistake(format!("expected text, found {}", value.describe()), Some("put quotes around it".to_owned()));
                None
            }
        }
    }

    /// A map of names to text, such as environment variables.
    pub(super) fn names(&mut self, key: &'static str) -> BTreeMap<String, String> {
        let path = self.path_of(key);
        let mut names = BTreeMap::new();
        match self.node(key) {
            None => {}
            Some(YamlNode { value: Value::Map(entries), .. }) => {
                self.reader.refuse_repeated_keys(&path, entries);
                for entry in entries {
                    let key = join(&path, &entry.key);
                    match &entry.node.value {
                        Value::Scalar { text, .. } if !text.contains('\0') => {
                            let origin = Origin::Spec(entry.node.place);
                            self.reader.settings.borrow_mut().record(key, text.clone(), false, origin);
                            names.insert(entry.key.clone(), text.clone());
                        }
                        Value::Nothing => {
                            names.insert(entry.key.clone(), String::new());
                        }
                        value => {
                            let message = format!("expected text, found {}", value.describe());
                            self.reader.mistake_at(Some(entry.node.place), &key, message, None);
                        }
                    }
                }
            }
            Some(YamlNode { value, place }) => {
                let message = format!("expected lines of `NAME: value`, found {}", value.describe());
                self.reader.mistake_at(Some(*place), &path, message, None);
            }
        }
        names
    }

    /// Marks `key` as known without reading its value.
    pub(super) fn skip(&mut self, key: &'static str) {
        self.node(key);
    }

    /// A subsection; empty if the key is not written.
    pub(super) fn section(&mut self, key: &'static str) -> Section<'a> {
        let node = self.node(key);
        self.reader.section(self.path_of(key), node)
    }

    /// A list of sections; `None` if the key is not written.
    pub(super) fn sections(&mut self, key: &'static str) -> Option<Vec<Section<'a>>> {
        let path = self.path_of(key);
        match self.node(key)? {
            YamlNode { value: Value::List(items), .. } => {
                let items = items.iter().enumerate();
                Some(items.map(|(at, item)| self.reader.section(format!("{path}[{at}]"), Some(item))).collect())
            }
            YamlNode { value, place } => {
                let message = format!("expected a list of sections, found {}", value.describe());
                let help = "put `- ` before the first key, and indent the other keys by two more".to_owned();
                self.reader.mistake_at(Some(*place), &path, message, Some(help));
                None
            }
        }
    }

    /// A list of sections. The default is one element; an override replaces the entire list. An empty list is refused.
    pub(super) fn elements(&mut self, key: &'static str) -> Vec<Section<'a>> {
        let path = self.path_of(key);
        let Overrides { fixed, above, below } = &self.reader.overrides;
        let (fixed, above, below) = (fixed.list(&path), above.list(&path), below.list(&path));
        let written = match self.node(key) {
            Some(YamlNode { value: Value::List(items), .. }) => Some(items),
            Some(_) => {
                // Adds the mistake.
                self.sections(key);
                None
            }
            None => None,
        };
        let element = |at: usize, node: Option<&'a YamlNode>| self.reader.section(format!("{path}[{at}]"), node);
        if let (Some((list, origin)), Some(written)) = (fixed, written) {
            let length = list.length();
            if written.len() != length {
                let message = format!("the list is fixed by {origin}: its length is {length}");
                self.mistake(key, message, FIXED_HELP);
                return (0..length).map(|at| element(at, None)).collect();
            }
        }
        match (fixed.or(above), written, below) {
            (Some((ListOverride::One { key, value }, _)), Some(items), _) => {
                let has_value = |item: &&YamlNode| has_value(item, key, value);
                vec![element(0, items.iter().find(has_value).or(items.first()))]
            }
            (Some((list, _)), written, _) => {
                // Equal values of the spec are accepted where the list is fixed.
                let node = |at| written.filter(|_| fixed.is_some()).and_then(|items| items.get(at));
                (0..list.length()).map(|at| element(at, node(at))).collect()
            }
            (None, Some(items), _) => {
                if items.is_empty() {
                    let help = format!("leave `{key}` out for the default, or write at least one element");
                    self.reader.mistake(&path, "the list is empty", help);
                }
                items.iter().enumerate().map(|(at, item)| element(at, Some(item))).collect()
            }
            (None, None, below) => {
                let length = below.map_or(1, |(list, _)| list.length());
                let nameless = (0..length).map(|at| Section { list: ListSource::Below, ..element(at, None) });
                nameless.collect()
            }
        }
    }

    /// Ends the reading of the section: keys that were not read are unknown.
    pub(super) fn finish(&self) {
        for entry in self.entries.iter().filter(|entry| !self.known.contains(&entry.key.as_str())) {
            if let Some(known) = without_choice::find(&self.path, &entry.key) {
                self.read_without_choice(known, entry);
                continue;
            }
            let near = other_names::key_for(&self.path, &entry.key);
            let help = match near.or_else(|| nearest(&entry.key, self.known.iter().copied())) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("keys here: {}", self.known.join(", ")),
            };
            let message = "unknown key".to_owned();
            self.reader.mistake_at(Some(entry.key_place), &self.path_of(&entry.key), message, Some(help));
        }
    }
}

impl Section<'_> {
    /// A key with a single value.
    fn read_without_choice(&self, known: &WithoutChoice, entry: &YamlEntry) {
        let path = self.path_of(&entry.key);
        match &entry.node.value {
            Value::Nothing => {}
            Value::Scalar { text, .. } if text.eq_ignore_ascii_case(known.value) => {
                let line = entry.key_place.line;
                let note = format!("`{path}` (line {line}) has no effect: {}; leave it out", known.always);
                self.reader.notes.borrow_mut().push(note);
            }
            value => {
                let found = match value {
                    Value::Scalar { text, .. } => format!("`{}`", text.escape_debug()),
                    value => value.describe(),
                };
                let message = format!("{found} is not available in this version: {}", known.always);
                let instead = known.instead.map(|instead| format!("; {instead}")).unwrap_or_default();
                let help = format!("leave `{}` out{instead}", entry.key);
                self.reader.mistake_at(Some(entry.node.place), &path, message, Some(help));
            }
        }
    }
}

/// True if the section has the key with this value.
fn has_value(section: &YamlNode, key: &str, value: &str) -> bool {
    let Value::Map(entries) = &section.value else { return false };
    entries.iter().any(|entry| {
        entry.key == key && matches!(&entry.node.value, Value::Scalar { text, .. } if text.eq_ignore_ascii_case(value))
    })
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
