//! The result of a verification.

use serde_json::{Map, Value, json};

/// At most this many damages are listed; further ones are only counted.
pub const MAX_LISTED: usize = 1000;

/// One damage in a file, or one note about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// A stable identifier for programs: `checksum`, `chunk-hash`, `truncated`, …
    pub kind: &'static str,
    /// The place in the format's terms: `block 0, variable 3, container 1`.
    pub place: String,
    /// The offset in the file in bytes, if the damage is at one offset.
    pub offset: Option<u64>,
    pub what: String,
}

impl Damage {
    /// A damage without an offset.
    pub fn new(kind: &'static str, place: impl Into<String>, what: impl Into<String>) -> Damage {
        Damage { kind, place: place.into(), offset: None, what: what.into() }
    }

    /// Sets the offset in the file.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Damage {
        self.offset = Some(offset);
        self
    }

    pub fn json(&self) -> Value {
        json!({ "kind": self.kind, "place": self.place, "offset": self.offset, "what": self.what })
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.offset {
            Some(offset) => write!(out, "{} (offset {offset}): {}", self.place, self.what),
            None => write!(out, "{}: {}", self.place, self.what),
        }
    }
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileCheck {
    /// The damages, at most [`MAX_LISTED`], in the order in which they were found.
    pub damages: Vec<Damage>,
    /// The number of damages that were found but are not listed.
    pub unlisted: u64,
    /// Findings of interest to users that are not damage.
    pub notes: Vec<Damage>,
    /// The number of bytes that a hash or a rule of the format covered.
    pub checked_bytes: u64,
    /// What another program checks and this verification does not: without damage, this part can still be refused.
    pub unchecked: Vec<&'static str>,
}

impl FileCheck {
    /// True if no damage was found.
    pub fn is_intact(&self) -> bool {
        self.damages.is_empty()
    }

    /// Adds a damage; from [`MAX_LISTED`] on it is only counted.
    pub fn damage(&mut self, damage: Damage) {
        if self.damages.len() < MAX_LISTED {
            self.damages.push(damage);
        } else {
            self.unlisted = self.unlisted.saturating_add(1);
        }
    }

    /// Adds a finding that is not damage.
    pub fn note(&mut self, note: Damage) {
        if self.notes.len() < MAX_LISTED {
            self.notes.push(note);
        }
    }

    /// True if a damage of this kind is listed.
    pub fn has(&self, kind: &str) -> bool {
        self.damages.iter().any(|damage| damage.kind == kind)
    }

    /// As a JSON object: `{"intact":…,"damages":[…],"unlisted":…,"notes":[…],"checked_bytes":…,
    /// "unchecked":[…]}`.
    pub fn json(&self) -> Map<String, Value> {
        let list = |damages: &[Damage]| Value::from_iter(damages.iter().map(Damage::json));
        Map::from_iter([
            ("intact".to_owned(), self.is_intact().into()),
            ("damages".to_owned(), list(&self.damages)),
            ("unlisted".to_owned(), self.unlisted.into()),
            ("notes".to_owned(), list(&self.notes)),
            ("checked_bytes".to_owned(), self.checked_bytes.into()),
            ("unchecked".to_owned(), self.unchecked.clone().into()),
        ])
    }
}
