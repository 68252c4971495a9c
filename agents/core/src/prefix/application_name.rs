//! The names that an application may give to its files.
//!
//! The files of all ranks are flushed into one directory, beside the files that SCR and Holdfast write there about
//! them. An application's file with such a name would be overwritten, taken for something else, or left out. A name
//! that leaves no room for the suffix of its meta file cannot be completed. Both are refused when the file is routed.

use holdfast_model::Scheme;

use super::dataset::DATASET_FILE;
use super::rank_filemap;
use super::summary::OLD_SUMMARY_FILE;
use crate::control::meta;
use crate::redundancy::registry;
use crate::store::base_name::{LONGEST, NameError, check_base_name};
use crate::temporary;

/// The longest name of an application's file, in bytes: its meta file is named after it.
pub const LONGEST_APPLICATION_NAME: usize = LONGEST - meta::EXTENSION.len();

/// The longest path, in bytes: `PATH_MAX` of Linux without the NUL at the end, and without the suffix of the meta file.
pub const LONGEST_APPLICATION_PATH: usize = 4095 - meta::EXTENSION.len();

/// Why an application's file cannot have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplicationNameError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(
        "it has {0} bytes, and {LONGEST_APPLICATION_NAME} are allowed: its meta file, with the suffix `{suffix}`, must \
         not exceed {LONGEST} bytes",
        suffix = meta::EXTENSION
    )]
    TooLong(usize),
    #[error("names that end in `{}` are those of meta files and summaries", meta::EXTENSION)]
    MetaFile,
    #[error("names that end in `{}` are those of the ranks' filemaps", rank_filemap::SUFFIX)]
    Filemap,
    #[error("it is the name of a redundancy file of scheme {0}")]
    RedundancyFile(Scheme),
    #[error("it is the name of the record that Holdfast keeps about a dataset")]
    DatasetFile,
    #[error("it is the name of a summary of an older version of SCR")]
    OldSummary,
    #[error("it is the name of a temporary file of Holdfast")]
    Temporary,
}

/// Checks the base name of an application's file.
///
/// # Errors
/// Why a checkpoint with such a file could not be completed, or not be read again.
pub fn check_application_name(name: &str) -> Result<(), ApplicationNameError> {
    match check_base_name(name) {
        Ok(()) => {}
        // One limit in all messages about lengths.
        Err(NameError::TooLong) => return Err(ApplicationNameError::TooLong(name.len())),
        Err(problem) => return Err(problem.into()),
    }
    if name.len() > LONGEST_APPLICATION_NAME {
        Err(ApplicationNameError::TooLong(name.len()))
    } else if name.ends_with(meta::EXTENSION) {
        Err(ApplicationNameError::MetaFile)
    } else if name.ends_with(rank_filemap::SUFFIX) {
        Err(ApplicationNameError::Filemap)
    } else if name == DATASET_FILE {
        Err(ApplicationNameError::DatasetFile)
    } else if name == OLD_SUMMARY_FILE {
        Err(ApplicationNameError::OldSummary)
    } else if temporary::is_temporary(name) {
        Err(ApplicationNameError::Temporary)
    } else if let Some(scheme) = redundancy_name(name) {
        Err(ApplicationNameError::RedundancyFile(scheme))
    } else {
        Ok(())
    }
}

/// The scheme that a name may belong to. SCR's tools match the names of redundancy files less strictly than ours, so
/// that every `…_of_…_in_…` with the extension of a scheme counts.
fn redundancy_name(name: &str) -> Option<Scheme> {
    let exact = registry::redundancy_file(name).map(|file| file.set.scheme);
    let similar = || {
        registry::all().find_map(|scheme| {
            let stem = name.strip_suffix(scheme.file_format()?.extension)?;
            stem.split_once("_of_")?.1.split_once("_in_").map(|_| scheme.name())
        })
    };
    exact.or_else(similar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_program_may_give_pass() {
        for name in ["rank_0.ckpt", "..hidden", "a b", "x.scr.gz", "x.xor", "summary", "scr", ".hf-1", "é.dat"] {
            assert_eq!(check_application_name(name), Ok(()), "{name}");
        }
        assert_eq!(check_application_name(&"x".repeat(251)), Ok(()));
    }

    #[test]
    fn a_name_without_room_for_its_meta_file_is_refused() {
        for length in [252, 255, 256, 4096] {
            let refused = check_application_name(&"x".repeat(length)).unwrap_err();
            assert_eq!(refused, ApplicationNameError::TooLong(length));
        }
        // Bytes, not characters.
        assert_eq!(check_application_name(&"é".repeat(126)), Err(ApplicationNameError::TooLong(252)));
    }

    #[test]
    fn names_of_files_that_are_written_beside_it_are_refused() {
        use ApplicationNameError::{DatasetFile, Filemap, MetaFile, OldSummary, Temporary};
        let refused = [
            ("summary.scr", MetaFile),
            ("rank2file.scr", MetaFile),
            ("rank_0.ckpt.scr", MetaFile),
            (".scr", MetaFile),
            ("0.scrfilemap", Filemap),
            ("dataset.holdfast", DatasetFile),
            ("scr_summary.txt", OldSummary),
            (".hf-12-3.tmp", Temporary),
            (".hf-1_of_4_in_0.2.tmp", Temporary),
        ];
        for (name, problem) in refused {
            assert_eq!(check_application_name(name), Err(problem), "{name}");
        }
    }

    #[test]
    fn names_of_redundancy_files_of_every_scheme_are_refused() {
        let schemes = registry::all().filter_map(|scheme| Some((scheme, scheme.file_format()?.extension)));
        let mut count = 0;
        for (scheme, extension) in schemes {
            for stem in ["1_of_4_in_0", "01_of_04_in_00", "7_of_4_in_0", "a_of_b_in_c"] {
                let refused = check_application_name(&format!("{stem}{extension}"));
                assert_eq!(refused, Err(ApplicationNameError::RedundancyFile(scheme.name())), "{stem}{extension}");
            }
            count += 1;
        }
        assert!(count > 0);
    }

    #[test]
    fn what_is_no_base_name_is_refused() {
        for (name, problem) in [
            ("", NameError::Empty),
            (".", NameError::Dots),
            ("..", NameError::Dots),
            ("a/b", NameError::Separator),
            ("a\0b", NameError::Control),
            ("a\nb", NameError::Control),
        ] {
            assert_eq!(check_application_name(name), Err(ApplicationNameError::Name(problem)), "{name:?}");
        }
    }
}
