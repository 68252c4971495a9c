//! Declarations of the keys of the spec: each once, with its documentation, type, default and SCR parameter.
//!
//! [`keys!`] generates the struct, its reader and its description from one list of declarations. The unknown-key check,
//! `check --explain` and `check --resolved` use the reader; `check --reference` and the mapping of SCR_* parameters use
//! the description.
//!
//! ```ignore
//! keys! {
//!     /// Where a run looks for a checkpoint to restart from.
//!     pub struct Restart {
//!         /// In the caches.
//!         distribute: bool = switch().or(true).scr("SCR_DISTRIBUTE"),
//!     }
//! }
//! ```
//!
//! The second form, `Type => Built; … |section| { … }`, is for a section whose struct is declared elsewhere (settings
//! that are sent to the agents unchanged) or is computed from several keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::manager_settings::ManagerSettings;
pub use super::reading::Section;
use super::registered::EntryKind;
use super::value_kinds::{
    Accepted, Choice, ParameterValue, ScrSpelling, ValueKind, choice, entry_name, source_name, switch,
};
use crate::params::declaration::AllowedSource;

/// The keys of one section.
pub trait Keys {
    /// The type that the section is read into.
    type Built;

    /// Reads the keys of the section, which may have others; mistakes are added to its reader.
    fn read_keys(section: &mut Section<'_>) -> Self::Built;

    /// Reads the section; other keys than these are unknown.
    fn read(mut section: Section<'_>) -> Self::Built {
        let built = Self::read_keys(&mut section);
        section.finish();
        built
    }

    /// The keys in the order of their declaration.
    fn declared() -> Vec<Declared>;
}

/// A key as the reference describes it.
pub struct Declared {
    pub name: &'static str,
    /// The lines of its doc comment.
    pub documentation: &'static str,
    pub shape: Shape,
}

/// The shape of a key's value.
pub enum Shape {
    /// A single value, a list of strings or a map; no default means that it is not set.
    Value { default: Option<String>, parameter: Option<Parameter>, form: Form },
    Section {
        keys: Vec<Declared>,
        /// In an element of a list: the reference describes the keys elsewhere.
        is_described: bool,
    },
    /// Several keys of this section, which are declared elsewhere.
    Keys(Vec<Declared>),
    /// A list of sections whose default is one element with defaults.
    Elements(Vec<Declared>),
    /// A list of sections whose default is empty.
    List(Vec<Declared>),
    /// A switch for each manager that can run a job again, with its name.
    RequeueByManager,
    /// The keys of this section that the managers declare.
    OfManagers,
}

/// What a value may be, as editors know it.
#[derive(Clone, Debug)]
pub enum Form {
    Single(Accepted),
    /// The name of a registered entry; `auto` where the entry can be chosen.
    Entry(EntryKind),
    /// A list of strings.
    Words,
    /// A list of these keywords.
    Choices(Vec<&'static str>),
    /// A map of names to text.
    Names,
}

/// The SCR_* parameter of a key.
#[derive(Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    pub source: AllowedSource,
    /// Its values, if they are not those of the key's kind.
    pub value: Option<ParameterValue>,
    /// Its default, if it is not that of the key.
    pub default: Option<&'static str>,
    /// What it sets, with the key for `{key}`.
    pub effect: &'static str,
    /// How it spells the key's values. `None`: the parameter sets more than this key, see `environment`.
    pub spelling: Option<ScrSpelling>,
    /// In a list: it sets the key of each element, not of the first only.
    pub of_each: bool,
}

/// The declaration of the parameter of this name, with the values and the default of its key.
pub const fn scr(name: &'static str) -> Parameter {
    let (source, effect) = (AllowedSource::Any, "key {key}");
    Parameter { name, source, value: None, default: None, effect, spelling: None, of_each: true }
}

impl From<&'static str> for Parameter {
    fn from(name: &'static str) -> Self {
        scr(name)
    }
}

impl Parameter {
    pub fn only_from(self, source: AllowedSource) -> Self {
        Parameter { source, ..self }
    }

    pub fn value(self, value: ParameterValue) -> Self {
        Parameter { value: Some(value), ..self }
    }

