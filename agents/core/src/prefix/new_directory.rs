//! The directory of a new dataset: which name it gets (`docs/scr-files.md` §2).

use chrono::{NaiveDateTime, TimeDelta};

use super::index;
use crate::store::base_name::check_base_name;
use crate::store::{DatasetStore, DirectoryName, NameParts, PrefixError, Result};
use holdfast_model::CheckpointId;

/// The length in bytes of the time in a name in SCR's form; years have four digits.
const STAMP_BYTES: usize = 19;
/// How far ahead of the wanted second a free name is looked for.
const SECONDS_TO_TRY: i64 = 3600;
/// The longest name of a directory without what makes it unique, in bytes.
const LONGEST_GIVEN_NAME: usize = 200;
/// How many numbers are tried to make a name unique.
const NUMBERS_TO_TRY: u32 = 1000;
/// What SCR has beside the directories of datasets.
const RESERVED_NAMES: [&str; 2] = ["scr.current", "index.scr"];

/// The name of the directory of a dataset that the application named: shortened, with `_` for slashes, colons and
/// control characters, and for leading dots, which would hide it.
fn directory_name(name: &str) -> String {
    let dots = name.len() - name.trim_start_matches('.').len();
    let mut short = String::new();
    for (at, character) in name.chars().enumerate() {
        let replaced = at < dots || character == '/' || character == ':' || character.is_control();
        let character = if replaced { '_' } else { character };
        if short.len() + character.len_utf8() > LONGEST_GIVEN_NAME {
            break;
        }
        short.push(character);
    }
    if short.is_empty() { "_".to_owned() } else { short }
}

/// The length in bytes of the longest name that a directory of this job can have.
pub fn longest_name_bytes(job: &str) -> usize {
    let id_digits = u64::MAX.to_string().len();
    let in_the_form_of_scr = "scr.".len() + STAMP_BYTES + ".".len() + job.len() + ".".len() + id_digits;
    in_the_form_of_scr.max(LONGEST_GIVEN_NAME + ".".len() + id_digits + ".".len() + NUMBERS_TO_TRY.to_string().len())
}

/// Makes a new, empty directory for a dataset: with the application's name for it, or in SCR's form if it has none.
/// Where the name is taken, the id is appended, then a number: nothing is ever copied into an old directory.
///
/// # Errors
/// [`PrefixError::JobId`], [`PrefixError::NoFreeName`], and those of the store.
pub fn create(
    store: &dyn DatasetStore,
    now: NaiveDateTime,
    job: &str,
    id: CheckpointId,
    name: Option<&str>,
) -> Result<DirectoryName> {
    let Some(name) = name else { return create_unnamed(store, now, job, id) };
    let name = directory_name(name);
    let with_id = format!("{name}.{id}");
    let numbered = (2..NUMBERS_TO_TRY).map(|number| format!("{with_id}.{number}"));
    for candidate in [name, with_id.clone()].into_iter().chain(numbered) {
        if RESERVED_NAMES.contains(&candidate.as_str()) {
            continue;
        }
        let Ok(name) = DirectoryName::new(candidate) else { continue };
        if store.create(&name)? {
            return Ok(name);
        }
    }
    Err(no_free_name(store, job, id))
}

/// If the name of this second is taken, by an earlier attempt for example, the next free second is used.
fn create_unnamed(store: &dyn DatasetStore, now: NaiveDateTime, job: &str, id: CheckpointId) -> Result<DirectoryName> {
    let refused = |problem| PrefixError::JobId { job: job.to_owned(), problem };
    check_base_name(job).map_err(refused)?;
    remove_unrecorded(store, job, id);
    for seconds in 0..SECONDS_TO_TRY {
        let Some(stamp) = now.checked_add_signed(TimeDelta::seconds(seconds)) else { break };
        let text = NameParts { stamp, job: job.to_owned(), id }.to_string();
        let name = DirectoryName::new(text).map_err(refused)?;
        if store.create(&name)? {
            return Ok(name);
        }
    }
    Err(no_free_name(store, job, id))
}

/// Removes the empty directories of this dataset that are not in the index: of processes that were killed before they
/// recorded what they had made.
fn remove_unrecorded(store: &dyn DatasetStore, job: &str, id: CheckpointId) {
    let Ok(index) = index::read(store).map(Option::unwrap_or_default) else { return };
    for name in store.names().unwrap_or_default() {
        let is_of_dataset = name.parts().is_some_and(|parts| parts.job == job && parts.id == id);
        if is_of_dataset && index.entry(&name).is_none() {
            store.remove_if_empty(&name);
        }
    }
}

fn no_free_name(store: &dyn DatasetStore, job: &str, id: CheckpointId) -> PrefixError {
    PrefixError::NoFreeName { prefix: store.location().to_owned(), job: job.to_owned(), id }
}
