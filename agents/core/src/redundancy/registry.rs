//! The redundancy schemes that there are, each in one line, and what is asked of all of them.

use std::fmt::Write as _;
use std::sync::OnceLock;

use holdfast_model::{Level, Scheme};

use super::files::SetFile;
use super::groups::{GroupRules, GroupRulesError, Groups, Site};
use super::local::{self, Local};
use super::numbers::{NumberError, OF_EVERY_DESCRIPTOR, SchemeNumber};
use super::partner::Partner;
use super::rs::Rs;
use super::scheme::RedundancyScheme;
use super::xor::{self, Xor};

/// All schemes, weakest first. A new one is added here.
static SCHEMES: &[&dyn RedundancyScheme] = &[
    &Local,
    &Partner,
    &Xor,
    &Rs,
    #[cfg(test)]
    &super::mirror::Mirror,
];

/// Schemes that a program brings along.
static ADDED: OnceLock<&'static [&'static dyn RedundancyScheme]> = OnceLock::new();

pub const DEFAULT: Scheme = xor::NAME;

/// Adds schemes to those of this crate, once in a process and before any is used. False if that was done before.
pub fn add(schemes: &'static [&'static dyn RedundancyScheme]) -> bool {
    ADDED.set(schemes).is_ok()
}

pub fn all() -> impl DoubleEndedIterator<Item = &'static dyn RedundancyScheme> {
    SCHEMES.iter().chain(ADDED.get().copied().unwrap_or_default()).copied()
}

pub fn get(scheme: Scheme) -> Option<&'static dyn RedundancyScheme> {
    all().find(|known| known.name() == scheme)
}

/// The name that a text means, in any case; `None` if no such scheme is registered.
pub fn named(text: &str) -> Option<Scheme> {
    text.parse().ok().filter(|scheme| get(*scheme).is_some())
}

/// The names of all schemes, for messages: `LOCAL, PARTNER and XOR`.
pub fn names() -> String {
    let mut text = String::new();
    let last = all().count() - 1;
    for (at, scheme) in all().enumerate() {
        let separator = match at {
            0 => "",
            at if at == last => " and ",
            _ => ", ",
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{}", scheme.name());
    }
    text
}

/// The scheme that protects checkpoints of this level in the caches, unless another one that serves it is requested.
pub fn of_level(level: Level) -> Scheme {
    all().find(|scheme| scheme.levels().contains(&level)).map_or(DEFAULT, RedundancyScheme::name)
}

/// True if a scheme can protect checkpoints of this level in the caches.
pub fn serves(scheme: Scheme, level: Level) -> bool {
    get(scheme).is_some_and(|known| known.levels().contains(&level))
}

/// The numbers of all schemes, each once.
pub fn numbers() -> Vec<&'static SchemeNumber> {
    with_those_of_every_descriptor(all())
}

/// The numbers that a descriptor of this scheme has.
pub fn numbers_of(scheme: Scheme) -> Vec<&'static SchemeNumber> {
    with_those_of_every_descriptor(get(scheme))
}

fn with_those_of_every_descriptor(
    schemes: impl IntoIterator<Item = &'static dyn RedundancyScheme>,
) -> Vec<&'static SchemeNumber> {
    let mut numbers = OF_EVERY_DESCRIPTOR.to_vec();
    for number in schemes.into_iter().flat_map(RedundancyScheme::numbers).copied() {
        if numbers.iter().all(|known| known.name != number.name) {
            numbers.push(number);
        }
    }
    numbers
}

/// Checks the numbers of a descriptor.
///
/// # Errors
/// A number that is out of its range, or with which the scheme cannot form groups.
pub fn check(rules: GroupRules<'_>) -> Result<(), NumberError> {
    for number in numbers_of(rules.scheme) {
        let value = number.of(rules.numbers);
        if !number.range.contains(&value) {
            return Err(NumberError {
                scheme: rules.scheme,
                number,
                value,
                why: format!("{} is not from {} to {}", number.title, number.range.start(), number.range.end()),
                expected: "a number in the range of its key",
                help: "see `holdfast check --reference`",
            });
        }
    }
    get(rules.scheme).map_or(Ok(()), |scheme| scheme.check(rules))
}

/// True if a checkpoint of this scheme is lost with a node. A name that is not registered counts as a scheme that
/// survives.
pub fn is_unprotected(scheme: Scheme) -> bool {
    get(scheme).is_some_and(|known| !known.protects())
}

/// The set and member of a redundancy file; `None` for a file of the application.
pub fn redundancy_file(name: &str) -> Option<SetFile> {
    all().find_map(|scheme| scheme.parse_file_name(name))
}

/// True for the name of a redundancy file; all other files of a rank are the application's.
pub fn is_redundancy_file(name: &str) -> bool {
    redundancy_file(name).is_some()
}

/// Forms the groups of a run; `sites[r]` is where rank `r` runs. Where the placement does not allow the requested
/// scheme, each rank is alone, and [`Groups::forced_local`] is the reason.
///
/// # Errors
/// If no groups can be formed by the rules.
pub fn form(sites: &[Site], rules: GroupRules<'_>) -> Result<Groups, GroupRulesError> {
    if sites.is_empty() {
        return Err(GroupRulesError::NoRanks);
    }
    let unknown = || GroupRulesError::UnknownScheme { asked: rules.scheme, known: names() };
    let scheme = get(rules.scheme).ok_or_else(unknown)?;
    check(rules)?;
    Ok(scheme.form(sites, rules).unwrap_or_else(|forced| {
        let mut groups = Groups::alone(local::NAME, sites.len());
        groups.forced_local = Some(forced);
        groups
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_is_found_by_its_own_name_and_by_no_other() {
        for scheme in all() {
            assert_eq!(get(scheme.name()).map(RedundancyScheme::name), Some(scheme.name()));
            assert_eq!(named(&scheme.name().as_str().to_lowercase()), Some(scheme.name()));
            assert_eq!(all().filter(|other| other.name() == scheme.name()).count(), 1);
        }
        assert_eq!(named("FILE"), None);
        assert!(names().starts_with("LOCAL, PARTNER"), "{}", names());
        assert_eq!(
            all().filter(|scheme| !scheme.protects()).map(RedundancyScheme::name).collect::<Vec<_>>(),
            [local::NAME]
        );
    }

    #[test]
    fn levels_are_protected_as_in_fti_with_xor_for_its_parity() {
        let schemes = Level::ALL.map(|level| of_level(level).to_string());
        assert_eq!(schemes, ["LOCAL", "PARTNER", "XOR", "LOCAL"]);
        assert!(serves(super::super::rs::NAME, Level::Parity) && !serves(super::super::rs::NAME, Level::Partner));
    }

    #[test]
    fn files_of_the_application_are_not_taken_for_redundancy_files() {
        for name in ["rank_0.ckpt", "1_of_4_in_0.xor.scr", "0.scrfilemap", ""] {
            assert!(!is_redundancy_file(name), "{name}");
        }
        assert!(is_redundancy_file("1_of_4_in_0.xor"));
    }
}
