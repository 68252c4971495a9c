//! `holdfast fti import`: takes a checkpoint that FTI itself has written into a prefix directory, so that a job of
//! variables restarts from it.
//!
//! Every rank's file is restored as by `holdfast fti restore`: from a copy, its partner copy or the parity of its
//! group, and verified. Ranks are renumbered without head processes, because agents do their work. The directory of the
//! dataset is removed again unless the files of all ranks are in it.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::Local;
use holdfast_core::prefix::add::AddOptions;
use holdfast_core::prefix::fetch;
use holdfast_core::store::posix::ScratchDirectory;
use holdfast_core::store::{self, PosixStore};
use holdfast_formats::fti_ff::checkpoint::{FtiFile, inspect};
use holdfast_formats::fti_ff::name::{FileName, FileRole};
use holdfast_formats::fti_ff::repair::{self, Repair};
use holdfast_formats::fti_ff::restore::{RestoreSource, restore};
use holdfast_formats::fti_ff::survivors::Survivors;
use holdfast_formats::fti_ff::topology::Topology;
use holdfast_formats::fti_ff::verify;
use holdfast_formats::{Destination, Input};
use holdfast_model::{Dataset, Level, Rank};
use serde_json::{Value, json};

use super::import_dataset::Import;
use super::{GroupArgs, source_names};
use crate::cli::failure::Failure;
use crate::cli::output::{Style, printable, report};
use crate::cli::prefix_access;
use crate::cli::progress::Bar;
use crate::exit;

/// What the directories of imported datasets have in the place of a job id.
const JOB: &str = "fti";
/// The largest number of ranks: the numbers in FTI's files may be any.
const MOST_RANKS: u32 = 1 << 22;

#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
    #[command(flatten)]
    group: GroupArgs,
    /// The prefix directory of the job that restarts from the checkpoint
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// The number of ranks that wrote the checkpoint, without heads [default: from FTI's Topology.fti]
    #[arg(long, value_name = "N")]
    ranks: Option<u32>,
    /// Import it although the prefix directory has checkpoints: the next run restarts from this one
    #[arg(long)]
    current: bool,
    /// As root: act as the owner of the prefix directory
    #[arg(long)]
    as_owner: bool,
    /// Restore and verify every file, and remove it again, to test whether it is possible
    #[arg(long)]
    dry_run: bool,
}

/// A rank's file.
struct ImportedFile {
    /// The rank that FTI gave to the process.
    from: u32,
    rank: u32,
    result: Result<Taken, Failure>,
}

struct Taken {
    source: RestoreSource,
    bytes: u64,
    /// FTI would have refused it.
    corrected: bool,
}

pub(super) fn run(args: &ImportArgs, output: Style) -> Result<u8, Failure> {
    let survivors = args.group.survivors(false)?;
    let checkpoint = args.group.checkpoint.or_else(|| survivors.checkpoints().first().copied());
    let checkpoint = checkpoint.ok_or_else(|| Failure::new(exit::UNAVAILABLE, "no FTI checkpoint was found"))?;
    refuse_other_modes(&survivors, checkpoint)?;
    let shape = args.group.shape_if_known()?;
    let ranks = writers(shape, survivors.nodes()?, args.ranks)?;
    if args.as_owner {
        prefix_access::become_owner(&args.prefix)?;
    } else if !args.dry_run {
        prefix_access::refuse_root(&args.prefix, prefix_access::AS_OWNER)?;
    }
    let store = &*store::open(&args.prefix)?;
    let first = fetch::candidates(store)?.into_iter().next().filter(|_| !args.current);
    if let Some(first) = first {
        let known = format!("the prefix directory has checkpoints, and the next run restarts from {}", first.directory);
        return Err(Failure::new(exit::UNAVAILABLE, printable(&known)).at(args.prefix.display()).remedy(
            "give --current to have it restart from the imported one, or another prefix directory with --prefix",
        ));
    }

    let staging = Staging::make(args)?;
    let declared = Dataset { level: Some(Level::Prefix), ..Dataset::default() };
    let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
    let now = Local::now().naive_local();
    let import = (!args.dry_run).then(|| Import::begin(store, now, JOB, &declared, count)).transpose()?;
    let mut taking =
        Taking { survivors: &survivors, shape, checkpoint, bar: Bar::new(output), staging: staging.path() };
    let files: Vec<ImportedFile> = (0..)
        .zip(&ranks)
        .map(|(rank, from)| ImportedFile { from: *from, rank, result: taking.take(*from, rank, import.as_ref()) })
        .collect();

    let lost = files.iter().find_map(|file| Some(file.result.as_ref().err()?.code()));
    let (mut directory, mut id) = (None, None);
    match (import, lost) {
        (Some(import), Some(_)) => import.abandon()?,
        (Some(import), None) => {
            let options = AddOptions { open: holdfast_formats::sion::dataset::open, ..AddOptions::default() };
            let added = import.finish(now, &options)?;
            if !added.is_complete() {
                return Err(Failure::new(exit::UNAVAILABLE, "the imported files changed while they were recorded")
                    .at(store.path_of(&added.directory).display())
                    .remedy("delete it by `holdfast index delete`, and import the checkpoint again"));
            }
            (directory, id) = (Some(added.directory), Some(import.id()));
        }
        (None, _) => {}
    }
    let fields = json!({
        "checkpoint": checkpoint,
        "ranks": count,
        "prefix": args.prefix.display().to_string(),
        "directory": directory.as_ref().map(ToString::to_string),
        "id": id,
        "dry_run": args.dry_run,
        "files": files.iter().map(|file| file.json()).collect::<Vec<_>>(),
    });
    output.result(&report(fields, |to| {
        for file in &files {
            for line in file.lines(checkpoint) {
                writeln!(to, "{line}")?;
            }
        }
        let lost = files.iter().filter(|file| file.result.is_err()).count();
        let of = format!("checkpoint {checkpoint} of {count} ranks");
        match &directory {
            _ if lost > 0 => {
                writeln!(to, "{of}: the files of {lost} ranks are lost: nothing is imported")?;
                match shape {
                    None => writeln!(to, "give FTI's configuration with --config, so that copies and parity are used"),
                    Some(_) => writeln!(to, "give the directories of all nodes, or an older checkpoint (--checkpoint)"),
                }
            }
            Some(directory) => {
                writeln!(to, "{of}: imported as {}", printable(directory.as_str()))?;
                writeln!(to, "the next run of {count} ranks with `checkpoint: {{source: variables}}` restarts from it")
            }
            None => writeln!(to, "{of}: can be imported"),
        }
    }))?;
    Ok(lost.unwrap_or(exit::FINISHED))
}

