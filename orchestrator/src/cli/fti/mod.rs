//! `holdfast fti`: checks the files of a group of ranks against each other, restores lost ones, and corrects those that
//! FTI refuses. [`write`] makes a checkpoint; [`import`] takes one of FTI into a prefix directory.

mod import;
mod import_dataset;
mod write;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use holdfast_formats::fti_ff::repair::{self, ParityMatch, Repair};
use holdfast_formats::fti_ff::restore::{RestoreSource, restore};
use holdfast_formats::fti_ff::survivors::{Survivor, Survivors};
use holdfast_formats::fti_ff::topology::Topology;
use holdfast_formats::fti_ff::{group_check, name};
use holdfast_formats::{Destination, FileCheck, FormatsError};
use serde_json::{Value, json};

use super::extract::place;
use super::failure::Failure;
use super::output::{Style, printable, report};
use super::progress::Bar;
use super::verify::others;
use super::walk::worst;
use crate::exit;

/// The number of ranks is unknown; FTI requires full groups.
const UNKNOWN_RANKS: u32 = u32::MAX;
/// Maximum size of an FTI configuration.
const MOST_CONFIG_BYTES: u64 = 1 << 20;
/// Groups without files that are reported.
const MOST_LOST_GROUPS: usize = 1000;

/// Check, restore, correct, write and import checkpoint files of FTI
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct FtiArgs {
    #[command(subcommand)]
    command: FtiCommand,
}

#[derive(Debug, clap::Subcommand)]
enum FtiCommand {
    /// Compare partner copies with what they copy, and parity with the sum of its group's files
    #[command(after_help = "\
Examples:
  holdfast fti verify run                   local/, global/ and config.fti are in run
  holdfast fti verify --node-size 2 --group-size 4 /mnt/node*/fti

A file that the level requires and that is missing is a damage, also if its whole group is lost: the processes of a \
node follow from node_size, and the nodes from FTI's Topology.fti, where it is found. At levels 1 and 4, which have \
neither copies nor parity, each file is checked by its hashes; so is the differential checkpoint (dCPFile-Rank*.fti), \
whose groups need not be known. Single files are checked by `holdfast verify`.

Exit codes: 0 all files are intact; 65 a file is damaged or missing; 69 there are no files, or a file cannot be \
read")]
    Verify(GroupArgs),
    /// Restore a lost rank's checkpoint from a copy, its partner copy, or the parity of its group
    #[command(after_help = "\
Examples:
  holdfast fti restore run --rank 2 --to restored
  holdfast fti restore run --rank 2,3 --checkpoint 6 --to restored
                                            at level 3 any half of a group may be lost
  holdfast fti restore --dry-run run --rank 2 --to restored

Damaged files are not used, and a restored file is verified before it gets its name.

Exit codes: 0 all files were restored; 65 not enough files are intact; 69 there are no files, or a file exists \
already, or cannot be read or written")]
    Restore(RestoreArgs),
    /// Correct checkpoints that FTI refuses although their data are intact
    #[command(after_help = "\
Examples:
  holdfast fti repair --dry-run run         show what would be corrected
  holdfast fti repair run

From v1.3 on, FTI writes a wrong checksum once a variable has shrunk so far that one of its containers is empty, and \
then refuses the file. `verify` has a note on such files. Their checksum is corrected, in place: each file is replaced \
by a verified one. Partner copies stay equal to what they copy, and parity is computed again; groups are needed for \
that only. Later checkpoints of the same run are refused again until the variable has grown.

Exit codes: 0 FTI accepts all files; 65 a file is damaged, or its group is not complete; 69 there are no files, or a \
file cannot be read or written")]
    Repair(RepairArgs),
    /// Import a checkpoint of FTI into a prefix directory: a job of variables restarts from it
    #[command(after_help = "\
Examples:
  holdfast fti import run --prefix heat-run local/, global/, meta/ and config.fti are in run
  holdfast fti import --dry-run run --prefix heat-run
                                            test whether all files are there, or can be restored
  holdfast fti import global --ranks 64 --prefix heat-run
                                            a level 4 without FTI's metadata
  holdfast fti import --config config.fti /mnt/node*/fti meta --prefix heat-run
                                            the directories of all nodes

The program is linked with Holdfast's libfti, and its job has `checkpoint: {source: variables}`. The files of FTI 1.1 \
to 1.6 are taken, if they are FTI-FF files (`ckpt_io = 3`). They are only read. Lost and damaged files are restored \
from copies and parity, as by `holdfast fti restore`. Heads have no checkpoint: the other ranks are numbered without \
them.

Exit codes: 0 imported; 64 the number of ranks is unknown, or not that of FTI's Topology.fti; 65 files are lost or \
damaged, or not FTI-FF files: nothing is imported; 69 there are no files, the prefix directory has checkpoints, or a \
file cannot be read or written")]
    Import(import::ImportArgs),
    /// Write a checkpoint of files that contain the bytes of variables
    #[command(after_help = "\
Examples:
  holdfast fti write Ckpt1-Rank0.fti 1:step:long:step.bin 2:field:double:field.bin
  holdfast fti write Ckpt2-Rank0.fti --previous Ckpt1-Rank0.fti 1:step:long:step.bin 2:field:double:larger.bin
  holdfast fti write --dry-run Ckpt1-Rank0.fti 7:particles:24:particles.bin
                                            elements of 24 bytes

The layout is that of FTI 1.1. Files contain bytes only: name and type are checked and shown, not stored. `holdfast \
extract` makes such files of a checkpoint.

Exit codes: 0 written and verified; 64 a variable is not described correctly, or does not fit the previous checkpoint; \
65 a file is not a whole number of elements, or the previous checkpoint is damaged; 69 a file cannot be read or \
written, or exists already")]
    Write(write::WriteArgs),
}

