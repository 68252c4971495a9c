//! `scr_index` and `scr_rebuild_xor`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::Local;
use clap::Parser;
use holdfast_core::prefix::index::{self, list_text};
use holdfast_core::prefix::inspect::SetRebuild;
use holdfast_core::prefix::{AddOptions, add};
use holdfast_core::redundancy::directory;
use holdfast_core::redundancy::files::SetId;
use holdfast_core::redundancy::xor::{self, name::XorName};
use holdfast_core::store::{self, DatasetFiles, DirectoryName, PosixDataset};
use holdfast_formats::sion::dataset;

use super::arguments::{parse, usage};
use super::result::{ExitResult, NO, YES, failed, print, refused};
use crate::host::host_name;

/// List and change the index of the checkpoints below a prefix directory
#[derive(Parser)]
#[command(name = "scr_index", no_binary_name = true, infer_long_args = true)]
struct IndexArgs {
    /// List the checkpoints [default]
    #[arg(short, long)]
    list: bool,
    /// Check a checkpoint directory, rebuild missing files, and add it to the index
    #[arg(short, long, value_name = "DIRECTORY")]
    add: Option<String>,
    /// Remove a checkpoint directory from the index; its files are kept
    #[arg(short, long, value_name = "DIRECTORY")]
    remove: Option<String>,
    /// The prefix directory
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    prefix: PathBuf,
}

pub(super) fn index(words: &[String]) -> ExitResult {
    let args: IndexArgs = parse(words)?;
    let store = &*store::open(&args.prefix)?;
    let mut code = YES;
    if let Some(name) = &args.add {
        let options = AddOptions { open: dataset::open, ..AddOptions::default() };
        let report = add(store, &DirectoryName::given(name)?, Local::now().naive_local(), &options, &|_| {})?;
        for set in report.rebuilt.iter().filter(|set| set.set.scheme == xor::NAME) {
            print(rebuild_line(set))?;
        }
        let lost = report.failures.iter().map(ToString::to_string);
        let lost = lost.chain(report.reasons.iter().map(ToString::to_string));
        lost.chain(report.damaged.iter().map(ToString::to_string)).for_each(|text| warn(&text));
        code = if report.is_complete() { YES } else { NO };
    }
    if let Some(name) = &args.remove {
        let directory = DirectoryName::given(name)?;
        if !index::update(store, |index| index.remove(&directory))? {
            return Err(refused(format!("{directory} is not in the index of {}", store.location().display())));
        }
    }
    if args.add.is_none() && args.remove.is_none() {
        let index = index::read(store)?;
        let index = index.ok_or_else(|| refused(format!("{} has no index", store.location().display())))?;
        print(list_text(&index.entries()).trim_end())?;
    }
    Ok(code)
}

