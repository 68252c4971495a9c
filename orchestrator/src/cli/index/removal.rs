//! `holdfast index drop`, `delete` and `prune`.

use std::io::{self, BufRead as _, IsTerminal as _, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use holdfast_core::prefix::index::{self, IndexEntry};
use holdfast_core::prefix::prune::{self, PruneCandidate, PruneReason, PruneRules};
use holdfast_core::prefix::{dataset, delete, outputs, ownership, publish};
use holdfast_core::store::{DatasetAccess, DatasetStore, DirectoryName, PrefixError, Staged};
use holdfast_model::{CheckpointId, OutputPath};
use serde_json::{Value, json};

use super::{ChangedEntry, ChangedPrefix, is_spec};
use crate::cli::failure::Failure;
use crate::cli::job::JobSelection;
use crate::cli::output::{Report, Style, document, printable, report};
use crate::drain::resume;
use crate::exit;
use crate::job::state::JobState;
use crate::job::state_file::JobLock;

/// A directory without COMPLETE that was not changed for so long is not being written, whichever program began it.
const UNCHANGED: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, clap::Args)]
pub struct DeleteArgs {
    /// The checkpoint directories' names below the prefix; behind them the job spec, if it is not for `--prefix`
    #[arg(value_name = "DIRECTORY", required = true)]
    words: Vec<String>,
    /// The job's prefix directory, instead of its spec [default: SCR_PREFIX, or the current directory]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// As root: act as the owner of the prefix directory
    #[arg(long)]
    as_owner: bool,
    #[command(flatten)]
    consent: Consent,
}

impl DeleteArgs {
    /// The names, and the prefix directory: a spec can be the last word.
    fn names(&self) -> (&[String], ChangedPrefix) {
        let spec = self.words.last().filter(|word| self.prefix.is_none() && is_spec(word));
        let names = &self.words[..self.words.len() - usize::from(spec.is_some())];
        let job = JobSelection { spec: spec.map(PathBuf::from), prefix: self.prefix.clone() };
        (names, ChangedPrefix { job, as_owner: self.as_owner })
    }
}

#[derive(Debug, clap::Args)]
pub struct PruneArgs {
    /// Keep this many complete checkpoints, the newest; delete the older ones
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Delete what is not complete
    #[arg(long)]
    incomplete: bool,
    /// Delete checkpoints from which a restart failed
    #[arg(long)]
    failed: bool,
    #[command(flatten)]
    prefix: ChangedPrefix,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Debug, clap::Args)]
struct Consent {
    /// Delete without asking
    #[arg(long, short)]
    yes: bool,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

impl Consent {
    /// True if the datasets may be deleted: the user has said so, or is asked now.
    fn is_given(&self, planned: &Deleted) -> Result<bool, Failure> {
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(Failure::new(exit::USAGE, "nothing is deleted without confirmation")
                .remedy("give --yes to delete, or --dry-run to see what would be deleted"));
        }
        let mut to = io::stderr().lock();
        planned.write(&mut to, "to delete", "with it")?;
        write!(to, "Delete these {} checkpoints with all their files? [y/N] ", planned.datasets.len())?;
        to.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }
}

pub(super) fn drop_entry(args: &ChangedEntry, output: Style) -> Result<u8, Failure> {
    let store = &*args.prefix.open(args.dry_run, output)?;
    let directory = DirectoryName::given(&args.directory)?;
    let unset_current = store.current().ok().flatten().as_ref() == Some(&directory);
    let dropped = if args.dry_run {
        index::read(store)?.unwrap_or_default().entry(&directory).is_some()
    } else {
        publish::withdraw(store, &directory)?
    };
    if !dropped {
        return Err(not_indexed(store, &directory));
    }
    let fields = json!({"dropped": directory.as_str(), "unset_current": unset_current, "dry_run": args.dry_run});
    output.result(&report(fields, |to| {
        let verb = if args.dry_run { "would be removed" } else { "removed" };
        writeln!(to, "{} {verb} from the index; its files stay", printable(directory.as_str()))?;
        if unset_current { writeln!(to, "scr.current {verb}: it led there") } else { Ok(()) }
    }))?;
    Ok(exit::FINISHED)
}