/// The files, and the parameters of groups.
#[derive(Debug, clap::Args)]
struct GroupArgs {
    /// The directories of the remaining nodes, or a directory above them
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Only this checkpoint [default: restore the newest, else all]
    #[arg(long, value_name = "ID")]
    checkpoint: Option<u32>,
    /// The execution, if there are several
    #[arg(long, value_name = "NAME")]
    execution: Option<String>,
    /// FTI's configuration with node_size, group_size and head [default: config.fti in the first directory that has
    /// one]
    #[arg(long, value_name = "FILE", help_heading = "Groups")]
    config: Option<PathBuf>,
    /// Processes on a node
    #[arg(long, value_name = "N", requires = "group_size", conflicts_with = "config", help_heading = "Groups")]
    node_size: Option<u32>,
    /// Nodes in a group
    #[arg(long, value_name = "N", requires = "node_size", conflicts_with = "config", help_heading = "Groups")]
    group_size: Option<u32>,
    /// The first process of each node is a head and has no checkpoint
    #[arg(long, conflicts_with = "config", help_heading = "Groups")]
    head: bool,
}

#[derive(Debug, clap::Args)]
struct RestoreArgs {
    #[command(flatten)]
    group: GroupArgs,
    /// The ranks whose files are lost
    #[arg(long, value_name = "RANK", required = true, value_delimiter = ',')]
    rank: Vec<u32>,
    /// The directory for the files; created if missing
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Replace existing files
    #[arg(long)]
    force: bool,
    /// Restore into a temporary directory and remove it again, to test whether it is possible
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
struct RepairArgs {
    #[command(flatten)]
    group: GroupArgs,
    /// Show what would be corrected; write nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: FtiArgs, output: Style) -> Result<u8, Failure> {
    match args.command {
        FtiCommand::Verify(args) => verify(&args, output),
        FtiCommand::Restore(args) => restore_ranks(&args, output),
        FtiCommand::Repair(args) => repair_files(&args, output),
        FtiCommand::Import(args) => import::run(&args, output),
        FtiCommand::Write(args) => write::run(&args, output),
    }
}

impl GroupArgs {
    /// The files that were found. A differential checkpoint has no id, no groups and no redundancy.
    fn survivors(&self, with_differential: bool) -> Result<Survivors, Failure> {
        let roots: Vec<&Path> = self.directories.iter().map(PathBuf::as_path).collect();
        let survivors = Survivors::scan(&roots, self.execution.as_deref()).map_err(|error| match error {
            // Not damage: the user has to choose an execution.
            FormatsError::NotRestorable { .. } => Failure::of(exit::USAGE, &error).remedy("give --execution"),
            error => error.into(),
        })?;
        let differential = with_differential && !survivors.files.is_empty();
        if let Some(wanted) = self.checkpoint
            && !survivors.checkpoints().is_empty()
            && !survivors.files.iter().any(|file| file.name.checkpoint == Some(wanted))
        {
            let known: Vec<String> = survivors.checkpoints().iter().map(ToString::to_string).collect();
            return Err(Failure::new(exit::UNAVAILABLE, format!("there is no checkpoint {wanted}"))
                .remedy(format!("give one of the checkpoints that are there: {}", known.join(", "))));
        }
        if survivors.checkpoints().is_empty() && !differential {
            let place = roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ");
            return Err(Failure::new(exit::UNAVAILABLE, "no FTI checkpoint in these directories")
                .at(printable(&place))
                .remedy(
                    "give the directories with local and global checkpoints; --execution must exist there, and only \
                     FTI-FF files (`ckpt_io = 3`) are found",
                ));
        }
        Ok(survivors)
    }

