//! What a verification found.

use serde_json::{Value, json};

/// So many damages are listed; the rest of a file that is damaged all over is counted only.
pub const MAX_LISTED: usize = 1000;

/// One thing that is wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// A stable name of the kind, for programs: `checksum`, `chunk-hash`, `truncated`, …
    pub kind: &'static str,
    /// The place in the format's words: `block 0, variable 3, container 1`.
    pub place: String,
    /// Where in the file, if it is one place.
    pub offset: Option<u64>,
    /// What is wrong there.
    pub what: String,
}

impl Damage {
    /// A damage at a place that has no one offset.
    pub fn new(kind: &'static str, place: impl Into<String>, what: impl Into<String>) -> Damage {
        Damage { kind, place: place.into(), offset: None, what: what.into() }
    }

    /// The same at an offset of the file.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Damage {
        self.offset = Some(offset);
        self
    }

    /// As an object.
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
pub struct Verdict {
    /// What is wrong; at most [`MAX_LISTED`], in the order in which it was found.
    pub damages: Vec<Damage>,
    /// How many more were found than are listed.
    pub unlisted: u64,
    /// What a user may want to know and what is no damage.
    pub remarks: Vec<Damage>,
    /// Bytes that a hash or a rule of the format covered.
    pub checked_bytes: u64,
}

impl Verdict {
    /// True if nothing is wrong.
    pub fn is_intact(&self) -> bool {
        self.damages.is_empty()
    }

    /// Notes a damage.
    pub fn damage(&mut self, damage: Damage) {
        if self.damages.len() < MAX_LISTED {
            self.damages.push(damage);
        } else {
            self.unlisted = self.unlisted.saturating_add(1);
        }
    }

    /// Notes something that is no damage.
    pub fn remark(&mut self, remark: Damage) {
        if self.remarks.len() < MAX_LISTED {
            self.remarks.push(remark);
        }
    }

    /// True if a damage of this kind was found (and listed).
    pub fn has(&self, kind: &str) -> bool {
        self.damages.iter().any(|damage| damage.kind == kind)
    }

    /// As an object: `{"intact":…,"damages":[…],"unlisted":…,"remarks":[…],"checked_bytes":…}`.
    pub fn json(&self) -> Value {
        let list = |damages: &[Damage]| damages.iter().map(Damage::json).collect::<Vec<_>>();
        json!({
            "intact": self.is_intact(),
            "damages": list(&self.damages),
            "unlisted": self.unlisted,
            "remarks": list(&self.remarks),
            "checked_bytes": self.checked_bytes,
        })
    }
}
