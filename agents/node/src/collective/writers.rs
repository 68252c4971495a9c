//! Checks that no two ranks write a file of the same name in cache: all files of a dataset are flushed into one
//! directory, where one would overwrite the other. Programs whose ranks share a file bypass the cache.

use std::collections::{BTreeMap, HashMap};

use holdfast_model::Rank;
use holdfast_wire::peer::SealedFiles;

use crate::sources::files::FileError;

/// Checks that all names are different.
///
/// # Errors
/// The first name of two ranks.
pub fn one_of_each_name(sealed: &BTreeMap<Rank, SealedFiles>) -> Result<(), FileError> {
    let mut writers: HashMap<&str, Rank> = HashMap::new();
    for (rank, files) in sealed {
        for name in &files.names {
            match writers.insert(name, *rank) {
                Some(first) if first != *rank => {
                    return Err(FileError::Shared { name: name.clone(), first, second: *rank });
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(files: &[(u32, &[&str])]) -> BTreeMap<Rank, SealedFiles> {
        let of =
            |names: &[&str]| SealedFiles { bytes: 1, names: names.iter().map(|name| (*name).to_owned()).collect() };
        files.iter().map(|(rank, names)| (Rank(*rank), of(names))).collect()
    }

    #[test]
    fn refuses_a_name_of_two_ranks() {
        one_of_each_name(&sealed(&[(0, &["a.0", "b.0"]), (1, &["a.1", "b.1"]), (2, &[])])).unwrap();
        let refused = one_of_each_name(&sealed(&[(0, &["a.0", "all"]), (1, &["a.1"]), (3, &["all"])])).unwrap_err();
        assert!(matches!(refused, FileError::Shared { name, first: Rank(0), second: Rank(3) } if name == "all"));
    }
}