    /// The groups of the files that `wanted` accepts, with their checkpoints. Only of ranks with files: a file name may
    /// contain any rank, so there must be no loop up to it.
    fn groups(
        &self,
        survivors: &Survivors,
        shape: Topology,
        wanted: impl Fn(&Survivor) -> bool,
    ) -> Result<BTreeSet<(u32, Vec<u32>)>, Failure> {
        let mut groups = BTreeSet::new();
        for file in survivors.files.iter().filter(|file| wanted(file)) {
            if let Some(checkpoint) = file.name.checkpoint.filter(|id| self.includes(*id)) {
                let group = shape.group_of(file.name.rank).ok_or_else(|| no_group(file.name.rank))?;
                groups.insert((checkpoint, group));
            }
        }
        Ok(groups)
    }

    /// The groups whose ranks must have a file of the differential checkpoint, if any rank has one. It needs no groups:
    /// if they are unknown, the ranks that have files.
    fn differential_groups(&self, survivors: &Survivors) -> Result<BTreeSet<Vec<u32>>, Failure> {
        let ranks: BTreeSet<u32> = survivors.differential().map(|file| file.name.rank).collect();
        if ranks.is_empty() {
            return Ok(BTreeSet::new());
        }
        let Some(shape) = self.shape_if_known()? else {
            return Ok(BTreeSet::from([ranks.into_iter().collect()]));
        };
        // Any number will do for the checkpoint.
        let groups = ranks.into_iter().map(|rank| Ok((0, shape.group_of(rank).ok_or_else(|| no_group(rank))?)));
        let found = groups.collect::<Result<BTreeSet<_>, Failure>>()?;
        let lost = lost_groups(shape, &found, survivors.nodes()?);
        Ok(found.into_iter().chain(lost).map(|(_, ranks)| ranks).collect())
    }

    fn includes(&self, checkpoint: u32) -> bool {
        self.checkpoint.is_none_or(|wanted| wanted == checkpoint)
    }

    fn shape(&self) -> Result<Topology, Failure> {
        self.shape_if_known()?.ok_or_else(|| {
            Failure::new(exit::USAGE, "the groups of ranks are unknown")
                .remedy("give FTI's configuration with --config, or --node-size and --group-size")
        })
    }

    /// `None` if neither parameters nor a configuration are there.
    fn shape_if_known(&self) -> Result<Option<Topology>, Failure> {
        if let (Some(node_size), Some(group_size)) = (self.node_size, self.group_size) {
            return Ok(Some(Topology { ranks: UNKNOWN_RANKS, node_size, group_size, head: self.head }));
        }
        let found =
            || self.directories.iter().map(|directory| directory.join("config.fti")).find(|path| path.is_file());
        let Some(path) = self.config.clone().or_else(found) else {
            return Ok(None);
        };
        let unusable = |what: String| Failure::new(exit::USAGE, what).at(printable(&path.display().to_string()));
        let size = fs::metadata(&path).map(|metadata| metadata.len());
        let text = size.and_then(|size| match size {
            0..=MOST_CONFIG_BYTES => fs::read(&path),
            _ => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
        });
        let text = text.map_err(|error| unusable("cannot read FTI's configuration".to_owned()).because(error))?;
        let text = String::from_utf8_lossy(&text);
        parse_topology(&text).map(Some).map_err(|key| unusable(format!("no number for {key} in FTI's configuration")))
    }
}

/// Reads a configuration of FTI. The error is the key that has no number.
fn parse_topology(text: &str) -> Result<Topology, &'static str> {
    let number = |key: &'static str| {
        let value = text.lines().filter_map(|line| line.split_once('=')).find(|(name, _)| name.trim() == key);
        value.and_then(|(_, value)| value.trim().parse::<u32>().ok()).ok_or(key)
    };
    Ok(Topology {
        ranks: UNKNOWN_RANKS,
        node_size: number("node_size")?,
        group_size: number("group_size")?,
        head: number("head") == Ok(1),
    })
}

