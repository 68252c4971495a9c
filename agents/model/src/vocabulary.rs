//! Declarations of events: the enum, and what the documentation and the readers of a log need to know of it.

/// A declared event: its variant's name, its meaning, and its fields with their meanings.
#[derive(Debug)]
pub struct DeclaredEvent {
    pub variant: &'static str,
    pub meaning: &'static str,
    /// Names and meanings; an empty meaning where the name is enough.
    pub fields: &'static [(&'static str, &'static str)],
    /// Their types, in the same order.
    pub types: &'static [DeclaredType],
}

/// The type of a field.
#[derive(Debug)]
pub struct DeclaredType {
    /// As Rust writes it.
    pub name: &'static str,
    /// `default`: absent in logs of earlier versions; `flatten`: its own fields stand in the line; or empty.
    pub attribute: &'static str,
}

impl DeclaredEvent {
    /// The event's name in the log: the variant in snake case.
    pub fn name(&self) -> String {
        self.characters().collect()
    }

    /// True if this is its name in the log.
    pub fn is_named(&self, name: &str) -> bool {
        self.characters().eq(name.chars())
    }

    fn characters(&self) -> impl Iterator<Item = char> {
        self.variant.char_indices().flat_map(|(at, character)| {
            let separator = (at > 0 && character.is_ascii_uppercase()).then_some('_');
            separator.into_iter().chain([character.to_ascii_lowercase()])
        })
    }
}

/// Declares an enum of events, tagged by `event`, and the list of its events. The doc comment of an event or a field is
/// its text in the documentation; a field whose name is enough has none. A variant after `;` is not in the list.
#[macro_export]
macro_rules! vocabulary {
    (
        $(#[$of_enum:meta])*
        pub enum $name:ident, $declared:ident;
        $(
            $(#[doc = $meaning:literal])+
            $event:ident $({ $(
                $(#[doc = $field_meaning:literal])*
                $(#[serde($attribute:ident)])?
                $field:ident: $type:ty,
            )+ })?,
        )+
        $(; $(#[$of_other:meta])* $other:ident($of:ty))?
    ) => {
        $(#[$of_enum])*
        #[derive(Clone, Debug, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(tag = "event", rename_all = "snake_case")]
        pub enum $name {
            $(
                $(#[doc = $meaning])+
                $event $({ $($(#[doc = $field_meaning])* $(#[serde($attribute)])? $field: $type,)+ })?,
            )+
            $($(#[$of_other])* $other($of),)?
        }

        /// The declared events in their order.
        pub const $declared: &[$crate::vocabulary::DeclaredEvent] = &[$($crate::vocabulary::DeclaredEvent {
            variant: stringify!($event),
            meaning: concat!($($meaning),+),
            fields: &[$($((stringify!($field), concat!($($field_meaning),*))),+)?],
            types: &[$($($crate::vocabulary::DeclaredType {
                name: stringify!($type),
                attribute: concat!($(stringify!($attribute))?),
            }),+)?],
        }),+];
    };
}