    pub fn default(self, default: &'static str) -> Self {
        Parameter { default: Some(default), ..self }
    }

    pub fn effect(self, effect: &'static str) -> Self {
        Parameter { effect, ..self }
    }

    /// In a list, it sets the key of the first element only.
    pub fn of_first(self) -> Self {
        Parameter { of_each: false, ..self }
    }

    /// It spells values in another way than others of the key's kind.
    pub fn spelled(self, spelling: ScrSpelling) -> Self {
        Parameter { spelling: Some(spelling), ..self }
    }
}

/// The SCR parameter of one key.
pub struct ParameterKey {
    pub parameter: Parameter,
    /// The path of the key.
    pub path: String,
    /// The default of the key.
    pub default: Option<String>,
}

/// The parameters that set one of these keys.
pub fn parameters(keys: &[Declared]) -> Vec<ParameterKey> {
    let mut found = Vec::new();
    collect(keys, "", &mut found);
    found
}

fn collect(keys: &[Declared], path: &str, found: &mut Vec<ParameterKey>) {
    for key in keys {
        match &key.shape {
            Shape::Value { parameter: Some(parameter), default, .. } => {
                let path = if parameter.of_each { path.to_owned() } else { path.replace("[*]", "[0]") };
                let path = format!("{path}{}", key.name);
                found.push(ParameterKey { parameter: *parameter, path, default: default.clone() });
            }
            Shape::Section { keys: below, .. } => collect(below, &format!("{path}{}.", key.name), found),
            Shape::Keys(beside) => collect(beside, path, found),
            Shape::Elements(below) => collect(below, &format!("{path}{}[*].", key.name), found),
            Shape::Value { .. } | Shape::List(_) | Shape::RequeueByManager | Shape::OfManagers => {}
        }
    }
}