/// True if there are checkpoint files of FTI below a directory.
pub(super) fn are_below(directory: &Path) -> bool {
    match Survivors::scan(&[directory], None) {
        Ok(survivors) => !survivors.files.is_empty(),
        // Of several executions.
        Err(error) => matches!(error, FormatsError::NotRestorable { .. }),
    }
}

/// The groups without any file, by checkpoint: those of the other processes on nodes that have files, and those on
/// the other nodes of the execution, whose number FTI's metadata contain.
fn lost_groups(topology: Topology, found: &BTreeSet<(u32, Vec<u32>)>, nodes: Option<u32>) -> Vec<(u32, Vec<u32>)> {
    let of_sector = |first: u32| {
        let sector = first.checked_div(topology.node_size)?.checked_div(topology.group_size)?;
        sector.checked_mul(topology.group_size)?.checked_mul(topology.node_size)
    };
    let checkpoints: BTreeSet<u32> = found.iter().map(|(checkpoint, _)| *checkpoint).collect();
    let mut lost = Vec::new();
    for checkpoint in checkpoints {
        let of_checkpoint = found.iter().filter(|(id, _)| *id == checkpoint);
        let mut sectors: BTreeSet<u32> = of_checkpoint.filter_map(|(_, ranks)| of_sector(*ranks.first()?)).collect();
        let complete = nodes.and_then(|nodes| nodes.checked_div(topology.group_size)).unwrap_or(0);
        let ranks = topology.node_size.saturating_mul(topology.group_size);
        sectors.extend((0..complete).map_while(|sector| sector.checked_mul(ranks)));
        for first in sectors {
            let places = u32::from(topology.head)..topology.node_size;
            let groups = places.map_while(|place| topology.group_of(first.checked_add(place)?));
            let groups = groups.map(|ranks| (checkpoint, ranks)).filter(|group| !found.contains(group));
            // The configuration may contain any number.
            lost.extend(groups.take(MOST_LOST_GROUPS.saturating_sub(lost.len())));
        }
    }
    lost
}

/// Parses a configuration and asks for groups, for the fuzz target.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_config(text: &str) {
    let Ok(shape) = parse_topology(text) else { return };
    for rank in [0, 1, 7, u32::MAX - 1, u32::MAX] {
        let group = shape.group_of(rank).unwrap_or_default();
        assert!(group.is_empty() || group.contains(&rank), "rank {rank} is not in its group {group:?}");
    }
}

fn verify(args: &GroupArgs, output: Style) -> Result<u8, Failure> {
    // The differential checkpoint has no id.
    let survivors = args.survivors(args.checkpoint.is_none())?;
    let mut checked = Vec::new();
    if !survivors.checkpoints().is_empty() {
        let shape = args.shape()?;
        let mut groups = args.groups(&survivors, shape, |_| true)?;
        let lost = lost_groups(shape, &groups, survivors.nodes()?);
        groups.extend(lost);
        for (checkpoint, ranks) in groups {
            let check = group_check::check(&survivors, &ranks, checkpoint)?;
            checked.push(Group { checkpoint: Some(checkpoint), ranks, check });
        }
    }
    if args.checkpoint.is_none() {
        for ranks in args.differential_groups(&survivors)? {
            let check = group_check::check_differential(&survivors, &ranks)?;
            checked.push(Group { checkpoint: None, ranks, check });
        }
    }
    let damaged = checked.iter().filter(|group| !group.check.is_intact()).count();
    let fields = json!({"groups": checked.iter().map(Group::json).collect::<Vec<_>>(), "damaged": damaged});
    output.result(&report(fields, |to| checked.iter().try_for_each(|group| group.write(to))))?;
    Ok(if damaged == 0 { exit::FINISHED } else { exit::DAMAGED_DATA })
}

fn no_group(rank: u32) -> Failure {
    Failure::new(exit::USAGE, format!("rank {rank} has no group in this configuration"))
        .remedy("check node_size, group_size and head; a head has no checkpoint")
}

struct Group {
    /// `None`: the differential checkpoint.
    checkpoint: Option<u32>,
    ranks: Vec<u32>,
    check: FileCheck,
}

