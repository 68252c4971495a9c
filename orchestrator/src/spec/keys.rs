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

use super::reading::Section;
use super::registered::RegistryEntry;
use super::value_kinds::{ValueKind, entry_name};

/// The keys of one section.
pub(super) trait Keys {
    /// The type that the section is read into.
    type Built;

    /// Reads the section; mistakes are added to its reader.
    fn read(section: Section<'_>) -> Self::Built;

    /// The keys in the order of their declaration.
    fn declared() -> Vec<Declared>;
}

/// A key as the reference describes it.
pub(super) struct Declared {
    pub(super) name: &'static str,
    /// The lines of its doc comment.
    pub(super) documentation: &'static str,
    pub(super) shape: Shape,
}

/// The shape of a key's value.
pub(super) enum Shape {
    /// A single value or a list of strings; no default means that it is not set.
    Value { default: Option<String>, parameter: Option<Parameter> },
    Section {
        keys: Vec<Declared>,
        /// In an element of a list: the reference describes the keys elsewhere.
        is_described: bool,
    },
    /// A list of sections whose default is one element with defaults.
    Elements(Vec<Declared>),
    /// A list of sections whose default is empty.
    List(Vec<Declared>),
}

/// The SCR_* parameter of a key.
#[derive(Clone, Copy)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// Converts its value to the text of the key. `None`: the parameter sets more than this key, see `environment`.
    pub(super) text: Option<fn(&str) -> String>,
    /// In a list: it sets the key of each element, not of the first only.
    pub(super) of_each: bool,
}

/// How a key is read and described.
pub(super) trait Key {
    type Value;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> Self::Value;

    fn shape(&self) -> Shape;
}

/// The key of a field whose name may be a keyword of Rust.
pub(super) fn written(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// Declares the keys of a section: see the module's documentation.
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

        keys! {
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

            fn read(mut reading: $crate::spec::reading::Section<'_>) -> $built {
                use $crate::spec::keys::Key as _;
                $(let $key = ($form).read(&mut reading, $crate::spec::keys::written(stringify!($key)));)+
                reading.finish();
                let $section = &reading;
                $build
            }

            fn declared() -> Vec<$crate::spec::keys::Declared> {
                use $crate::spec::keys::Key as _;
                vec![$($crate::spec::keys::Declared {
                    name: $crate::spec::keys::written(stringify!($key)),
                    documentation: concat!($($documentation, "\n"),+),
                    shape: ($form).shape(),
                }),+]
            }
        }
    };
}
pub(super) use keys;

/// A single value with a default.
pub(super) struct Single<T> {
    kind: ValueKind<T>,
    default: T,
    parameter: Option<Parameter>,
}

/// An optional single value.
pub(super) struct Optional<T> {
    kind: ValueKind<T>,
    parameter: Option<Parameter>,
}

impl<T> ValueKind<T> {
    /// Sets the default.
    pub(super) fn or(self, default: T) -> Single<T> {
        Single { kind: self, default, parameter: None }
    }

    /// The key has no default and may be left out.
    pub(super) fn optional(self) -> Optional<T> {
        Optional { kind: self, parameter: None }
    }
}

impl<T> Single<T> {
    /// The SCR parameter of the same meaning.
    pub(super) fn scr(self, name: &'static str) -> Self {
        let parameter = Some(Parameter { name, text: Some(self.kind.from_scr), of_each: true });
        Single { parameter, ..self }
    }

    /// As [`Single::scr`]; in a list, the parameter sets the key of the first element only.
    pub(super) fn scr_of_first(self, name: &'static str) -> Self {
        let parameter = Some(Parameter { name, text: Some(self.kind.from_scr), of_each: false });
        Single { parameter, ..self }
    }

    /// The SCR parameter of the same meaning, with a conversion of its values to those of the spec.
    pub(super) fn scr_as(self, name: &'static str, text: fn(&str) -> String) -> Self {
        Single { parameter: Some(Parameter { name, text: Some(text), of_each: true }), ..self }
    }

    /// An SCR parameter that sets this key and others.
    pub(super) fn see_scr(self, name: &'static str) -> Self {
        Single { parameter: Some(Parameter { name, text: None, of_each: true }), ..self }
    }
}

impl<T> Optional<T> {
    /// The SCR parameter of the same meaning.
    pub(super) fn scr(self, name: &'static str) -> Self {
        let parameter = Some(Parameter { name, text: Some(self.kind.from_scr), of_each: true });
        Optional { parameter, ..self }
    }

    /// A table of SCR's configuration files whose lines set the key for the directory in `base`, which is declared
    /// before.
    pub(super) fn scr_of_directory(self, table: &'static str) -> OfDirectory<T> {
        OfDirectory { kind: self.kind, table }
    }
}

impl<T: Clone> Key for Single<T> {
    type Value = T;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> T {
        section.single(name, &self.kind, Some(&self.default)).unwrap_or_else(|| self.default.clone())
    }

    fn shape(&self) -> Shape {
        Shape::Value { default: Some((self.kind.show)(&self.default)), parameter: self.parameter }
    }
}

impl<T: Clone> Key for Optional<T> {
    type Value = Option<T>;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> Option<T> {
        section.single(name, &self.kind, None)
    }

    fn shape(&self) -> Shape {
        Shape::Value { default: None, parameter: self.parameter }
    }
}

/// An optional single value that a table of SCR's configuration files can set for a directory.
pub(super) struct OfDirectory<T> {
    kind: ValueKind<T>,
    table: &'static str,
}

