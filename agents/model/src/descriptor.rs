//! Redundancy descriptors: where a dataset is cached, how often, and what protects it (SCR manual §7).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of a redundancy scheme in SCR's files and parameters: `LOCAL`, `PARTNER`, `XOR`.
///
/// Only a name: the schemes themselves are registered in the core crate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scheme([u8; Scheme::LONGEST]);

/// A text that cannot be the name of a redundancy scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a scheme name: 1 to {max} letters, digits or `_`", max = Scheme::LONGEST)]
pub struct SchemeNameError(String);

impl Scheme {
    pub const LONGEST: usize = 16;

    /// The scheme of this name, upper case; for constants.
    ///
    /// # Panics
    /// At compile time, if used for a constant with a name that is empty, too long or not upper case.
    #[must_use]
    pub const fn new(name: &'static str) -> Scheme {
        match Scheme::checked(name.as_bytes()) {
            Some(scheme) => scheme,
            // A constant that cannot be right does not compile.
            #[allow(clippy::panic)]
            None => panic!("not a scheme name"),
        }
    }

    const fn checked(name: &[u8]) -> Option<Scheme> {
        if name.is_empty() || name.len() > Scheme::LONGEST {
            return None;
        }
        let mut bytes = [0; Scheme::LONGEST];
        let mut at = 0;
        while at < name.len() {
            if !(name[at].is_ascii_uppercase() || name[at].is_ascii_digit() || name[at] == b'_') {
                return None;
            }
            bytes[at] = name[at];
            at += 1;
        }
        Some(Scheme(bytes))
    }

    pub fn as_str(&self) -> &str {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(Scheme::LONGEST);
        std::str::from_utf8(&self.0[..length]).unwrap_or_default()
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scheme {
    type Err = SchemeNameError;

    /// Any case is accepted, as in SCR's parameters.
    fn from_str(text: &str) -> Result<Self, SchemeNameError> {
        Scheme::checked(text.to_ascii_uppercase().as_bytes()).ok_or_else(|| SchemeNameError(text.to_owned()))
    }
}

impl Serialize for Scheme {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Scheme {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
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
    /// Distance between neighbours in the list of nodes.
    pub hop_distance: u32,
    /// Largest number of members of a group.
    pub set_size: u32,
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
    }
}
