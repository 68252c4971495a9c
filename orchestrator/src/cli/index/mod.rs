//! `holdfast index`: the checkpoints below a prefix directory (`scr_index`).

mod keep;
mod place;
mod removal;
mod restore;

use std::env;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{Local, NaiveDateTime};
use holdfast_core::owned::{Found, OwnedError};
use holdfast_core::prefix::add::AddOutcome;
use holdfast_core::prefix::index::{self, IndexEntry, LIST_HEADER, list_line};
use holdfast_core::prefix::scan::ScanOptions;
use holdfast_core::prefix::{AddOptions, AddReport, add, copy, dataset, publish, reindex};
use holdfast_core::store::{self, DatasetAccess, DatasetStore, DirectoryName, PrefixError};
use holdfast_model::Level;
use serde_json::{Value, json};

use super::failure::Failure;
use super::fti;
use super::job::JobSelection;
use super::output::{Report, Style, document, printable, report};
use super::prefix_access;
use super::progress::Bytes;
use crate::exit;
use crate::job::state::StateError;
use crate::job::step_names;

/// List and change the index of the checkpoints below a prefix directory
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct IndexArgs {
    #[command(subcommand)]
    command: IndexCommand,
}

#[derive(Debug, clap::Subcommand)]
enum IndexCommand {
    /// List the checkpoints, newest first, as `scr_index --list` does; of a job of several steps, those of all steps
    #[command(after_help = "\
Examples:
  holdfast index list job.yaml
  holdfast index list --prefix ./heat-run
  holdfast index list --json | jq -r '.checkpoints[] | select(.complete) | .directory'

Flags: c complete, x incomplete; f a restart from it failed: the lines below say when and why (`holdfast index restore`
takes it back). Behind the directory: the level of a checkpoint of variables, and `kept` (`holdfast index keep`)

An index that was lost is made again from the directories of your checkpoints first.")]
    List(JobSelection),
    /// Check a checkpoint directory, rebuild missing files if possible, and add it to the index
    #[command(after_help = "\
Examples:
  holdfast index add scr.2026-11-20_10:26:07.1145655.3 job.yaml
  holdfast index add --dry-run scr.2026-11-20_10:26:07.1145655.3
                                            show whether it is complete, and what would be rebuilt
  holdfast index add --copy scr.2026-11-20_10:26:07.1145655.3
                                            a colleague's: copy it, and add the copy

Exit codes: 0 complete; 65 incomplete, or nothing in it can be used; 73 complete, but files of the output are not at \
their paths, because something else is there: `holdfast index place`")]
    Add(AddArgs),
    /// Show or set the checkpoint that the next run restarts from (`scr.current`)
    #[command(after_help = "\
Examples:
  holdfast index current
  holdfast index current job.yaml
  holdfast index current scr.2026-11-20_10:26:07.1145655.2 job.yaml
  holdfast index current --unset            the newest complete one is used then

Exit codes: 0 shown, set or removed; 69 no checkpoint is current")]
    Current(CurrentArgs),
    /// Put the files of a complete output at the paths that the application named
    #[command(after_help = "\
Examples:
  holdfast index place plot.3               after what was at the paths has been moved away
  holdfast index place --replace plot.3     what is at the paths is replaced
  holdfast index place --dry-run plot.3     show which files are not at their paths

A run and a drain put them there, too, but never replace a file that no dataset of yours has recorded: it may be another
one. The output is complete nevertheless: its files stay in the directory of the dataset. Files of other users are never
replaced.

Exit codes: 0 all files are at their paths; 69 the dataset is not complete or belongs to another user; 73 something \
else is at the path of a file")]
    Place(place::PlaceArgs),
    /// Take back the marks of failed restarts: the next run may choose the checkpoint again
    #[command(after_help = "\
Examples:
  holdfast index list                       shows why a restart failed
  holdfast index restore scr.2026-11-20_10:26:07.1145655.3

A mark is set when a restart finds the data damaged. After a repair, or if the cause was another one, `holdfast verify`
and `holdfast index add --rescan` check the files.

Exit codes: 0 restored; 69 the index does not list it, or it has no mark")]
    Restore(ChangedEntry),
    /// Keep a checkpoint: neither `checkpoint.flush.keep` nor `holdfast index prune` deletes it
    #[command(after_help = "\
Examples:
  holdfast index keep scr.2026-11-20_10:26:07.1145655.3
  holdfast index keep scr.2026-11-20_10:26:07.1145655.3 --prefix ./heat-run

`holdfast index release` takes it back. The mark is in the index: `holdfast index drop`, and the loss of the index, take
it away.

Exit codes: 0 it is kept; 69 the index does not list it")]
    Keep(ChangedEntry),
    /// Take back `holdfast index keep`
    #[command(after_help = "\
Examples:
  holdfast index release scr.2026-11-20_10:26:07.1145655.3

Exit codes: 0 it is not kept; 69 the index does not list it")]
    Release(ChangedEntry),
    /// Remove a checkpoint from the index; its files are kept
    #[command(after_help = "\
Examples:
  holdfast index drop scr.2026-11-20_10:26:07.1145655.1

If the checkpoint is the current one, the link `scr.current` is removed too, because a restart would follow it.")]
    Drop(ChangedEntry),
    /// Delete checkpoints: their files and their entries in the index
    #[command(after_help = "\
Examples:
  holdfast index delete --dry-run scr.2026-11-20_10:26:07.1145655.1
  holdfast index delete --yes scr.2026-11-20_10:26:07.1145655.1 scr.2026-11-20_10:27:09.1145655.2

The last word is the job's spec if it ends in .yaml or names a file.

The current checkpoint is not deleted, and neither is one that a job may be writing or that `holdfast index keep` keeps.
Without --yes you are asked, which needs a terminal.

Files of an output that are outside its directory, at the paths that the application named, are listed and deleted with
it.")]
    Delete(removal::DeleteArgs),
    /// Delete old, incomplete or failed checkpoints
    #[command(after_help = "\
Examples:
  holdfast index prune --keep 3 --dry-run
  holdfast index prune --keep 3 --incomplete --yes job.yaml

At least one rule is needed. The current checkpoint is never deleted, and neither is one that a job may be writing or
that `holdfast index keep` keeps, nor, by --keep, a dataset that the application declared as output. Temporary files
that killed processes left are removed, too. Files outside the directory of a checkpoint are listed and deleted
with it. What belongs to other users is left alone. Without --yes you are asked, which needs a terminal.")]
    Prune(removal::PruneArgs),
}