/// The key of a field whose name may be a keyword of Rust.
pub fn written(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// Declares the keys of a section: see the module's documentation.
#[macro_export]
macro_rules! keys {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            $($(#[doc = $documentation:literal])+ $key:ident: $type:ty = $form:expr,)+
        }
        $(checked by $check:path;)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $visibility struct $name {
            $($(#[doc = $documentation])+ pub $key: $type,)+
        }

        $crate::keys! {
            $name => $name;
            $($(#[doc = $documentation])+ $key = $form,)+
            |section| {
                let built = $name { $($key),+ };
                $($check(&built, section);)?
                let _ = section;
                built
            }
        }
    };
    (
        $name:ty => $built:ty;
        $($(#[doc = $documentation:literal])+ $key:ident = $form:expr,)+
        |$section:ident| $build:block
    ) => {
        impl $crate::spec::keys::Keys for $name {
            type Built = $built;

            fn read_keys(reading: &mut $crate::spec::keys::Section<'_>) -> $built {
                $(let $key = ($form).read(reading, $crate::spec::keys::written(stringify!($key)));)+
                let $section = &*reading;
                $build
            }

            fn declared() -> Vec<$crate::spec::keys::Declared> {
                vec![$($crate::spec::keys::Declared {
                    name: $crate::spec::keys::written(stringify!($key)),
                    documentation: concat!($($documentation, "\n"),+),
                    shape: ($form).shape(),
                }),+]
            }
        }
    };
}
pub use crate::keys;

/// A key: how it is read, and how it is described.
pub struct KeyOf<T> {
    read: Box<ReadKey<T>>,
    shape: Box<dyn Fn(Option<Parameter>) -> Shape>,
    /// How SCR's parameters spell its values.
    spelling: Option<ScrSpelling>,
    parameter: Option<Parameter>,
}

type ReadKey<T> = dyn Fn(&mut Section<'_>, &'static str) -> T;

impl<T> KeyOf<T> {
    pub fn new(
        read: impl Fn(&mut Section<'_>, &'static str) -> T + 'static,
        shape: impl Fn() -> Shape + 'static,
    ) -> Self {
        KeyOf { read: Box::new(read), shape: Box::new(move |_| shape()), spelling: None, parameter: None }
    }

    /// One whose value is shown as this text by default.
    fn value(form: Form, default: Option<&str>, read: impl Fn(&mut Section<'_>, &'static str) -> T + 'static) -> Self {
        let default = default.map(str::to_owned);
        let shape = move |parameter| Shape::Value { default: default.clone(), parameter, form: form.clone() };
        KeyOf { read: Box::new(read), shape: Box::new(shape), spelling: None, parameter: None }
    }

    /// The SCR parameter of the same meaning.
    pub fn scr(self, parameter: impl Into<Parameter>) -> Self {
        let parameter = parameter.into();
        let value = parameter.value.or(self.spelling.map(|own| own.value));
        let spelling = parameter.spelling.or(self.spelling);
        self.see_scr(Parameter { value, spelling, ..parameter })
    }

    /// An SCR parameter that sets this key and others.
    pub fn see_scr(self, parameter: Parameter) -> Self {
        KeyOf { parameter: Some(parameter), ..self }
    }

    pub fn read(&self, section: &mut Section<'_>, name: &'static str) -> T {
        (self.read)(section, name)
    }

    pub fn shape(&self) -> Shape {
        (self.shape)(self.parameter)
    }
}

impl<T: Clone + 'static> ValueKind<T> {
    fn form(&self) -> Form {
        Form::Single(self.accepted.clone())
    }

    /// Sets the default.
    pub fn or(self, default: T) -> KeyOf<T> {
        let (shown, spelling, form) = ((self.show)(&default), Some(self.scr), self.form());
        let read = move |section: &mut Section<'_>, name| {
            section.single(name, &self, Some(&default)).unwrap_or_else(|| default.clone())
        };
        KeyOf { spelling, ..KeyOf::value(form, Some(&shown), read) }
    }

    /// The key has no default and may be left out.
    pub fn optional(self) -> KeyOf<Option<T>> {
        let (spelling, form) = (Some(self.scr), self.form());
        KeyOf { spelling, ..KeyOf::value(form, None, move |section, name| section.single(name, &self, None)) }
    }

    /// As [`optional`](Self::optional), with a table of SCR's configuration files whose lines set the key for the
    /// directory in `base`, which is declared before.
    pub fn scr_of_directory(self, table: &'static str) -> KeyOf<Option<T>> {
        let parameter = scr(table).only_from(AllowedSource::Files).value(ParameterValue::Text);
        let form = self.form();
        KeyOf::value(form, None, move |section, name| section.single_of_directory(name, table, &self))
            .see_scr(parameter.effect("BYTES: key {key}"))
    }

    /// The default is the value of `other`: a key of the parent section, declared earlier.
    pub fn same_as(self, other: &'static str) -> KeyOf<Option<T>> {
        KeyOf::value(self.form(), None, move |section, name| {
            let default = section.value_around(other).and_then(|text| (self.read)(&text).ok());
            section.single(name, &self, default.as_ref())
        })
    }
}

/// The name of a registered entry, or `auto` (`None`).
pub fn entry(kind: EntryKind) -> KeyOf<Option<&'static str>> {
    KeyOf::value(Form::Entry(kind), Some("auto"), move |section, name| {
        let kind = entry_name(kind, &section.reader().registered);
        section.single(name, &kind, Some(&None)).flatten()
    })
}

/// The name of a checkpoint source.
pub fn source() -> KeyOf<&'static str> {
    const DEFAULT: &str = "scr";
    KeyOf::value(Form::Entry(EntryKind::Source), Some(DEFAULT), |section, name| {
        let kind = source_name(&section.reader().registered);
        section.single(name, &kind, Some(&DEFAULT)).unwrap_or(DEFAULT)
    })
}

/// A switch for each manager that can run a job again: each is a key. The value is the name of the first one that is
/// on.
pub fn requeue_by_manager() -> KeyOf<Option<&'static str>> {
    let read = |section: &mut Section<'_>, _: &'static str| {
        let managers: Vec<_> = section.reader().registered.requeuing().map(|facts| facts.name).collect();
        // All of them, so that each is known.
        let on: Vec<_> =
            managers.into_iter().filter(|name| section.single(name, &switch(), Some(&false)) == Some(true)).collect();
        on.first().copied()
    };
    KeyOf::new(read, || Shape::RequeueByManager)
}

/// The keys that the managers declare in their folders: those of each manager.
pub fn of_managers() -> KeyOf<Vec<Arc<dyn ManagerSettings>>> {
    KeyOf::new(
        |section, _| section.reader().manager_keys.iter().map(|read| read(section)).collect(),
        || Shape::OfManagers,
    )
}

/// An optional list of strings, such as a command.
pub fn words() -> KeyOf<Option<Vec<String>>> {
    KeyOf::value(Form::Words, None, |section, name| section.words(name))
}

/// The same for a required key without default, with the value in the reference.
pub fn words_such_as(example: &'static str) -> KeyOf<Option<Vec<String>>> {
    KeyOf::value(Form::Words, Some(example), |section, name| section.words(name))
}

/// An optional list of keywords, at least one; one that is written twice counts once.
pub fn choices<T: Choice>() -> KeyOf<Option<Vec<T>>> {
    let keywords = T::AVAILABLE.iter().map(|(keyword, _)| *keyword).collect();
    KeyOf::value(Form::Choices(keywords), None, |section, name| {
        let kind = choice::<T>();
        let words = section.words(name)?;
        if words.is_empty() {
            section.mistake(name, "the list is empty", format!("write {}, or leave it out", kind.expected));
        }
        let mut chosen = Vec::new();
        for (at, word) in words.iter().enumerate() {
            match (kind.read)(word) {
                Ok(value) if chosen.contains(&value) => {}
                Ok(value) => chosen.push(value),
                Err(described) => {
                    let message = || format!("expected {}, found `{}`", kind.expected, word.escape_debug());
                    let (message, help) = described.unwrap_or_else(|| (message(), "remove it".to_owned()));
                    section.mistake(&format!("{name}[{at}]"), message, help);
                }
            }
        }
        Some(chosen)
    })
}

/// A map of names to text, such as environment variables.
pub fn names() -> KeyOf<BTreeMap<String, String>> {
    KeyOf::value(Form::Names, Some("{}"), |section, name| section.names(name))
}

fn section_shape<S: Keys>() -> Shape {
    Shape::Section { keys: S::declared(), is_described: false }
}

/// A subsection; its keys have their defaults if it is not written.
pub fn section<S: Keys + 'static>() -> KeyOf<S::Built> {
    KeyOf::new(|section, name| S::read(section.section(name)), section_shape::<S>)
}

/// A subsection in an element of a list: the reference describes the keys elsewhere.
pub fn section_as_above<S: Keys + 'static>() -> KeyOf<S::Built> {
    KeyOf::new(
        |section, name| S::read(section.section(name)),
        || Shape::Section { keys: S::declared(), is_described: true },
    )
}