pub(super) fn delete(args: &DeleteArgs, output: Style) -> Result<u8, Failure> {
    let (names, prefix) = args.names();
    if names.is_empty() {
        return Err(Failure::new(exit::USAGE, "no checkpoint directory is given")
            .remedy("name them in front of the spec; `holdfast index list` shows them"));
    }
    let store = &*prefix.open(args.consent.dry_run, output)?;
    let index = index::read(store)?.unwrap_or_default();
    let (writers, current) = (Writers::of(store), store.current()?);
    let mut datasets: Vec<DeletedDataset> = Vec::new();
    for name in names {
        let directory = DirectoryName::given(name)?;
        let entry = index.entry(&directory);
        if current.as_ref() == Some(&directory) {
            return Err(Failure::new(
                exit::USAGE,
                format!("{directory} is the current checkpoint, and is not deleted"),
            )
            .remedy("make another one current with `holdfast index current`, or remove the link with `--unset`"));
        }
        let recorded = || dataset::read(store, &directory).is_ok_and(|record| record.is_some());
        if entry.as_ref().is_some_and(|entry| entry.marks.kept) {
            return Err(Failure::new(exit::USAGE, format!("{directory} is kept, and is not deleted"))
                .remedy(format!("release it first: `holdfast index release {directory}`")));
        }
        let known = entry.is_some() || directory.parts().is_some() || recorded();
        if !known || (entry.is_none() && !store.contains(&directory)) {
            return Err(not_indexed(store, &directory));
        }
        if writers.may_write(store, &directory, entry.as_ref()) {
            return Err(Failure::new(exit::UNAVAILABLE, format!("{directory} may be being written"))
                .at(store.location().display())
                .remedy("wait for the end of the job; `holdfast status` shows it"));
        }
        if datasets.iter().all(|dataset| dataset.directory != directory) {
            let id = entry.map(|entry| entry.id).or_else(|| Some(directory.parts()?.id));
            datasets.push(DeletedDataset::new(store, directory, id, None)?);
        }
    }
    carry_out(store, datasets, &args.consent, output)
}

pub(super) fn prune(args: &PruneArgs, output: Style) -> Result<u8, Failure> {
    let rules = PruneRules { keep: args.keep, incomplete: args.incomplete, failed: args.failed };
    if rules == PruneRules::default() {
        return Err(Failure::new(exit::USAGE, "no rule is given")
            .remedy("give at least one of --keep N, --incomplete and --failed"));
    }
    let store = &*args.prefix.open(args.consent.dry_run, output)?;
    let (writers, current) = (Writers::of(store), store.current()?);
    let candidate = |entry: IndexEntry| {
        let declared = dataset::read(store, &entry.directory);
        PruneCandidate {
            // A record that cannot be read may be that of output.
            output: declared.map_or(true, |dataset| dataset.is_some_and(|dataset| dataset.output)),
            in_use: writers.may_write(store, &entry.directory, Some(&entry)),
            counts: true,
            entry,
        }
    };
    let entries = index::read(store)?.unwrap_or_default().entries().into_iter();
    let (mut own, mut others) = (Vec::new(), 0);
    for entry in entries {
        match ownership::is_own(store, &entry.directory)? {
            true => own.push(entry),
            false => others += 1,
        }
    }
    if others > 0 {
        output.warn(&format!("{others} checkpoints of other users do not count, and are not deleted"));
    }
    let candidates: Vec<PruneCandidate> = own.into_iter().map(candidate).collect();
    let pruned = prune::plan(&candidates, current.as_ref(), rules);
    if !args.consent.dry_run {
        for candidate in &candidates {
            let directory = &candidate.entry.directory;
            let Ok(dataset) = store.open(directory, DatasetAccess::Write) else { continue };
            if let Err(error) = dataset.remove_staged(Staged::Abandoned) {
                output.warn(&format!("{directory}: temporary files: {error}"));
            }
        }
    }
    let dataset = |pruned: prune::PrunedDataset| {
        DeletedDataset::new(store, pruned.directory, Some(pruned.id), Some(pruned.reason))
    };
    carry_out(store, pruned.into_iter().map(dataset).collect::<Result<_, _>>()?, &args.consent, output)
}

pub(super) fn not_indexed(store: &dyn DatasetStore, directory: &DirectoryName) -> Failure {
    Failure::new(exit::UNAVAILABLE, format!("{directory} is not in the index"))
        .at(store.location().display())
        .remedy("`holdfast index list` shows the indexed directories")
}