/// The prefix directory of the job: of its spec, of `--prefix`, of `SCR_PREFIX`, or the current directory.
fn prefix_of(job: &JobSelection, output: Style) -> Result<PathBuf, Failure> {
    if job.spec.is_some() {
        // The checkpoints are read outside of the job's allocation, too.
        return job.prefix(&job.environment_for_drain(output)?);
    }
    let parameter = || env::var_os("SCR_PREFIX").filter(|path| !path.is_empty()).map(PathBuf::from);
    Ok(job.prefix.clone().or_else(parameter).unwrap_or_else(|| PathBuf::from(".")))
}

/// True if a word names a job spec instead of a checkpoint directory.
fn is_spec(word: &str) -> bool {
    let path = Path::new(word);
    path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml") || path.is_file()
}

/// The prefix directory of a command that changes datasets.
#[derive(Debug, clap::Args)]
struct ChangedPrefix {
    #[command(flatten)]
    job: JobSelection,
    /// As root: act as the owner of the prefix directory
    #[arg(long)]
    as_owner: bool,
}

impl ChangedPrefix {
    fn open(&self, dry_run: bool, output: Style) -> Result<Arc<dyn DatasetStore>, Failure> {
        let prefix = prefix_of(&self.job, output)?;
        if self.as_owner {
            prefix_access::become_owner(&prefix)?;
        } else if !dry_run {
            prefix_access::refuse_root(&prefix, prefix_access::AS_OWNER)?;
        }
        let store = store::open(&prefix)?;
        if !dry_run {
            restore_index(&*store, output)?;
        }
        Ok(store)
    }
}

