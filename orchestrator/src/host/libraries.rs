//! The shared libraries of a program, as the system's loader finds them.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::external_command::{self, ExternalCommandError};

/// A loader that does not answer within this is considered to hang.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The names of SCR's library; what follows is a version.
const SCR: [&str; 2] = ["libscr.so", "libscrf.so"];
const FTI: [&str; 1] = ["libfti.so"];
const VARIABLES: [&str; 1] = ["libholdfast_variables.so"];
/// Functions that only Holdfast's libraries have.
const OWN_SCR: &[u8] = b"HOLDFAST_Rank";
const OWN_FTI: &[u8] = b"holdfast_fti_init";
const OWN_VARIABLES: &[u8] = b"holdfast_protect";
/// In the paths that LLNL's library has used since v1.1.8; those of v1.1-8 have `checkpoint.` there.
const LATER_PATH: &[u8] = b"scr.dataset.";

/// The libraries that a program is linked with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libraries {
    /// Name, and path if the loader finds it.
    list: Vec<(String, Option<PathBuf>)>,
}

impl Libraries {
    /// Those of a program in an environment with these changes. None of scripts, of static programs, of this program,
    /// and on systems without `ldd`.
    ///
    /// # Errors
    /// `ldd` does not answer.
    pub fn of(program: &Path, variables: &BTreeMap<String, Option<String>>) -> Result<Libraries, ExternalCommandError> {
        let mut magic = [0_u8; 4];
        let is_elf =
            File::open(program).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF";
        if !is_elf || env::current_exe().is_ok_and(|own| own == program) {
            return Ok(Libraries::default());
        }
        match external_command::run("ldd", &[&program.to_string_lossy()], variables, ANSWER_WITHIN) {
            Ok(answer) => Ok(Libraries::parse(&answer.output)),
            // Not every system has `ldd`.
            Err(ExternalCommandError::Start { .. }) => Ok(Libraries::default()),
            Err(timeout) => Err(timeout),
        }
    }

    /// Lines `libm.so.6 => /lib/libm.so.6 (0x00007f)`, and `/opt/libscr.so (0x00007f)` of a library that the program
    /// was linked with by its path.
    fn parse(listing: &str) -> Libraries {
        let path_in = |text: &str| text.rsplit_once(" (").map(|(path, _)| PathBuf::from(path));
        let library = |line: &str| match line.trim().split_once(" => ") {
            Some((name, found)) => Some((name.trim().to_owned(), path_in(found))),
            None => {
                let path = path_in(line.trim()).filter(|path| path.is_absolute())?;
                Some((path.file_name()?.to_string_lossy().into_owned(), Some(path)))
            }
        };
        Libraries { list: listing.lines().filter_map(library).collect() }
    }

    /// The names of those that the loader does not find.
    pub fn missing(&self) -> Vec<String> {
        let missing = self.list.iter().filter(|(_, path)| path.is_none()).map(|(name, _)| name.clone());
        missing.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The path of LLNL's SCR library, if the program is linked with it: Holdfast's has the same name.
    pub fn scr_of_llnl(&self) -> Option<&Path> {
        self.named(&SCR).find(|path| !file_contains(path, OWN_SCR))
    }

    /// The path of LLNL's SCR library, if it writes other files than v1.1-8, whose files Holdfast reads.
    pub fn later_scr(&self) -> Option<&Path> {
        self.scr_of_llnl().filter(|path| file_contains(path, LATER_PATH))
    }

    /// The library that makes the program's checkpoints, and the `checkpoint.source` that serves it; `None` if there is
    /// none, or there are libraries of several sources.
    pub fn source(&self) -> Option<(&Path, &'static str)> {
        let scr = self.named(&SCR).map(|path| (path, if file_contains(path, OWN_SCR) { "scr" } else { "scr-files" }));
        let fti = self.named(&FTI).filter(|path| file_contains(path, OWN_FTI));
        let variables = self.named(&VARIABLES).filter(|path| file_contains(path, OWN_VARIABLES));
        let mut all = scr.chain(variables.chain(fti).map(|path| (path, "variables")));
        let first = all.next()?;
        all.all(|(_, source)| source == first.1).then_some(first)
    }

    /// All of them: name, and path if the loader finds it.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&Path>)> {
        self.list.iter().map(|(name, path)| (name.as_str(), path.as_deref()))
    }