/// The line that SCR prints for the rebuild of a set, with the empty line that follows it.
fn rebuild_line(set: &SetRebuild) -> String {
    let SetId { group_id, members, .. } = set.set;
    let lines = set.missing.iter().map(|&missing| {
        let name = |index: u32| XorName { group_id, members, index }.to_string();
        let others: Vec<String> = (0..members).filter(|index| *index != missing).map(name).collect();
        let (host, lost) = (host_name(), name(missing));
        format!("SCR: {host}: Rebuild command: scr_rebuild_xor {members} {missing} {lost} {} \n", others.join(" "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Reports on standard error why a directory is not complete.
fn warn(text: &str) {
    eprintln!("scr_index: {}", super::super::output::printable(text));
}

/// Rebuild the files of a lost member of an XOR set in the current directory
#[derive(Parser)]
#[command(name = "scr_rebuild_xor", no_binary_name = true)]
struct RebuildArgs {
    /// The number of members of the set
    members: u32,
    /// The lost member, counted from 0
    missing: u32,
    /// The name of its XOR file
    lost: String,
    /// The names of the other members' XOR files, in the order of the members
    #[arg(required = true)]
    others: Vec<String>,
}

pub(super) fn rebuild_xor(words: &[String]) -> ExitResult {
    let args: RebuildArgs = parse(words)?;
    let lost = XorName::parse(&args.lost);
    let lost = lost.ok_or_else(|| usage::<RebuildArgs>("the name of an XOR file is required: 3_of_4_in_0.xor"))?;
    let name = |index: u32| XorName { index, ..lost };
    let expected = (0..args.members).filter(|index| *index != args.missing).map(|index| name(index).to_string());
    if (lost.members, lost.index) != (args.members, args.missing) || !expected.eq(args.others.iter().cloned()) {
        return Err(usage::<RebuildArgs>("the names are not those of the members of one set").into());
    }
    let progress = &mut |_, _| ControlFlow::Continue(());
    let files: Arc<dyn DatasetFiles> = Arc::new(PosixDataset::at(Path::new(".")).map_err(|error| failed(&error))?);
    let set = SetId { scheme: xor::NAME, group_id: lost.group_id, members: args.members };
    match directory::rebuild(&files, set, &[args.missing], progress) {
        Ok(_) => Ok(YES),
        Err(error) => Err(failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_core::crash::{ALL_ERRORS, Subject};
    use holdfast_core::prefix::inspect::{Completeness, inspect};
    use holdfast_core::prefix::scan::{ScanOptions, scan};
    use holdfast_core::store::DatasetAccess;

    use super::super::result::CompatError;
    use super::*;

    /// The directory that `scr_copy` has left, without the files of a lost node.
    fn drained(prefix: &Path) -> String {
        let directories = fs::read_dir(prefix).unwrap().map(|entry| entry.unwrap());
        let found = directories.filter(|entry| entry.file_type().unwrap().is_dir()).map(|entry| entry.file_name());
        found.map(|name| name.into_string().unwrap()).find(|name| name.starts_with("scr.")).unwrap()
    }

    fn ran(prefix: &Path, option: &str) -> Result<(), String> {
        let words = [format!("--prefix={}", prefix.display()), option.to_owned(), drained(prefix)];
        match index(&words) {
            Ok(YES) => Ok(()),
            Ok(code) => Err(format!("exit code {code}")),
            Err(CompatError::Failed(failure)) => Err(format!("{failure:?}")),
            Err(CompatError::Usage(_)) => Err("usage".to_owned()),
        }
    }

    /// What the index has as complete has all files with their content.
    fn is_usable(prefix: &Path) -> Result<(), String> {
        let store = store::open(prefix).map_err(|error| error.to_string())?;
        let entries = index::read(&*store).map_err(|error| error.to_string())?.unwrap_or_default().entries();
        for entry in entries.iter().filter(|entry| entry.complete == Some(true)) {
            let opened = store.open(&entry.directory, DatasetAccess::Read).map_err(|error| error.to_string())?;
            let mut scan = scan(&opened, ScanOptions::default()).map_err(|error| error.to_string())?;
            scan.verify(1, &|_| {});
            if inspect(&scan).completeness != Completeness::Complete || !scan.damaged.is_empty() {
                return Err(format!("{} is not complete", entry.directory));
            }
        }
        Ok(())
    }

    fn interrupted(name: &str, prepare: &dyn Fn(&Path), work: &dyn Fn(&Path) -> Result<(), String>) {
        let prepare = |prefix: &Path| {
            fs::create_dir(prefix).unwrap();
            let source = holdfast_testkit::fixtures("scr").join("f-drain-xor/one-node-lost/input/tree/pfs");
            holdfast_testkit::copy_tree(&source, prefix).unwrap();
            prepare(prefix);
        };
        let result = |prefix: &Path| {
            let store = store::open(prefix).unwrap();
            let entries = index::read(&*store).unwrap().unwrap_or_default().entries();
            let entries: Vec<_> = entries.iter().map(|entry| (entry.id, entry.complete)).collect();
            // A lock file that was lost is made again.
            let mut files = holdfast_testkit::files_below(prefix);
            files.retain(|file| !file.ends_with("index.lock"));
            format!("{entries:?} {files:#?}")
        };
        let (prepare, result): (&dyn Fn(&Path), _) = (&prepare, &result);
        let (check, power, errors) = (&is_usable, true, ALL_ERRORS);
        let tried = Subject { name, prepare, work, check, result, power, errors }.interrupt();
        assert!(tried.losses > 3 && tried.errors > 20, "{tried:?}");
    }

    #[test]
    fn crash_a_directory_that_is_added_to_the_index() {
        interrupted("scr_index --add", &|_| {}, &|prefix| ran(prefix, "--add"));
    }

    /// That it is not in the index any more is an error of the command.
    #[test]
    fn crash_a_directory_that_is_removed_from_the_index() {
        let is_listed = |prefix: &Path| {
            let store = store::open(prefix).map_err(|error| error.to_string())?;
            let directory = DirectoryName::given(&drained(prefix)).map_err(|error| error.to_string())?;
            let index = index::read(&*store).map_err(|error| error.to_string())?;
            Ok::<_, String>(index.is_some_and(|index| index.entry(&directory).is_some()))
        };
        let work = |prefix: &Path| if is_listed(prefix)? { ran(prefix, "--remove") } else { Ok(()) };
        interrupted("scr_index --remove", &|prefix| ran(prefix, "--add").unwrap(), &work);
    }
}