/// The one checkpoint whose entry in the index a command changes.
#[derive(Debug, clap::Args)]
struct ChangedEntry {
    /// The checkpoint directory's name below the prefix
    #[arg(value_name = "DIRECTORY")]
    directory: String,
    #[command(flatten)]
    prefix: ChangedPrefix,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

impl ChangedEntry {
    fn find(&self, store: &dyn DatasetStore) -> Result<(DirectoryName, IndexEntry), Failure> {
        let directory = DirectoryName::given(&self.directory)?;
        let entry = index::read(store)?.unwrap_or_default().entry(&directory);
        let entry = entry.ok_or_else(|| removal::not_indexed(store, &directory))?;
        Ok((directory, entry))
    }
}

/// Makes a lost index again, and reports it.
fn restore_index(store: &dyn DatasetStore, output: Style) -> Result<(), PrefixError> {
    let entered = reindex::restore(store, Local::now().naive_local(), holdfast_formats::sion::dataset::open)?;
    if entered > 0 {
        let path = store.location().display();
        output.warn(&format!(
            "{path} had no index: it was made again with {entered} checkpoints; marks of failed restarts and of \
             `holdfast index keep` are lost"
        ));
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// The checkpoint directory's name below the prefix
    #[arg(value_name = "DIRECTORY")]
    directory: String,
    #[command(flatten)]
    prefix: ChangedPrefix,
    /// Make it the current one if it is complete
    #[arg(long)]
    current: bool,
    /// Of another user's dataset: make a copy that is yours, and add that. No file is put at the paths of an output
    #[arg(long, conflicts_with_all = ["dry_run", "rescan"])]
    copy: bool,
    /// Check again a directory that is indexed as complete
    #[arg(long)]
    rescan: bool,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
struct CurrentArgs {
    /// Make this checkpoint directory the current one
    #[arg(value_name = "DIRECTORY")]
    directory: Option<String>,
    #[command(flatten)]
    prefix: ChangedPrefix,
    /// Remove the link
    #[arg(long)]
    unset: bool,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

impl CurrentArgs {
    /// A single word may be the spec: then the current checkpoint is shown, or the link removed.
    fn with_spec_last(mut self) -> Self {
        if self.prefix.job.spec.is_none() && self.prefix.job.prefix.is_none() {
            self.prefix.job.spec = self.directory.take_if(|word| is_spec(word)).map(PathBuf::from);
        }
        self
    }
}

pub(super) fn run(args: IndexArgs, output: Style) -> Result<u8, Failure> {
    match args.command {
        IndexCommand::List(job) => {
            let prefix = prefix_of(&job, output)?;
            let store = store::open(&prefix)?;
            // Users who may only read it may list it, too.
            if prefix_access::refuse_root(&prefix, prefix_access::AS_OWNER).is_ok()
                && let Err(error) = restore_index(&*store, output)
            {
                output.warn(&error.to_string());
            }
            list(&*store, output)
        }
        IndexCommand::Add(args) => add_directory(&args, output),
        IndexCommand::Current(args) => current(&args.with_spec_last(), output),
        IndexCommand::Place(args) => place::place(&args, output),
        IndexCommand::Restore(args) => restore::restore(&args, output),
        IndexCommand::Keep(args) => keep::set(&args, true, output),
        IndexCommand::Release(args) => keep::set(&args, false, output),
        IndexCommand::Drop(args) => removal::drop_entry(&args, output),
        IndexCommand::Delete(args) => removal::delete(&args, output),
        IndexCommand::Prune(args) => removal::prune(&args, output),
    }
}

fn list(store: &dyn DatasetStore, output: Style) -> Result<u8, Failure> {
    let steps = match step_names::read(store.location()) {
        // Users who may read the prefix directory may list its checkpoints; the job's own directory is private.
        Err(StateError::Owned(error)) if is_of_another_user(&error) => Vec::new(),
        steps => steps?,
    };
    let own = listed(store, output)?;
    if own.is_none() && steps.is_empty() {
        return Err(Failure::new(exit::UNAVAILABLE, "the prefix directory has no index")
            .at(store.location().display())
            .remedy(
                "give the job's spec, or its prefix with --prefix; or add a checkpoint with `holdfast index add`",
            ));
    }
    let mut listed_steps = Vec::new();
    for (name, path) in steps {
        // A step that was not begun has no prefix directory.
        let listed = if path.is_dir() { listed(&*store::open(&path)?, output)? } else { None };
        listed_steps.push((name, listed.unwrap_or_else(|| ListedPrefix::empty(&path))));
    }
    let own = own.unwrap_or_else(|| ListedPrefix::empty(store.location()));
    output.result(&Listed { own, steps: listed_steps })?;
    Ok(exit::FINISHED)
}

fn is_of_another_user(error: &OwnedError) -> bool {
    match error {
        OwnedError::Io { source, .. } => source.kind() == ErrorKind::PermissionDenied,
        error => error.found().is_some(),
    }
}

/// The index of a prefix directory; `None` if it has none.
fn listed(store: &dyn DatasetStore, output: Style) -> Result<Option<ListedPrefix>, Failure> {
    let Some(index) = index::read(store)? else { return Ok(None) };
    // An invalid link must not prevent the listing.
    let current = store.current().unwrap_or_else(|error| {
        output.warn(&error.to_string());
        None
    });
    let path = store.location().display().to_string();
    let entries = index.entries().into_iter().map(|entry| ListedEntry::read(store, entry, output)).collect();
    Ok(Some(ListedPrefix { prefix: path, current, entries }))
}

struct Listed {
    own: ListedPrefix,
    /// The steps of a job of several.
    steps: Vec<(String, ListedPrefix)>,
}

struct ListedPrefix {
    prefix: String,
    current: Option<DirectoryName>,
    entries: Vec<ListedEntry>,
}

struct ListedEntry {
    entry: IndexEntry,
    /// Of a checkpoint of variables. SCR's index has no place for it: it is in the record of the directory.
    level: Option<Level>,
}

impl ListedEntry {
    fn read(store: &dyn DatasetStore, entry: IndexEntry, output: Style) -> Self {
        let record = dataset::read(store, &entry.directory).unwrap_or_else(|error| {
            output.warn(&error.to_string());
            None
        });
        ListedEntry { entry, level: record.and_then(|record| record.level) }
    }
}

impl ListedPrefix {
    fn empty(prefix: &Path) -> Self {
        ListedPrefix { prefix: prefix.display().to_string(), current: None, entries: Vec::new() }
    }

    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "{LIST_HEADER}")?;
        self.entries.iter().try_for_each(|ListedEntry { entry, level }| {
            let level = level.map(|level| format!("  level {level}")).unwrap_or_default();
            // Names may contain control characters.
            let kept = if entry.marks.kept { "  kept" } else { "" };
            writeln!(to, "{}{level}{kept}", printable(&list_line(entry)))?;
            // SCR's library records no reason.
            let mut reasons =
                entry.failed.iter().filter_map(|attempt| Some((attempt.time, attempt.reason.as_deref()?)));
            reasons.try_for_each(|(time, reason)| {
                writeln!(to, "       failed {}  {}", time_text(&time), printable(reason))
            })
        })
    }

    fn json(&self) -> Value {
        let checkpoint = |ListedEntry { entry, level }: &ListedEntry| {
            json!({
                "id": entry.id,
                "directory": entry.directory.as_str(),
                "complete": entry.complete == Some(true),
                "current": self.current.as_ref() == Some(&entry.directory),
                "level": level.map(Level::number),
                "kept": entry.marks.kept,
                "flushed": entry.flushed.as_ref().map(time_text),
                "fetched": entry.fetched.iter().map(time_text).collect::<Vec<_>>(),
                "failed": entry.failed.iter().map(|attempt| time_text(&attempt.time)).collect::<Vec<_>>(),
                "reasons": entry.failed.iter().map(|attempt| attempt.reason.as_deref()).collect::<Vec<_>>(),
            })
        };
        json!({
            "prefix": self.prefix,
            "current": self.current.as_ref().map(DirectoryName::as_str),
            "checkpoints": self.entries.iter().map(checkpoint).collect::<Vec<_>>(),
        })
    }
}

fn time_text(time: &NaiveDateTime) -> String {
    time.format("%Y-%m-%dT%H:%M:%S").to_string()
}

impl Report for Listed {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        if self.steps.is_empty() || !self.own.entries.is_empty() {
            self.own.human(to)?;
        }
        self.steps.iter().try_for_each(|(name, step)| {
            writeln!(to, "step {}:", printable(name))?;
            step.human(to)
        })
    }

    fn json(&self) -> Value {
        let mut fields = self.own.json();
        if !self.steps.is_empty() {
            let step = |(name, step): &(String, ListedPrefix)| {
                let mut fields = step.json();
                fields["name"] = name.as_str().into();
                fields
            };
            fields["steps"] = self.steps.iter().map(step).collect();
        }
        document(fields)
    }
}

fn add_directory(args: &AddArgs, output: Style) -> Result<u8, Failure> {
    let store = args.prefix.open(args.dry_run, output)?;
    let mut name = DirectoryName::given(&args.directory).map_err(|error| {
        let path = Path::new(&args.directory);
        if fti::are_below(path) { files_of_fti(path, &*store) } else { error.into() }
    })?;
    let open = holdfast_formats::sion::dataset::open;
    if args.copy {
        let scanned = ScanOptions { open, ..ScanOptions::default() };
        let copied = Bytes::new(output, "copy");
        let copying = copy::copy(&*store, &name, Local::now().naive_local(), scanned, &|bytes| copied.add(bytes));
        name = copying?.ok_or_else(|| {
            Failure::new(exit::DAMAGED_DATA, "nothing in it can be used: it is not copied")
                .at(store.path_of(&name).display())
        })?;
    } else if !args.dry_run && is_foreign(&*store, &name) {
        return Err(Failure::new(
            exit::UNAVAILABLE,
            "it belongs to another user: nothing is rebuilt or recorded in it",
        )
        .at(store.path_of(&name).display())
        .remedy("`--copy` makes a copy of yours first; `--dry-run` shows what is in it"));
    }
    let options = AddOptions {
        dry_run: args.dry_run,
        make_current: args.current,
        rescan: args.rescan,
        open,
        ..AddOptions::default()
    };
    let progress = Bytes::new(output, name.as_str());
    let added = add(&*store, &name, Local::now().naive_local(), &options, &|step| progress.step(step));
    drop(progress);
    let added = added?;
    if added.outcome == AddOutcome::NothingUsable && fti::are_below(&store.path_of(&name)) {
        return Err(files_of_fti(&store.path_of(&name), &*store));
    }
    let complete = added.is_complete() || added.outcome == AddOutcome::Rebuildable;
    let fields = json!({
        "directory": added.directory.as_str(),
        "id": added.id,
        "ranks": added.ranks,
        "outcome": outcome_name(added.outcome),
        "complete": added.is_complete(),
        "rebuilt": added.rebuilt.iter().flat_map(|set| &set.ranks).collect::<Vec<_>>(),
        "failures": added.failures.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "reasons": added.reasons.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "damaged": added.damaged.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "unplaced": added.unplaced,
        "dry_run": args.dry_run,
    });
    output.result(&report(fields, |to| write_added(&added, args.dry_run, to)))?;
    Ok(match complete {
        true if added.unplaced.is_some() => exit::CANNOT_WRITE,
        true => exit::FINISHED,
        false => exit::DAMAGED_DATA,
    })
}

fn files_of_fti(path: &Path, store: &dyn DatasetStore) -> Failure {
    let what = "it has checkpoint files of FTI, and none of Holdfast or SCR: they are imported, not added";
    let (path, prefix) = (printable(&path.display().to_string()), printable(&store.location().display().to_string()));
    Failure::new(exit::DAMAGED_DATA, what)
        .at(&path)
        .remedy(format!("`holdfast fti import {path} --prefix {prefix}` takes the newest checkpoint of it"))
}

/// True for a dataset whose directory belongs to another user.
fn is_foreign(store: &dyn DatasetStore, name: &DirectoryName) -> bool {
    let refused = store.open(name, DatasetAccess::Write).err();
    matches!(refused, Some(PrefixError::Owned(error)) if matches!(error.found(), Some(Found::OtherOwner { .. })))
}

fn outcome_name(outcome: AddOutcome) -> &'static str {
    match outcome {
        AddOutcome::AlreadyComplete => "already complete",
        AddOutcome::Complete => "complete",
        AddOutcome::Rebuildable => "rebuildable",
        AddOutcome::Incomplete => "incomplete",
        AddOutcome::NothingUsable => "nothing usable",
    }
}