/// Where the files are restored, one at a time; removed when it is dropped.
enum Staging {
    /// Below the prefix directory, which has the space. The next import removes what one that was killed left there.
    Prefix(ScratchDirectory),
    DryRun(tempfile::TempDir),
}

impl Staging {
    fn make(args: &ImportArgs) -> Result<Self, Failure> {
        if !args.dry_run {
            return Ok(Staging::Prefix(PosixStore::open(&args.prefix)?.scratch_directory()?));
        }
        let made = tempfile::Builder::new().prefix("holdfast-import.").tempdir();
        Ok(Staging::DryRun(made.map_err(|error| {
            let space = std::env::temp_dir();
            Failure::new(exit::UNAVAILABLE, "cannot make a temporary directory").at(space.display()).because(error)
        })?))
    }

    fn path(&self) -> &Path {
        match self {
            Staging::Prefix(directory) => directory.path(),
            Staging::DryRun(directory) => directory.path(),
        }
    }
}

struct Taking<'a> {
    survivors: &'a Survivors,
    shape: Option<Topology>,
    checkpoint: u32,
    bar: Bar,
    staging: &'a Path,
}

impl Taking<'_> {
    /// Restores a rank's file, and puts it into the dataset under its new rank.
    fn take(&mut self, from: u32, rank: u32, import: Option<&Import<'_>>) -> Result<Taken, Failure> {
        let name = |rank| FileName { checkpoint: Some(self.checkpoint), role: FileRole::Rank, rank }.to_string();
        let (old, new) = (name(from), name(rank));
        let group = self.shape.and_then(|shape| shape.group_of(from)).unwrap_or_else(|| vec![from]);
        let to = Destination::new(self.staging, false)?;
        let (survivors, checkpoint) = (self.survivors, self.checkpoint);
        let source = self.bar.during(&old, |progress| restore(survivors, &group, checkpoint, from, &to, progress))?;
        let path = self.staging.join(&old);
        let corrected = self.bar.during(&old, |progress| repair::checkpoint(&path, false, progress))?;
        let check = self.bar.during(&old, |progress| verify::verify_own(&path, progress))?;
        if let Some(damage) = check.damages.first() {
            return Err(Failure::new(exit::DAMAGED_DATA, format!("{old}: damaged: {damage}")));
        }
        let bytes = match import {
            Some(import) => import.put(Rank(rank), &new, &path)?,
            None => fs::metadata(&path).map_err(unreadable(&path))?.len(),
        };
        // The next file needs its space.
        fs::remove_file(&path).map_err(unreadable(&path))?;
        Ok(Taken { source, bytes, corrected: corrected == Repair::Corrected })
    }
}

fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::new(exit::UNAVAILABLE, "cannot use a restored file").at(path.display()).because(error)
}

impl ImportedFile {
    fn json(&self) -> Value {
        match &self.result {
            Ok(taken) => json!({
                "rank": self.rank, "from_rank": self.from, "source": source_names(&taken.source).0,
                "bytes": taken.bytes, "corrected": taken.corrected,
            }),
            Err(failure) => json!({"rank": self.rank, "from_rank": self.from, "error": failure.message}),
        }
    }

