//! Directories of a job whose id a later allocation has again, while datasets in them are not on its prefix directory:
//! they are renamed, so that the later job does not use them, and renamed back by the next agent of their own job.
//!
//! The control directory is renamed last in both directions. An interrupted change is found by it and continued.

use std::path::{Path, PathBuf};

use holdfast_core::owned::{Base, OwnedDirectory};
use holdfast_wire::agent::KeptDirectory;

use super::claim::{ClaimError, EXISTING, parts};
use super::paths::Paths;

/// Between the name of the directory and the characters that distinguish those of several jobs.
const MARK: &str = ".kept-";

/// The new name of a directory of the job in this prefix directory and this allocation: the same after an interruption.
fn kept_name(job: &str, prefix: &Path, allocation: Option<&str>) -> String {
    let mut sum = crc32fast::Hasher::new();
    sum.update(prefix.as_os_str().as_encoded_bytes());
    sum.update(allocation.unwrap_or_default().as_bytes());
    format!("{job}{MARK}{:08x}", sum.finalize())
}

/// Renames the job's directories below these bases and its control directory, which belong to the job in another prefix
/// directory and allocation.
///
/// # Errors
/// One cannot be renamed; the call can be repeated.
pub(crate) fn set_aside(
    paths: &Paths,
    (prefix, allocation): (&Path, Option<&str>),
    bases: &[String],
) -> Result<(), ClaimError> {
    let name = kept_name(&format!("scr.{}", paths.job_id), prefix, allocation);
    each_directory(paths, bases, |of_user, job| {
        if of_user.open_directory(job, EXISTING)?.is_some() {
            tracing::warn!(path = %of_user.path().join(job).display(), prefix = %prefix.display(), %name, "set_aside");
            of_user.rename(job, &name)?;
        }
        Ok(())
    })
}

/// Renames directories of this job back that were set aside, if their names are free.
///
/// # Errors
/// They cannot be read or renamed.
pub(crate) fn restore(paths: &Paths, bases: impl Fn(&Path) -> Vec<String>) -> Result<(), ClaimError> {
    let Some(owner) = paths.owner() else { return Ok(()) };
    let real = paths.real(paths.control_node_path())?;
    let job = format!("scr.{}", paths.job_id);
    if real.exists() {
        return Ok(());
    }
    let Some((name, control)) = of_user(paths, &format!("{job}{MARK}"))?
        .into_iter()
        .find_map(|(name, directory, prefix)| (prefix == *owner).then_some((name, directory)))
    else {
        return Ok(());
    };
    each_directory(paths, &bases(control.path()), |of_user, job| {
        let is_free = of_user.open_directory(job, EXISTING)?.is_none();
        if is_free && of_user.open_directory(&name, EXISTING)?.is_some() {
            tracing::info!(path = %of_user.path().join(job).display(), "restored");
            of_user.rename(&name, job)?;
        }
        Ok(())
    })
}

/// The control directories of this user that were set aside.
pub(crate) fn all(paths: &Paths) -> Vec<KeptDirectory> {
    let found = of_user(paths, MARK).unwrap_or_else(|error| {
        tracing::warn!(%error, "kept_directories_unreadable");
        Vec::new()
    });
    let above = paths.control_node_path().rsplit_once('/').map_or("", |(above, _)| above);
    let kept = found.into_iter().map(|(name, _, prefix)| KeptDirectory { path: format!("{above}/{name}"), prefix });
    kept.collect()
}