fn write_added(report: &AddReport, dry_run: bool, to: &mut dyn Write) -> io::Result<()> {
    let AddReport { directory, id, ranks, outcome, rebuilt, failures, reasons, damaged, unplaced, .. } = report;
    write!(to, "{}", printable(directory.as_str()))?;
    if let Some(id) = id {
        write!(to, ": checkpoint {id}")?;
    }
    if *ranks > 0 {
        write!(to, " of {ranks} ranks")?;
    }
    let what = match (outcome, dry_run) {
        (AddOutcome::AlreadyComplete, _) => "is already indexed as complete",
        (AddOutcome::Complete, false) => "is complete and indexed",
        (AddOutcome::Complete, true) => "is complete, and would be indexed",
        (AddOutcome::Rebuildable, _) => "lacks files that can be rebuilt; it would be indexed as complete",
        (AddOutcome::Incomplete, false) => {
            "is not complete; indexed as such, and not used for a restart unless it is set as current"
        }
        (AddOutcome::Incomplete, true) => "is not complete, and would be indexed as such",
        (AddOutcome::NothingUsable, _) => "has no usable file; no restart uses it",
    };
    writeln!(to, " {what}")?;
    let verb = if dry_run { "would rebuild" } else { "rebuilt" };
    rebuilt.iter().try_for_each(|set| writeln!(to, "  {verb} {set}"))?;
    for text in failures.iter().map(ToString::to_string).chain(reasons.iter().map(ToString::to_string)) {
        writeln!(to, "  {}", printable(&text))?;
    }
    damaged.iter().try_for_each(|file| writeln!(to, "  not used: {}", printable(&file.to_string())))?;
    unplaced.iter().try_for_each(|unplaced| writeln!(to, "  {}", printable(&unplaced.to_string())))
}