impl Group {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let Group { checkpoint, ranks, check } = self;
        let ranks = ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let of = match checkpoint {
            Some(checkpoint) => format!("checkpoint {checkpoint}, ranks {ranks}"),
            None => format!("differential checkpoint, ranks {ranks}"),
        };
        let by_hashes =
            || checkpoint.is_none() || check.notes.iter().any(|note| note.kind == group_check::NO_REDUNDANCY);
        match check.damages.first() {
            None if by_hashes() => {
                writeln!(to, "{of}: intact, {} bytes checked by the files' hashes", check.checked_bytes)?;
            }
            None => writeln!(to, "{of}: intact, {} bytes of copies and parity compared", check.checked_bytes)?,
            Some(first) => {
                let others = others(check.damages.len(), check.unlisted);
                writeln!(to, "{of}: damaged: {}{others}", printable(&first.to_string()))?;
            }
        }
        check.notes.iter().try_for_each(|note| writeln!(to, "  note: {}", printable(&note.to_string())))
    }

    fn json(&self) -> Value {
        let mut fields = json!({"checkpoint": self.checkpoint, "ranks": self.ranks});
        if let Some(fields) = fields.as_object_mut() {
            fields.extend(self.check.json());
        }
        fields
    }
}

fn repair_files(args: &RepairArgs, output: Style) -> Result<u8, Failure> {
    let survivors = args.group.survivors(true)?;
    let mut bar = Bar::new(output);
    let mut files = Vec::new();
    // The groups are needed for parity only.
    let has_parity = |file: &Survivor| file.name.role == name::FileRole::Parity;
    let groups = match survivors.files.iter().any(has_parity) {
        true => args.group.groups(&survivors, args.group.shape()?, has_parity)?,
        false => BTreeSet::new(),
    };
    let mut kept = BTreeSet::new();
    for (checkpoint, ranks) in &groups {
        let label = format!("checkpoint {checkpoint}");
        let matches = bar
            .during(&label, |progress| repair::match_parity(&survivors, ranks, *checkpoint, progress))?
            .map(|found| found.into_iter().all(|(_, found)| found != ParityMatch::Different));
        if matches != Some(true) {
            kept.extend(ranks.iter().map(|rank| (*checkpoint, *rank)));
        }
    }
    let included = |file: &&Survivor| file.name.checkpoint.is_none_or(|id| args.group.includes(id));
    for file in survivors.files.iter().filter(included).filter(|file| !has_parity(file)) {
        let is_kept = file.name.checkpoint.is_some_and(|id| kept.contains(&(id, file.name.rank)));
        let is_kept = is_kept && file.name.role == name::FileRole::Rank;
        let label = file.path.display().to_string();
        let repaired = bar.during(&label, |progress| repair::checkpoint(&file.path, args.dry_run || is_kept, progress));
        let corrected = match repaired {
            Ok(Repair::Corrected) if is_kept => {
                let message = format!(
                    "{label}: not corrected: files of its group are missing or damaged, or do not fit their parity; \
                     restore them first (`holdfast fti restore`), and check node_size, group_size and head"
                );
                Err(Failure::new(exit::DAMAGED_DATA, message))
            }
            Ok(Repair::Corrected) => Ok(true),
            Ok(Repair::NotNeeded) => Ok(false),
            Ok(Repair::Damaged(damage)) => Err(Failure::new(exit::DAMAGED_DATA, format!("{label}: damaged: {damage}"))),
            Err(error) => Err(error.into()),
        };
        files.push(RepairedFile { path: file.path.clone(), corrected });
    }
    for (checkpoint, ranks) in
        groups.iter().filter(|(id, ranks)| !ranks.iter().any(|rank| kept.contains(&(*id, *rank))))
    {
        if args.dry_run {
            let of_group = |file: &&Survivor| {
                file.name.checkpoint == Some(*checkpoint) && ranks.contains(&file.name.rank) && has_parity(file)
            };
            let is_corrected = files.iter().any(|file| file.is_corrected_of(*checkpoint, ranks));
            let parity = survivors.files.iter().filter(of_group).filter(|_| is_corrected);
            files.extend(parity.map(|file| RepairedFile { path: file.path.clone(), corrected: Ok(true) }));
            continue;
        }
        let label = format!("parity of checkpoint {checkpoint}");
        match bar.during(&label, |progress| repair::parity(&survivors, ranks, *checkpoint, progress)) {
            Ok(replaced) => {
                files.extend(replaced.into_iter().map(|path| RepairedFile { path, corrected: Ok(true) }));
            }
            Err(error) => files.push(RepairedFile { path: PathBuf::from(label), corrected: Err(error.into()) }),
        }
    }
    let code = worst(files.iter().map(|file| file.corrected.as_ref().err().map_or(exit::FINISHED, Failure::code)));
    let file = |file: &RepairedFile| {
        let path = file.path.display().to_string();
        match &file.corrected {
            Ok(corrected) => json!({"path": path, "corrected": corrected}),
            Err(failure) => json!({"path": path, "error": failure.message}),
        }
    };
    let count = files.iter().filter(|file| matches!(file.corrected, Ok(true))).count();
    let listed: Vec<Value> = files.iter().map(file).collect();
    let fields = json!({"dry_run": args.dry_run, "files": listed, "corrected": count});
    output.result(&report(fields, |to| {
        let verb = if args.dry_run { "would be corrected" } else { "corrected" };
        for RepairedFile { path, corrected } in &files {
            match corrected {
                Ok(true) => writeln!(to, "{}: {verb}", printable(&path.display().to_string()))?,
                Ok(false) => {}
                Err(failure) => writeln!(to, "{}", printable(&failure.message))?,
            }
        }
        writeln!(to, "{count} of {} files {verb}", files.len())
    }))?;
    Ok(code)
}