    /// What is worth a line.
    fn lines(&self, checkpoint: u32) -> Vec<String> {
        let name = FileName { checkpoint: Some(checkpoint), role: FileRole::Rank, rank: self.from };
        let taken = match &self.result {
            Ok(taken) => taken,
            Err(failure) => return vec![printable(&failure.message)],
        };
        let mut lines = Vec::new();
        if taken.source != RestoreSource::Copy {
            lines.push(format!("{name}: restored from {}", source_names(&taken.source).1));
        }
        if taken.corrected {
            lines.push(format!("{name}: its checksum, which FTI refuses, was corrected in the imported file"));
        }
        if self.from != self.rank {
            lines.push(format!("{name}: is rank {} without heads", self.rank));
        }
        lines
    }
}

/// The ranks that wrote the checkpoint, in order, by the numbers that FTI gave them.
fn writers(shape: Option<Topology>, nodes: Option<u32>, given: Option<u32>) -> Result<Vec<u32>, Failure> {
    let usage = |what: String, remedy: &str| Failure::new(exit::USAGE, what).remedy(remedy);
    let is_head = |rank: u32| shape.is_some_and(|shape| shape.head && rank.checked_rem(shape.node_size) == Some(0));
    let processes = shape.zip(nodes).and_then(|(shape, nodes)| shape.node_size.checked_mul(nodes));
    let processes = processes.filter(|processes| *processes > 0);
    let heads = |processes: u32| (0..processes).filter(|rank| is_head(*rank)).count();
    let listed = processes.map(|processes| (processes as usize).saturating_sub(heads(processes.min(MOST_RANKS))));
    let wanted = match (listed, given) {
        (None, None) => {
            return Err(usage(
                "the number of ranks is unknown".to_owned(),
                "give --ranks, or the directory with FTI's Topology.fti and its configuration: a lost last rank would \
                 not be noticed",
            ));
        }
        (Some(listed), Some(given)) if listed != given as usize => {
            let what = format!("--ranks {given}: by FTI's Topology.fti and configuration, {listed} ranks wrote it");
            return Err(usage(what, "leave --ranks out, or check node_size and head"));
        }
        (_, Some(given)) => given as usize,
        (Some(listed), None) => listed,
    };
    if wanted == 0 || wanted > MOST_RANKS as usize {
        return Err(usage(format!("{wanted} ranks: the number is from 1 to {MOST_RANKS}"), "check --ranks"));
    }
    if shape.is_some_and(|shape| shape.head && shape.node_size == 1) {
        return Err(usage("all processes are heads".to_owned(), "check node_size and head"));
    }
    let ranks: Vec<u32> = (0..u32::MAX).filter(|rank| !is_head(*rank)).take(wanted).collect();
    Ok(ranks)
}

/// Of FTI's modes, one writes files that contain what they are.
fn refuse_other_modes(survivors: &Survivors, checkpoint: u32) -> Result<(), Failure> {
    let mut files = survivors.files.iter().filter(|file| file.name.checkpoint == Some(checkpoint)).peekable();
    let path = files.peek().map(|file| file.path.clone());
    // The first file that is one is enough: each is verified later.
    if files.any(|file| is_fti_ff(&file.path)) {
        return Ok(());
    }
    let failure = Failure::new(exit::DAMAGED_DATA, "no file of the checkpoint is an FTI-FF file");
    Err(failure.at(printable(&path.unwrap_or_default().display().to_string())).remedy(
        "files of other modes do not contain which variables they hold: take a checkpoint by FTI with `ckpt_io = 3`",
    ))
}

/// A file that cannot be read is reported when it is restored.
fn is_fti_ff(path: &Path) -> bool {
    let file = Input::open(path).and_then(inspect);
    !matches!(file, Ok(FtiFile::Unreadable(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Topology = Topology { ranks: u32::MAX, node_size: 2, group_size: 4, head: false };

    #[test]
    fn ranks_follow_from_the_topology_without_heads() {
        assert_eq!(writers(Some(SHAPE), Some(2), None).unwrap(), [0, 1, 2, 3]);
        let heads = Topology { head: true, ..SHAPE };
        assert_eq!(writers(Some(heads), Some(4), None).unwrap(), [1, 3, 5, 7]);
        assert_eq!(writers(Some(heads), None, Some(3)).unwrap(), [1, 3, 5]);
        assert_eq!(writers(Some(heads), Some(4), Some(4)).unwrap(), [1, 3, 5, 7]);
        assert_eq!(writers(None, Some(4), Some(2)).unwrap(), [0, 1]);
    }

    #[test]
    fn unknown_contradicting_and_impossible_numbers_are_refused() {
        let alone = Topology { node_size: 1, head: true, ..SHAPE };
        let huge = Topology { node_size: u32::MAX, ..SHAPE };
        for (shape, nodes, given) in [
            (Some(SHAPE), None, None),
            (None, Some(4), None),
            (Some(SHAPE), Some(2), Some(5)),
            (None, None, Some(0)),
            (None, None, Some(u32::MAX)),
            (Some(alone), Some(4), None),
            (Some(alone), None, Some(3)),
            (Some(huge), Some(1), None),
            (Some(huge), Some(2), None),
            (Some(Topology { node_size: 0, ..SHAPE }), Some(2), None),
        ] {
            let refused = writers(shape, nodes, given).unwrap_err();
            assert_eq!(refused.code(), exit::USAGE, "{shape:?} {nodes:?} {given:?}");
        }
    }
}