fn current(args: &CurrentArgs, output: Style) -> Result<u8, Failure> {
    let dry_run = args.dry_run;
    if let Some(directory) = args.directory.as_ref().filter(|_| args.unset) {
        let message = format!("`--unset` removes the link, whatever it names; `{directory}` is no job spec");
        return Err(Failure::new(exit::USAGE, message).remedy("leave the directory out, or leave `--unset` out"));
    }
    let shows = args.directory.is_none() && !args.unset;
    let store = &*args.prefix.open(dry_run || shows, output)?;
    let (mut current, mut removed) = (None, None);
    if let Some(name) = &args.directory {
        current = Some(set_current(store, name, dry_run, output)?);
    } else if args.unset {
        let verb = if dry_run { "would be removed" } else { "removed" };
        // A link that is invalid is removed too.
        removed = Some(match store.current() {
            Ok(Some(named)) => format!("scr.current {verb}; it named {}", printable(named.as_str())),
            Ok(None) => "there is no scr.current; nothing to remove".to_owned(),
            Err(_) => format!("scr.current {verb}"),
        });
        if !dry_run {
            publish::remove_current(store)?;
        }
    } else {
        current = store.current()?;
    }
    let fields = json!({"current": current.as_ref().map(DirectoryName::as_str), "dry_run": dry_run});
    let line = removed.or_else(|| current.map(|current| printable(current.as_str())));
    output.result(&report(fields, |to| line.iter().try_for_each(|line| writeln!(to, "{line}"))))?;
    if line.is_some() {
        return Ok(exit::FINISHED);
    }
    // On standard error, because standard output is the name of the directory, for scripts.
    output.warn(&format!(
        "{}: no checkpoint is current; the next run restarts from the newest complete one in the index",
        store.location().display()
    ));
    Ok(exit::UNAVAILABLE)
}

fn set_current(store: &dyn DatasetStore, name: &str, dry_run: bool, output: Style) -> Result<DirectoryName, Failure> {
    let directory = DirectoryName::given(name)?;
    if !store.contains(&directory) {
        return Err(Failure::new(exit::UNAVAILABLE, "the checkpoint directory does not exist")
            .at(store.path_of(&directory).display())
            .remedy("`holdfast index list` shows all checkpoint directories"));
    }
    let entry = index::read(store)?.unwrap_or_default().entry(&directory);
    // Only a warning: the next run tries it first, and uses another one if that fails.
    match entry {
        None => output.warn(&format!("{directory} is not in the index")),
        Some(entry) if !entry.is_usable() => {
            output.warn(&format!("{directory} is not complete, or a restart from it failed"))
        }
        Some(_) => {}
    }
    if !dry_run {
        publish::make_current(store, &directory)?;
    }
    Ok(directory)
}
