//! Redundancy descriptors: where a dataset is cached, how often, and what protects it (SCR manual §7).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that cannot be such a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind}: 1 to {LONGEST_NAME} letters, digits or `_`")]
pub struct NameError {
    /// What the text should be the name of: "a scheme name".
    kind: &'static str,
    text: String,
}

/// Bytes of the longest name of a scheme, or of a number of one.
const LONGEST_NAME: usize = 16;

/// The bytes of a valid name, with zeros behind it.
const fn name_bytes(name: &[u8]) -> Option<[u8; LONGEST_NAME]> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return None;
    }
    let mut bytes = [0; LONGEST_NAME];
    let mut at = 0;
    while at < name.len() {
        if !(name[at].is_ascii_uppercase() || name[at].is_ascii_digit() || name[at] == b'_') {
            return None;
        }
        bytes[at] = name[at];
        at += 1;
    }
    Some(bytes)
}

macro_rules! name_in_files {
    ($(#[$meta:meta])* $name:ident, $kind:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; LONGEST_NAME]);

        impl $name {
            /// The name for a constant, upper case.
            ///
            /// # Panics
            /// At compile time, if used for a constant with a name that is empty, too long or not upper case.
            #[must_use]
            pub const fn new(name: &'static str) -> Self {
                match name_bytes(name.as_bytes()) {
                    Some(bytes) => $name(bytes),
                    // A constant that cannot be right does not compile.
                    #[allow(clippy::panic)]
                    None => panic!("not a valid name"),
                }
            }

            pub fn as_str(&self) -> &str {
                let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(LONGEST_NAME);
                std::str::from_utf8(&self.0[..length]).unwrap_or_default()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            /// Any case is accepted, as in SCR's parameters.
            fn from_str(text: &str) -> Result<Self, NameError> {
                let bytes = name_bytes(text.to_ascii_uppercase().as_bytes());
                bytes.map($name).ok_or_else(|| NameError { kind: $kind, text: text.to_owned() })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

name_in_files! {
    /// The name of a redundancy scheme in SCR's files and parameters: `LOCAL`, `PARTNER`, `XOR`.
    ///
    /// Only a name: the schemes themselves are registered in the core crate.
    Scheme, "a scheme name"
}

name_in_files! {
    /// The name of a number of a scheme in SCR's files: `SET_SIZE`.
    ///
    /// Only a name: a scheme declares its numbers in the core crate.
    NumberName, "the name of a scheme's number"
}

/// The numbers that a descriptor has for its scheme, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SchemeNumbers(Vec<(NumberName, u32)>);

impl SchemeNumbers {
    /// `None` if the descriptor has none of this name: the scheme's default applies.
    pub fn get(&self, name: NumberName) -> Option<u32> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

impl FromIterator<(NumberName, u32)> for SchemeNumbers {
    /// Of a repeated name the first number counts.
    fn from_iter<I: IntoIterator<Item = (NumberName, u32)>>(numbers: I) -> Self {
        SchemeNumbers(numbers.into_iter().collect())
    }
}

/// A redundancy descriptor as requested by the spec or SCR's parameters (`CKPTDESC`), before groups are formed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number, from 0; also in the directory name `index.N`.
    pub index: u32,
    /// A disabled descriptor keeps its number and is never selected.
    pub enabled: bool,
    /// Used for dataset ids that this divides; of several descriptors the one with the largest interval is used.
    pub interval: u64,
    /// Base directory of the cache, as the node sees it.
    pub base: String,
    pub scheme: Scheme,
    /// The scheme's numbers.
    pub numbers: SchemeNumbers,
}

impl Descriptor {
    /// Enabled, for every checkpoint, with the scheme's default numbers.
    pub fn new(index: u32, scheme: Scheme, base: impl Into<String>) -> Descriptor {
        let numbers = SchemeNumbers::default();
        Descriptor { index, enabled: true, interval: 1, base: base.into(), scheme, numbers }
    }
}

/// A redundancy descriptor as one rank stores it in its file map: the request, the directory and the rank's group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankDescriptor {
    pub descriptor: Descriptor,
    /// Directory of the datasets of this descriptor, as the node sees it.
    pub directory: String,
    /// Number of groups of the run.
    pub groups: u32,
    /// World rank of the group's first member.
    pub group_id: u32,
    /// Number of members of the rank's group.
    pub group_size: u32,
    /// The rank's index in its group, from 0.
    pub group_rank: u32,
}

impl RankDescriptor {
    /// Of a rank that is in no group yet.
    pub fn unplaced(descriptor: Descriptor, directory: impl Into<String>) -> RankDescriptor {
        let directory = directory.into();
        RankDescriptor { descriptor, directory, groups: 0, group_id: 0, group_size: 0, group_rank: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_named_in_upper_case() {
        const XOR: Scheme = Scheme::new("XOR");
        assert_eq!("xor".parse(), Ok(XOR));
        assert_eq!(XOR.to_string(), "XOR");
        assert_eq!(serde_json::to_string(&XOR).unwrap(), "\"XOR\"");
        assert_eq!(serde_json::from_str::<Scheme>("\"XOR\"").unwrap(), XOR);
        assert_eq!("SIXTEEN_LETTERS_".parse::<Scheme>().unwrap().as_str(), "SIXTEEN_LETTERS_");
    }

    #[test]
    fn refuses_invalid_scheme_names() {
        for text in ["", "A B", "SEVENTEEN_LETTERS", "XÖR"] {
            assert!(text.parse::<Scheme>().is_err(), "{text}");
        }
        assert!("a-b".parse::<NumberName>().unwrap_err().to_string().contains("the name of a scheme's number"));
    }
}