impl<T: Clone> Key for OfDirectory<T> {
    type Value = Option<T>;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> Option<T> {
        section.single_of_directory(name, self.table, &self.kind)
    }

    fn shape(&self) -> Shape {
        let parameter = Parameter { name: self.table, text: None, of_each: true };
        Shape::Value { default: None, parameter: Some(parameter) }
    }
}

/// A single value whose default is the value of another key.
pub(super) struct SameAs<T> {
    kind: ValueKind<T>,
    other: &'static str,
}

impl<T> ValueKind<T> {
    /// The default is the value of `other`: a key of the parent section, declared earlier.
    pub(super) fn same_as(self, other: &'static str) -> SameAs<T> {
        SameAs { kind: self, other }
    }
}

impl<T: Clone> Key for SameAs<T> {
    type Value = Option<T>;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> Option<T> {
        let default = section.value_around(self.other).and_then(|text| (self.kind.read)(&text).ok());
        section.single(name, &self.kind, default.as_ref())
    }

    fn shape(&self) -> Shape {
        Shape::Value { default: None, parameter: None }
    }
}

/// The name of a resource manager or launcher.
pub(super) struct Name<E>(std::marker::PhantomData<E>);

/// The name of a registered entry, or `auto`.
pub(super) fn entry<E: RegistryEntry>() -> Name<E> {
    Name(std::marker::PhantomData)
}

impl<E: RegistryEntry> Key for Name<E> {
    /// `None` for `auto`.
    type Value = Option<&'static str>;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> Self::Value {
        let kind = entry_name::<E>(section.reader().registered());
        section.single(name, &kind, Some(&None)).flatten()
    }

    fn shape(&self) -> Shape {
        Shape::Value { default: Some("auto".to_owned()), parameter: None }
    }
}

/// A list of strings, such as a command.
pub(super) struct Words {
    /// The value in the reference.
    example: Option<&'static str>,
}

/// An optional list of strings.
pub(super) fn words() -> Words {
    Words { example: None }
}

impl Words {
    /// Sets the value in the reference, for a required key without default.
    pub(super) fn example(self, example: &'static str) -> Self {
        Words { example: Some(example) }
    }
}

impl Key for Words {
    type Value = Option<Vec<String>>;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> Self::Value {
        section.words(name)
    }

    fn shape(&self) -> Shape {
        Shape::Value { default: self.example.map(str::to_owned), parameter: None }
    }
}

/// A map of names to text, such as environment variables.
pub(super) struct Names;

impl Key for Names {
    type Value = BTreeMap<String, String>;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> Self::Value {
        section.names(name)
    }

    fn shape(&self) -> Shape {
        Shape::Value { default: Some("{}".to_owned()), parameter: None }
    }
}

/// A subsection.
pub(super) struct Below<S> {
    section: std::marker::PhantomData<S>,
    is_described: bool,
}

/// A subsection; its keys have their defaults if it is not written.
pub(super) fn section<S: Keys>() -> Below<S> {
    Below { section: std::marker::PhantomData, is_described: false }
}

impl<S: Keys> Key for Below<S> {
    type Value = S::Built;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> S::Built {
        S::read(section.section(name))
    }

    fn shape(&self) -> Shape {
        Shape::Section { keys: S::declared(), is_described: self.is_described }
    }
}

/// A section that another key replaces.
pub(super) struct Unless<S> {
    other: &'static str,
    section: Below<S>,
}

impl<S> Below<S> {
    /// In an element of a list: the reference describes the keys elsewhere.
    pub(super) fn described_above(self) -> Self {
        Below { is_described: true, ..self }
    }

    /// The section is left out if the key `other` is written.
    pub(super) fn unless(self, other: &'static str) -> Unless<S> {
        Unless { other, section: self }
    }
}

impl<S: Keys> Key for Unless<S> {
    type Value = Option<S::Built>;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> Self::Value {
        if !section.has(self.other) {
            return Some(self.section.read(section, name));
        }
        section.skip(name);
        if section.has(name) {
            let message = format!("`{}` and a top-level `{name}` exclude each other", self.other);
            let help = format!("move `{name}:` into the {0}, or remove `{0}:`", self.other);
            section.mistake(name, message, help);
        }
        None
    }

    fn shape(&self) -> Shape {
        self.section.shape()
    }
}

/// A list of sections.
pub(super) struct List<S> {
    section: std::marker::PhantomData<S>,
}

/// An optional list of sections.
pub(super) fn list<S: Keys>() -> List<S> {
    List { section: std::marker::PhantomData }
}

impl<S: Keys> Key for List<S> {
    /// `None` if the key is not written.
    type Value = Option<Vec<S::Built>>;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> Self::Value {
        Some(section.sections(name)?.into_iter().map(S::read).collect())
    }

    fn shape(&self) -> Shape {
        Shape::List(S::declared())
    }
}

/// A list of sections whose default is one element.
pub(super) struct Elements<S> {
    section: std::marker::PhantomData<S>,
}

/// A list of sections with at least one element.
pub(super) fn elements<S: Keys>() -> Elements<S> {
    Elements { section: std::marker::PhantomData }
}

impl<S: Keys> Key for Elements<S> {
    type Value = Vec<S::Built>;

    fn read(&self, section: &mut Section<'_>, name: &'static str) -> Self::Value {
        section.elements(name).into_iter().map(S::read).collect()
    }

    fn shape(&self) -> Shape {
        Shape::Elements(S::declared())
    }
}
