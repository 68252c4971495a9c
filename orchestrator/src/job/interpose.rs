//! The variables by which `libscr_interpose` is loaded into the ranks (`checkpoint.interpose`).

use std::collections::BTreeMap;
use std::env::{self, consts};
use std::path::{Path, PathBuf};

use holdfast_patterns::CHECKPOINT_PATTERN;

use super::error::PreflightError;
use crate::spec::{Allocation, Step};

/// The library's file name.
const LIBRARY: &str = "libscr_interpose.so";
/// The loader's variable.
const PRELOAD: &str = "LD_PRELOAD";
/// Where the library is, from the directory of the program; in packages of Debian, in a directory of `../lib` that is
/// named after the processor's architecture.
const PLACES: [&str; 3] = ["", "../lib", "../lib64"];

/// The variables of the ranks; none if no files are intercepted.
///
/// # Errors
/// The library does not exist.
pub(super) fn variables(
    step: &Step,
    allocation: &Allocation,
    working_directory: &Path,
    holdfast: &Path,
) -> Result<BTreeMap<String, String>, PreflightError> {
    let Some(files) = &step.checkpoint.interpose.files else { return Ok(BTreeMap::new()) };
    let named = step.checkpoint.interpose.library.as_ref().map(|library| working_directory.join(library));
    let library = match allocation.program() {
        // On other machines, where nothing can be checked.
        Some(program) => named.unwrap_or_else(|| program.with_file_name(LIBRARY)),
        None => find(named, holdfast)?,
    };
    let inherited = step.run.env.get(PRELOAD).cloned().or_else(|| env::var(PRELOAD).ok());
    let preload = [Some(library.to_string_lossy().into_owned()), inherited.filter(|others| !others.is_empty())];
    let preload = preload.into_iter().flatten().collect::<Vec<_>>().join(":");
    Ok([(PRELOAD.to_owned(), preload), (CHECKPOINT_PATTERN.to_owned(), files.clone())].into())
}

fn find(named: Option<PathBuf>, holdfast: &Path) -> Result<PathBuf, PreflightError> {
    let candidates = match named {
        Some(named) => vec![named],
        None => {
            let directory = holdfast.parent().unwrap_or(Path::new("/"));
            let of_architecture = format!("../lib/{}-{}-gnu", consts::ARCH, consts::OS);
            let places = PLACES.into_iter().chain([of_architecture.as_str()]);
            places.map(|place| directory.join(place).join(LIBRARY)).collect()
        }
    };
    let found = candidates.iter().find(|path| path.is_file()).and_then(|path| path.canonicalize().ok());
    let library = found.ok_or(PreflightError::NoInterposition { searched: candidates })?;
    // The loader separates the paths of its variable by them.
    if library.to_string_lossy().contains([' ', ':']) {
        return Err(PreflightError::InterpositionPath { path: library });
    }
    Ok(library)
}