/// The directories beside the control directory that were set aside and whose names contain this text, each with its
/// name and the prefix directory of its job.
fn of_user(paths: &Paths, text: &str) -> Result<Vec<(String, OwnedDirectory, PathBuf)>, ClaimError> {
    let real = paths.real(paths.control_node_path())?;
    let Some((base, user, _)) = parts(&real) else { return Ok(Vec::new()) };
    let base = match Base::trusted(base) {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        base => base?,
    };
    let Some(of_user) = base.open_directory(user, EXISTING)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for name in of_user.names()?.iter().filter_map(|name| name.to_str()).filter(|name| name.contains(text)) {
        if let Some(directory) = of_user.open_directory(name, EXISTING)?
            && let Some(prefix) = directory.marked_prefix()?
        {
            found.push((name.to_owned(), directory, prefix));
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// Does something for each directory of the job, the control directory last, if the directory of its user exists.
fn each_directory(
    paths: &Paths,
    bases: &[String],
    mut change: impl FnMut(&OwnedDirectory, &str) -> Result<(), ClaimError>,
) -> Result<(), ClaimError> {
    let job = format!("scr.{}", paths.job_id);
    let control = paths.control_node_path().to_owned();
    let caches = bases.iter().map(|base| paths.cache_node_path(base)).filter(|cache| *cache != control);
    for node_path in caches.chain([control.clone()]) {
        let real = paths.real(&node_path)?;
        let Some((base, user, _)) = parts(&real) else { continue };
        let base = match Base::trusted(base) {
            Err(error) if error.is_missing() => continue,
            base => base?,
        };
        if let Some(of_user) = base.open_directory(user, EXISTING)? {
            change(&of_user, &job)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directories::claim::directory;
    use crate::fixtures::fixture_start;
    use std::fs;

    #[test]
    fn directories_that_were_set_aside_are_listed_and_renamed_back_for_their_own_job_only() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(&fixture_start(root.path(), "node0"));
        let (other, ours) = (paths.of_owner(Path::new("/other")), paths.of_owner(Path::new("/ours")));
        let bases = ["/ssd".to_owned()];
        let cache = other.cache_node_path("/ssd");
        for node_path in [other.control_node_path(), &cache] {
            directory(&other, node_path).unwrap();
        }
        let file = other.real(&cache).unwrap().join("file");
        fs::write(&file, "data").unwrap();
        for _ in 0..2 {
            set_aside(&ours, (Path::new("/other"), Some("1")), &bases).unwrap();
        }
        assert!(!other.control().exists() && !file.exists());
        let [kept] = &all(&ours)[..] else { panic!("one is kept") };
        assert_eq!(kept.prefix, Path::new("/other"));
        assert!(kept.path.starts_with(&format!("{}.kept-", other.control_node_path())), "{}", kept.path);
        restore(&ours, |_| bases.to_vec()).unwrap();
        assert_eq!(all(&ours).len(), 1);
        // The directories of the present job are in the way.
        directory(&ours, ours.control_node_path()).unwrap();
        restore(&other, |_| bases.to_vec()).unwrap();
        assert_eq!(all(&ours).len(), 1);
        fs::remove_dir_all(ours.control()).unwrap();
        restore(&other, |_| bases.to_vec()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"data");
        assert!(other.control().exists() && all(&ours).is_empty());
    }

    #[test]
    fn an_interrupted_change_is_continued() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(&fixture_start(root.path(), "node0")).of_owner(Path::new("/other"));
        let cache = paths.cache_node_path("/ssd");
        for node_path in [paths.control_node_path(), &cache] {
            directory(&paths, node_path).unwrap();
        }
        let other = (Path::new("/other"), None);
        // Only the cache was renamed.
        set_aside(&paths, other, &["/ssd".to_owned()]).unwrap();
        let name = kept_name(&format!("scr.{}", paths.job_id), other.0, other.1);
        fs::rename(paths.control().with_file_name(&name), paths.control()).unwrap();
        set_aside(&paths, other, &["/ssd".to_owned()]).unwrap();
        assert!(!paths.control().exists());
        // Only the cache was renamed back.
        let real = paths.real(&cache).unwrap();
        fs::rename(real.with_file_name(&name), &real).unwrap();
        restore(&paths, |_| vec!["/ssd".to_owned()]).unwrap();
        assert!(paths.control().exists() && real.exists());
    }
}
