//! Keys for which this version has a single value: they are not in the reference. A spec that has one with that value
//! is read, with a note; any other value is refused.

/// A key with a single value.
pub(super) struct WithoutChoice {
    /// The path of its section, without indices.
    section: &'static str,
    key: &'static str,
    pub(super) value: &'static str,
    /// What is always the case.
    pub(super) always: &'static str,
}

static KEYS: [WithoutChoice; 1] = [WithoutChoice {
    section: "checkpoint.redundancy",
    key: "failure_domain",
    value: "node",
    always: "no set has two members on one node; `allocation.racks` sets larger failure domains",
}];

/// The key of this name in the section with this path.
pub(super) fn find(section: &str, key: &str) -> Option<&'static WithoutChoice> {
    let mut path = section;
    if let Some((_, inside)) = section.strip_prefix("steps[").and_then(|rest| rest.split_once("].")) {
        path = inside;
    }
    let path = path.split_once('[').map_or(path, |(list, _)| list);
    KEYS.iter().find(|known| known.section == path && known.key == key)
}
