//! Result files of the undisturbed run, kept aside, and their comparison with those of the disturbed run.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::findings::{Compared, ComparedResult};

/// The files that `--compare` names.
pub(super) struct ResultFiles<'a> {
    pub(super) files: &'a [PathBuf],
    /// The working directory of the ranks.
    pub(super) working_directory: PathBuf,
}

/// What a run wrote, or why that is not known.
type Written = Result<PathBuf, String>;

impl ResultFiles<'_> {
    /// The files that a run with this prefix directory has written since it began: an older one is no result of it.
    fn written(&self, prefix: &Path, began: SystemTime) -> Vec<Written> {
        let find = |file: &PathBuf| {
            // An absolute path stays as it is.
            let places = [prefix.join(file), self.working_directory.join(file)];
            let found = places.iter().find(|path| path.is_file()).ok_or("a run did not write it")?;
            let modified = found.metadata().and_then(|found| found.modified());
            let modified = modified.map_err(|error| format!("{}: {error}", found.display()))?;
            match modified < began {
                true => Err(format!("a run did not write it: {} is older", found.display())),
                false => Ok(found.clone()),
            }
        };
        self.files.iter().map(find).collect()
    }

    /// Copies the results of the undisturbed run, which the other run replaces.
    pub(super) fn keep(&self, prefix: &Path, began: SystemTime, directory: &Path) -> Vec<Written> {
        let copy = |(number, written): (usize, Written)| {
            let (written, kept) = (written?, directory.join(format!("result.{number}")));
            match std::fs::copy(&written, &kept) {
                Ok(_) => Ok(kept),
                Err(error) => Err(format!("cannot copy {}: {error}", written.display())),
            }
        };
        self.written(prefix, began).into_iter().enumerate().map(copy).collect()
    }

    /// Compares the results of the disturbed run with those that were kept.
    pub(super) fn compare(&self, kept: Vec<Written>, prefix: &Path, began: SystemTime) -> Vec<Compared> {
        let pairs = kept.into_iter().zip(self.written(prefix, began));
        let results = pairs.map(|(undisturbed, disturbed)| {
            let (undisturbed, disturbed) = (undisturbed?, disturbed?);
            let differs = first_difference(&undisturbed, &disturbed);
            differs.map_err(|error| format!("cannot read {}: {error}", disturbed.display()))
        });
        let compared = |(file, result): (&PathBuf, Result<Option<u64>, String>)| Compared {
            file: file.clone(),
            result: match result {
                Ok(None) => ComparedResult::Identical,
                Ok(Some(at)) => ComparedResult::Different { at },
                Err(reason) => ComparedResult::Unknown { reason },
            },
        };
        self.files.iter().zip(results).map(compared).collect()
    }
}

/// The offset of the first byte that differs.
fn first_difference(one: &Path, other: &Path) -> io::Result<Option<u64>> {
    let (one, other) = (BufReader::new(File::open(one)?), BufReader::new(File::open(other)?));
    let (mut one, mut other) = (one.bytes(), other.bytes());
    for at in 0.. {
        match (one.next().transpose()?, other.next().transpose()?) {
            (None, None) => return Ok(None),
            (one, other) if one != other => return Ok(Some(at)),
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;

    #[test]
    fn results_are_compared_byte_by_byte_and_only_if_both_runs_wrote_them() {
        let home = tempfile::tempdir().unwrap();
        let (prefix, began) = (home.path().join("prefix"), SystemTime::now() - Duration::from_secs(5));
        fs::create_dir(&prefix).unwrap();
        fs::write(prefix.join("same"), "abc").unwrap();
        fs::write(home.path().join("other"), "abc").unwrap();
        let files: Vec<PathBuf> = ["same", "other", "missing"].map(PathBuf::from).to_vec();
        let results = ResultFiles { files: &files, working_directory: home.path().to_owned() };
        let kept = results.keep(&prefix, began, home.path());
        fs::write(home.path().join("other"), "abcd").unwrap();
        let compared: Vec<ComparedResult> =
            results.compare(kept, &prefix, began).into_iter().map(|compared| compared.result).collect();
        assert_eq!(compared[..2], [ComparedResult::Identical, ComparedResult::Different { at: 3 }]);
        assert!(matches!(&compared[2], ComparedResult::Unknown { reason } if reason.contains("did not write it")));
        let later = SystemTime::now() + Duration::from_secs(5);
        assert!(results.written(&prefix, later)[0].as_ref().unwrap_err().contains("is older"));
    }
}