struct RepairedFile {
    path: PathBuf,
    /// True if it was corrected, false if FTI accepts it.
    corrected: Result<bool, Failure>,
}

impl RepairedFile {
    /// True for the corrected file of a rank of this group.
    fn is_corrected_of(&self, checkpoint: u32, ranks: &[u32]) -> bool {
        let name = self.path.file_name().and_then(|name| name::FileName::parse(name.to_str()?));
        matches!(self.corrected, Ok(true))
            && name.is_some_and(|name| {
                name.checkpoint == Some(checkpoint) && name.role == name::FileRole::Rank && ranks.contains(&name.rank)
            })
    }
}

fn restore_ranks(args: &RestoreArgs, output: Style) -> Result<u8, Failure> {
    let (survivors, shape) = (args.group.survivors(false)?, args.group.shape()?);
    let newest = survivors.checkpoints().first().copied();
    let Some(checkpoint) = args.group.checkpoint.or(newest) else {
        return Err(Failure::new(exit::UNAVAILABLE, "no FTI checkpoint in these directories"));
    };
    // A restored file is verified before it gets its name, so a dry run needs a directory too.
    let temporary = args.dry_run.then(tempfile::tempdir).transpose().map_err(|error| {
        Failure::new(exit::UNAVAILABLE, "cannot make a temporary directory for the dry run").because(error)
    })?;
    let directory = temporary.as_ref().map_or(args.to.as_path(), |temporary| temporary.path());
    let to = place(directory, args.force, false)?;
    let mut bar = Bar::new(output);
    let mut files = Vec::new();
    for rank in &args.rank {
        let group = shape.group_of(*rank).ok_or_else(|| no_group(*rank))?;
        let file = name::FileName { checkpoint: Some(checkpoint), role: name::FileRole::Rank, rank: *rank }.to_string();
        if args.dry_run {
            Destination::dry_run(&args.to, args.force).check(&args.to.join(&file))?;
        }
        let result = bar
            .during(&file, |progress| restore(&survivors, &group, checkpoint, *rank, &to, progress))
            .map_err(Failure::from);
        files.push((*rank, file, result));
    }
    let code = worst(files.iter().map(|(.., result)| result.as_ref().err().map_or(exit::FINISHED, Failure::code)));
    let listed = files.iter().map(|(rank, file, result)| match result {
        Ok(source) => json!({"rank": rank, "file": file, "source": source_names(source).0}),
        Err(failure) => json!({"rank": rank, "error": failure.message}),
    });
    let fields = json!({
        "checkpoint": checkpoint,
        "to": args.to.display().to_string(),
        "dry_run": args.dry_run,
        "files": listed.collect::<Vec<_>>(),
    });
    output.result(&report(fields, |to| {
        let verb = if args.dry_run { "can be restored" } else { "restored" };
        files.iter().try_for_each(|(_, file, result)| match result {
            Ok(source) => writeln!(to, "{file}: {verb} from {}", source_names(source).1),
            Err(failure) => writeln!(to, "{}", printable(&failure.message)),
        })
    }))?;
    Ok(code)
}

/// A source in JSON, and for people.
fn source_names(source: &RestoreSource) -> (&'static str, &'static str) {
    match source {
        RestoreSource::Copy => ("copy", "a copy of it"),
        RestoreSource::Partner => ("partner", "its partner copy"),
        RestoreSource::ReedSolomon => ("reed-solomon", "the parity of its group"),
    }
}
