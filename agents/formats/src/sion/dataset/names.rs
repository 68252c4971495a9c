//! The names of containers in the directory of a dataset.

use std::collections::BTreeMap;

use holdfast_core::control::meta;
use holdfast_core::store::{DatasetFiles, FoundFile};

const BEFORE: &str = "holdfast-";
const EXTENSION: &str = ".sion";

/// The name of the first physical file of a container.
pub(super) fn container_name(number: u32) -> String {
    format!("{BEFORE}{number}{EXTENSION}")
}

/// The physical files of the containers in a directory, by number of container, then by number of part.
pub(super) fn containers<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<u32, BTreeMap<u32, &'a str>> {
    let mut found: BTreeMap<u32, BTreeMap<u32, &str>> = BTreeMap::new();
    for name in names {
        if let Some((number, part)) = parse(name) {
            found.entry(number).or_default().insert(part, name);
        }
    }
    found
}

/// True for the name of a physical file of a container of a dataset.
pub fn is_container_name(name: &str) -> bool {
    parse(name).is_some()
}

/// True for a file with the name of a container that has a meta file: it is a plain file of a rank, which the
/// application named so. Containers have none.
pub(crate) fn is_rank_file(files: &dyn DatasetFiles, name: &str) -> bool {
    is_container_name(name) && matches!(files.examine(&meta_name(name), None), Ok(FoundFile::Regular(_)))
}

/// The name of the meta file of a file.
pub(super) fn meta_name(name: &str) -> String {
    format!("{name}{}", meta::EXTENSION)
}

/// The number of the container, and that of the part.
pub(super) fn parse(name: &str) -> Option<(u32, u32)> {
    let (number, rest) = name.strip_prefix(BEFORE)?.split_once(EXTENSION)?;
    let number: u32 = number.parse().ok().filter(|parsed: &u32| parsed.to_string() == number)?;
    match rest.strip_prefix('.') {
        None if rest.is_empty() => Some((number, 0)),
        Some(digits) if digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some((number, digits.parse().ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_and_their_parts_are_recognised_by_name() {
        assert_eq!(parse(&container_name(12)), Some((12, 0)));
        assert_eq!(parse("holdfast-3.sion.000017"), Some((3, 17)));
        for other in ["holdfast-3.sion.17", "holdfast-3.sion.scr", "holdfast-03.sion", "holdfast-.sion", "a.sion"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