    /// The paths of the libraries whose names begin so.
    fn named<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a Path> {
        let is_one = |name: &str| names.iter().any(|known| name.starts_with(known));
        self.list.iter().filter(move |(name, _)| is_one(name)).filter_map(|(_, path)| path.as_deref())
    }
}

/// Whether a file can be read and contains these bytes.
pub fn file_contains(path: &Path, word: &[u8]) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.windows(word.len()).any(|part| part == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_libraries_are_listed_once_each() {
        let listing = "\tlibmpi.so.40 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\
                       \tlibmpi.so.40 => not found\n\tlibscr.so.0 => not found\n";
        assert_eq!(Libraries::parse(listing).missing(), ["libmpi.so.40", "libscr.so.0"]);
        let by_path = Libraries::parse("\tlinux-vdso.so.1 (0x7f)\n\t/opt/lib/libscr.so (0x7f)\n");
        assert_eq!(by_path.list, [("libscr.so".to_owned(), Some(PathBuf::from("/opt/lib/libscr.so")))]);
    }

    #[test]
    fn the_library_of_llnl_is_told_from_that_of_holdfast_by_its_functions() {
        let directory = tempfile::tempdir().unwrap();
        let of = |file: &str, content: &str| {
            let path = directory.path().join(file);
            fs::write(&path, content).unwrap();
            let listing = format!("\tlinux-vdso.so.1 (0x7f)\n\t{file} => {} (0x00007f)\n", path.display());
            Libraries::parse(&listing).scr_of_llnl().is_some_and(|found| found == path)
        };
        assert!(of("libscr.so.0", "\x7fELF SCR_Init\0SCR_Finalize\0"));
        assert!(of("libscrf.so.3", "\x7fELF scr_init_\0"));
        assert!(!of("libscr.so", "\x7fELF SCR_Init\0HOLDFAST_Rank\0"));
        assert!(!of("libscram.so.2", "\x7fELF sasl\0"));
        assert_eq!(Libraries::parse("\tlibscr.so.0 => not found\n").scr_of_llnl(), None);
    }

    #[test]
    fn a_later_library_of_llnl_is_told_from_that_of_v1_1_8_by_its_paths() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libscr.so.0");
        let is_later = |content: &str| {
            fs::write(&path, content).unwrap();
            Libraries::parse(&format!("\tlibscr.so.0 => {} (0x00007f)\n", path.display())).later_scr().is_some()
        };
        assert!(is_later("SCR_Init\0%s/scr.dataset.%d\0") && !is_later("SCR_Init\0%s/checkpoint.%d\0"));
        assert!(!is_later("HOLDFAST_Rank\0scr.dataset.%d\0"));
    }

    #[test]
    fn the_source_follows_from_the_libraries_unless_they_are_of_several() {
        let directory = tempfile::tempdir().unwrap();
        let of = |files: &[(&str, &str)]| {
            let mut listing = String::new();
            for (file, content) in files {
                let path = directory.path().join(file);
                fs::write(&path, content).unwrap();
                listing.push_str(&format!("\t{file} => {} (0x00007f)\n", path.display()));
            }
            Libraries::parse(&listing).source().map(|(_, source)| source)
        };
        let (own, llnl, fti) =
            (("libscr.so", "HOLDFAST_Rank"), ("libscr.so.0", "SCR_Init"), ("libfti.so.100", "holdfast_fti_init"));
        assert_eq!([of(&[own]), of(&[llnl]), of(&[fti])], [Some("scr"), Some("scr-files"), Some("variables")]);
        assert_eq!(of(&[("libholdfast_variables.so.1", "holdfast_protect")]), Some("variables"));
        assert_eq!(of(&[("libholdfast_variables.so", "of somebody else")]), None);
        assert_eq!(of(&[("libm.so.6", ""), ("libfti.so", "another FTI")]), None);
        assert_eq!(of(&[own, fti]), None);
    }
}
