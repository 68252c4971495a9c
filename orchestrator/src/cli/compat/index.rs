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