/// A subsection that is left out if the key `other` is written.
pub fn section_unless<S: Keys + 'static>(other: &'static str) -> KeyOf<Option<S::Built>> {
    let read = move |section: &mut Section<'_>, name: &'static str| {
        if !section.has(other) {
            return Some(S::read(section.section(name)));
        }
        section.skip(name);
        if section.has(name) {
            let message = format!("`{other}` and a top-level `{name}` exclude each other");
            let help = format!("move `{name}:` into the {other}, or remove `{other}:`");
            section.mistake(name, message, help);
        }
        None
    };
    KeyOf::new(read, section_shape::<S>)
}

/// An optional list of sections; `None` if the key is not written.
pub fn optional_list<S: Keys + 'static>() -> KeyOf<Option<Vec<S::Built>>> {
    KeyOf::new(
        |section, name| Some(section.sections(name)?.into_iter().map(S::read).collect()),
        || Shape::List(S::declared()),
    )
}

/// The same; empty if the key is not written.
pub fn list<S: Keys + 'static>() -> KeyOf<Vec<S::Built>> {
    let optional = optional_list::<S>();
    KeyOf::new(move |section, name| optional.read(section, name).unwrap_or_default(), || Shape::List(S::declared()))
}

/// A list of sections with at least one element; the default is one.
pub fn elements<S: Keys + 'static>() -> KeyOf<Vec<S::Built>> {
    KeyOf::new(
        |section, name| section.elements(name).into_iter().map(S::read).collect(),
        || Shape::Elements(S::declared()),
    )
}