fn carry_out(
    store: &dyn DatasetStore,
    datasets: Vec<DeletedDataset>,
    consent: &Consent,
    output: Style,
) -> Result<u8, Failure> {
    let mut deleted = Deleted { datasets, dry_run: consent.dry_run };
    if !consent.dry_run && !deleted.datasets.is_empty() {
        if !consent.is_given(&deleted)? {
            deleted.datasets.clear();
        }
        for dataset in &deleted.datasets {
            delete::delete(store, &dataset.directory)?;
        }
    }
    output.result(&deleted)?;
    Ok(exit::FINISHED)
}

struct DeletedDataset {
    directory: DirectoryName,
    id: Option<CheckpointId>,
    /// The rule that applied.
    reason: Option<PruneReason>,
    /// Its files outside its directory, below the prefix.
    outside: Vec<OutputPath>,
}

impl DeletedDataset {
    fn new(
        store: &dyn DatasetStore,
        directory: DirectoryName,
        id: Option<CheckpointId>,
        reason: Option<PruneReason>,
    ) -> Result<Self, PrefixError> {
        let outside = outputs::remove::outside(store, &directory)?;
        Ok(DeletedDataset { directory, id, reason, outside })
    }
}

struct Deleted {
    datasets: Vec<DeletedDataset>,
    dry_run: bool,
}

fn reason_text(reason: PruneReason) -> &'static str {
    match reason {
        PruneReason::Old => "old",
        PruneReason::Incomplete => "incomplete",
        PruneReason::Failed => "failed",
    }
}

impl Deleted {
    fn write(&self, to: &mut dyn Write, what: &str, with_it: &str) -> io::Result<()> {
        for DeletedDataset { directory, id, reason, outside } in &self.datasets {
            let id = id.map_or_else(|| "not indexed".to_owned(), |id| format!("checkpoint {id}"));
            let reason = reason.map(|reason| format!(", {}", reason_text(reason))).unwrap_or_default();
            writeln!(to, "{} ({id}{reason}) {what}", printable(directory.as_str()))?;
            outside.iter().try_for_each(|path| writeln!(to, "  {with_it}: {}", printable(path.as_str())))?;
        }
        Ok(())
    }
}

impl Report for Deleted {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        if self.datasets.is_empty() {
            return writeln!(to, "nothing to delete");
        }
        match self.dry_run {
            true => self.write(to, "would be deleted", "with it"),
            false => self.write(to, "deleted", "deleted with it"),
        }
    }

    fn json(&self) -> Value {
        let dataset = |dataset: &DeletedDataset| {
            let (directory, outside) = (dataset.directory.as_str(), &dataset.outside);
            let mut fields = json!({"directory": directory, "id": dataset.id, "outside": outside});
            if let (Some(reason), Some(fields)) = (dataset.reason, fields.as_object_mut()) {
                fields.insert("reason".to_owned(), reason_text(reason).into());
            }
            fields
        };
        document(json!({
            "deleted": self.datasets.iter().map(dataset).collect::<Vec<_>>(),
            "dry_run": self.dry_run,
        }))
    }
}

/// Which directories a job may be writing.
struct Writers {
    /// An orchestrator or a drain has the prefix directory in use.
    active: bool,
    /// The directory of the drain that is under way.
    drained: Option<DirectoryName>,
    /// The id of the last job that Holdfast ran here.
    last_job: Option<String>,
}

impl Writers {
    fn of(store: &dyn DatasetStore) -> Writers {
        Writers {
            active: JobLock::is_held(store.location()),
            drained: resume::under_way(store),
            last_job: JobState::read(store.location()).ok().flatten().map(|state| state.agents.job_id),
        }
    }

    fn may_write(&self, store: &dyn DatasetStore, directory: &DirectoryName, entry: Option<&IndexEntry>) -> bool {
        if self.active && self.drained.as_ref() == Some(directory) {
            return true;
        }
        if entry.is_none_or(|entry| entry.complete.is_some()) {
            return false;
        }
        // Indexed, and neither complete nor given up: of a flush.
        if self.active {
            return true;
        }
        let job = dataset::job_of(store, directory);
        let of_last_job = job.is_some() && job == self.last_job;
        let changed = store.modified(directory);
        let unchanged_for = changed.ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
        !of_last_job && unchanged_for.is_some_and(|age| age < UNCHANGED)
    }
}
