//! In cache every file belongs to one rank: its directories on all nodes become one directory on the prefix, where a second
//! file of the same name would overwrite the first. Programs whose ranks share a file go past the cache.

use std::collections::{BTreeMap, HashMap};

use holdfast_wire::Rank;
use holdfast_wire::peer::SealedFiles;

/// What a rank is told that wants to write the file of another.
pub fn refusal(name: &str, rank: Rank, other: Rank) -> String {
    format!(
        "ranks {other} and {rank} both write a file {name}, and in cache each file belongs to one rank: for a file that ranks \
         share set SCR_CACHE_BYPASS=1 (`run.env` of the spec, or SCR_Config before SCR_Init); otherwise put the rank into its \
         name (the directories of a name do not count)"
    )
}

/// Looks whether all names are different.
///
/// # Errors
/// What to do about the first that is not.
pub fn one_of_each_name(sealed: &BTreeMap<Rank, SealedFiles>) -> Result<(), String> {
    let mut writers: HashMap<&str, Rank> = HashMap::new();
    for (rank, files) in sealed {
        for name in &files.names {
            match writers.insert(name, *rank) {
                Some(other) if other != *rank => return Err(refusal(name, *rank, other)),
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
    fn a_name_of_two_ranks_is_refused_with_both_and_what_to_do() {
        assert_eq!(one_of_each_name(&sealed(&[(0, &["a.0", "b.0"]), (1, &["a.1", "b.1"]), (2, &[])])), Ok(()));
        let refused = one_of_each_name(&sealed(&[(0, &["a.0", "all"]), (1, &["a.1"]), (3, &["all"])])).unwrap_err();
        assert!(refused.contains("ranks 0 and 3 both write a file all"), "{refused}");
        assert!(refused.contains("SCR_CACHE_BYPASS=1"), "{refused}");
    }
}
