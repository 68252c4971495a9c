//! `holdfast rehearse`: a short run of a job with an injected fault.
//!
//! * `plan`: the job that is run, and its fault; `compare`: results of the disturbed and the undisturbed run;
//! * `findings`: what the run showed.

mod compare;
mod findings;
mod plan;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use holdfast_core::owned::{Access, Base, Marker};
use holdfast_core::state_directory::StateDirectory;
use holdfast_model::HaltChange;
use serde_json::Value;

use self::compare::ResultFiles;
use self::findings::{Findings, Rehearsal};
use self::plan::Changes;
use super::failure::Failure;
use super::fault_permission::AllowFaults;
use super::job::JobSelection;
use super::output::{Report, Style, document, printable};
use super::running_job::RunningJob;
use super::{job, prefix_access, run};
use crate::events::RunReport;
use crate::events::Screen;
use crate::events::log::Record;
use crate::events::reader::Reader;
use crate::exit;
use crate::host::user_name;
use crate::job::state::{JobState, Stage};
use crate::job::{RestartChoice, RunChoices, RunOptions};
use crate::spec::quantity::parse_duration;
use crate::spec::{Environment, InjectedFault, JobSpec};

/// The kind in the marker of the directory of a rehearsal.
const KIND: &str = "rehearsal";
/// Why a job is halted that has shown what it can.
const ENOUGH: &str = "the rehearsal is over";
/// How often the events of the run are read.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The prefix directories of the runs.
const UNDISTURBED: &str = "undisturbed";
const DISTURBED: &str = "disturbed";

/// Run a job for a short time with an injected fault, and report what was lost and restored
///
/// The job runs with a prefix directory, control and cache directories of its own, which are removed at the end. It
/// never requeues. The application itself runs as always: files that it writes by itself are written. With
/// `manager: local` the nodes are virtual; otherwise the fault is injected on the machines of the allocation, which
/// needs --allow-faults, or --virtual. The job is halted when it was restored and has saved again, or has saved three
/// times without a relaunch.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast rehearse job.yaml                        a node is lost after the first checkpoint
  holdfast rehearse job.yaml --after 3              … after checkpoint 3
  holdfast rehearse job.yaml --after 90s            … 90 s after the first launch
  holdfast rehearse job.yaml --after '^step.*100$'  … after a line that matches
  holdfast rehearse job.yaml --fault kill-rank
  holdfast rehearse job.yaml --fault action:pause,node:2,for:30s
  holdfast rehearse job.yaml --virtual --fault action:kill,during:encode
  holdfast rehearse job.yaml --compare out.dat      also runs undisturbed, and compares the results
  holdfast rehearse --allow-faults=heat job.yaml    on the machines of the allocation

Exit codes:
   0  the job survived the fault; compared files are identical
  65  it began from the beginning, or a compared file differs
  69  the fault was not injected, or a file could not be compared
  75  the job did not recover within the limit or on the nodes that were left; otherwise as `run`")]
pub struct RehearseArgs {
    /// The job spec
    #[arg(value_name = "SPEC")]
    pub spec: PathBuf,
    /// The fault: an action, or keys of `allocation.faults`. Without a node it is the second one
    #[arg(long, value_name = "FAULT", default_value = "kill")]
    pub fault: String,
    /// When it is injected: the number of a checkpoint, a time after the launch, or a regular expression for a line
    /// [default: 1, if `--fault` has no moment]
    #[arg(long, value_name = "MOMENT")]
    pub after: Option<String>,
    /// The job is halted after this time at the latest
    #[arg(long, value_name = "TIME", default_value = "10min")]
    pub limit: String,
    /// Run on virtual nodes on this machine, whatever manager the spec names
    #[arg(long = "virtual")]
    pub on_virtual_nodes: bool,
    /// Also run undisturbed, and compare these result files: in the prefix directory, or else relative to the working
    /// directory of the ranks. Both runs go on to the end of the job
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub compare: Vec<PathBuf>,
    /// Keep the directory of the rehearsal
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub faults: AllowFaults,
}

pub(super) fn run(args: RehearseArgs, style: Style) -> Result<u8, Failure> {
    let environment = job::environment(style)?;
    let spec = JobSpec::load(&args.spec, &environment)?;
    if let Some(disabled) = &environment.disabled {
        let message = format!("{disabled}: the application would run without checkpoints");
        return Err(Failure::new(exit::CONFIGURATION, message).remedy("unset it for the rehearsal"));
    }
    if spec.replicated.is_some() {
        let message = "a job of `kind: replicated` cannot be rehearsed";
        return Err(Failure::new(exit::CONFIGURATION, message).remedy("use `holdfast pairs` to switch its copies"));
    }
    let limit = parse_duration(&args.limit).filter(|limit| !limit.is_zero());
    let limit = limit.ok_or_else(|| {
        let message = format!("`--limit {}` is no time", args.limit);
        Failure::new(exit::USAGE, message).remedy("write `--limit 10min`")
    })?;
    let on_virtual_nodes = args.on_virtual_nodes || crate::job::has_virtual_nodes(&spec).map_err(run::failed)?;
    let fault = plan::fault(&spec, &args.fault, args.after.as_deref(), on_virtual_nodes)?;
    let (spec, args, fault, environment) = (&spec, &args, &fault, &environment);
    let rehearsal = PlannedRehearsal { spec, args, fault, limit, environment, on_virtual_nodes };
    let planned = rehearsal.changed(Path::new(""), "", Some(fault));
    if let Some(obstacle) = plan::obstacle(&planned, fault, rehearsal.on_virtual_nodes) {
        return Err(Failure::new(exit::CONFIGURATION, obstacle).remedy("name another one with `--fault`"));
    }
    let allows_faults = args.faults.check(&planned)?;
    let directory = RehearsalDirectory::create(spec)?;
    if style != Style::Quiet {
        for note in plan::notes(spec, fault, limit, &directory.path) {
            // If standard error is closed, there is nowhere to report that.
            let _ = writeln!(io::stderr(), "rehearsal: {}", printable(&note));
        }
    }
    let shown = super::runtime::with_screen(style, async |screen| {
        let result = rehearsal.perform(&directory, allows_faults, &screen).await;
        let kept = directory.end(args.keep, &rehearsal.prefixes(&directory));
        let mut rehearsal = result?;
        rehearsal.directory = kept;
        Ok(rehearsal)
    });
    let (rehearsal, _) = shown?;
    if style == Style::Quiet && rehearsal.exit_code != exit::FINISHED {
        return Err(Failure::new(rehearsal.exit_code, format!("rehearsal: {}", printable(&rehearsal.outcome))));
    }
    Ok(rehearsal.exit_code)
}

struct PlannedRehearsal<'a> {
    spec: &'a JobSpec,
    args: &'a RehearseArgs,
    fault: &'a InjectedFault,
    limit: Duration,
    environment: &'a Environment,
    on_virtual_nodes: bool,
}

impl PlannedRehearsal<'_> {
    fn changed(&self, prefix: &Path, user: &str, fault: Option<&InjectedFault>) -> JobSpec {
        let changes = Changes {
            fault,
            prefix,
            user,
            on_virtual_nodes: self.on_virtual_nodes,
            until: SystemTime::now() + self.limit,
        };
        plan::changed(self.spec, &changes)
    }

    /// The undisturbed run, if results are compared, and the disturbed one.
    async fn perform(
        &self,
        directory: &RehearsalDirectory,
        allows_faults: bool,
        screen: &Screen,
    ) -> Result<Rehearsal, Failure> {
        let results = ResultFiles { files: &self.args.compare, working_directory: plan::directory_of(self.spec) };
        let mut kept = None;
        if !self.args.compare.is_empty() {
            let (prefix, began) = (directory.path.join(UNDISTURBED), SystemTime::now());
            let report = self.run(directory, &prefix, None, (allows_faults, screen)).await?;
            if report.exit_code != exit::FINISHED {
                let message = format!("the undisturbed run did not finish: {}", report.outcome);
                let remedy = "nothing can be compared: raise `--limit`, or leave `--compare` out";
                return Err(Failure::new(report.exit_code, message).remedy(remedy));
            }
            kept = Some(results.keep(&prefix, began, &directory.path));
        }
        let (prefix, began) = (directory.path.join(DISTURBED), SystemTime::now());
        let report = self.run(directory, &prefix, Some(self.fault), (allows_faults, screen)).await?;
        let compared = kept.map(|kept| results.compare(kept, &prefix, began)).unwrap_or_default();
        let findings = Findings::of(&self.events(&prefix)?);
        Ok(Rehearsal::of(&report, self.fault.to_string(), findings, compared))
    }

    /// The prefix directories of all steps of both runs.
    fn prefixes(&self, directory: &RehearsalDirectory) -> Vec<PathBuf> {
        let of_run = |run: &str| self.changed(&directory.path.join(run), "", None).steps;
        [UNDISTURBED, DISTURBED].into_iter().flat_map(of_run).map(|step| step.prefix).collect()
    }

    async fn run(
        &self,
        directory: &RehearsalDirectory,
        prefix: &Path,
        fault: Option<&InjectedFault>,
        (allows_faults, screen): (bool, &Screen),
    ) -> Result<RunReport, Failure> {
        let spec = self.changed(prefix, &directory.user, fault);
        prefix_access::refuse_root(prefix, "rehearse the job as its user")?;
        let choices = RunChoices { again: false, restart: RestartChoice::Beginning };
        let options = RunOptions { spec, choices, allows_faults, screen: screen.clone() };
        let run = crate::job::run(&options);
        let mut run = std::pin::pin!(run);
        // With `--compare`, the results are those of the complete job.
        let is_short = fault.is_some() && self.args.compare.is_empty();
        let report = tokio::select! {
            report = &mut run => report,
            () = self.halt_when_complete(prefix), if is_short => run.await,
        };
        report.map_err(run::failed)
    }

    /// Halts the job when the run has shown what it can.
    async fn halt_when_complete(&self, prefix: &Path) {
        let selection = JobSelection { spec: None, prefix: Some(prefix.to_owned()) }.into();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let events = tokio::task::block_in_place(|| self.events(prefix)).unwrap_or_default();
            if !Findings::of(&events).are_complete(&self.fault.action) {
                continue;
            }
            let change = HaltChange { reason: Some(ENOUGH.to_owned()), ..HaltChange::default() };
            let halted = async {
                for (_, running) in RunningJob::each_in(&selection, self.environment)? {
                    running.halt(Some(change.clone())).await?;
                }
                Ok::<(), Failure>(())
            };
            match halted.await {
                Ok(()) => return,
                // The run may be about to end, or its leader was just lost.
                Err(failure) => tracing::debug!(failure = %failure.json(), "the job cannot be halted yet"),
            }
        }
    }

    /// The events of the step in which the fault was injected; of all steps before that.
    fn events(&self, prefix: &Path) -> Result<Vec<Record>, Failure> {
        let mut events = Vec::new();
        for step in &self.changed(prefix, "", None).steps {
            let failed = |error| Failure::of(exit::UNAVAILABLE, &error);
            let Some(reader) = Reader::open(StateDirectory::below(&step.prefix).path()).map_err(failed)? else {
                continue;
            };
            let of_step = reader.collect::<Result<Vec<_>, _>>().map_err(failed)?;
            if of_step.iter().any(|record| Findings::is_injection(&record.event)) {
                return Ok(of_step);
            }
            events.extend(of_step);
        }
        events.sort_by_key(|record| record.time);
        Ok(events)
    }
}

/// The directory of a rehearsal, beside the prefix directory of the job.
struct RehearsalDirectory {
    base: Base,
    path: PathBuf,
    job: String,
    /// The user in the paths of control and cache directories: no other run has it.
    user: String,
}

impl RehearsalDirectory {
    fn create(spec: &JobSpec) -> Result<Self, Failure> {
        let failed = |error| Failure::of(exit::UNAVAILABLE, &error).remedy("make the parent directory of `prefix`");
        let parent = spec.prefix.parent().unwrap_or(Path::new("/"));
        let name = spec.prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let base = Base::shared(parent).map_err(failed)?;
        let job = spec.job.clone();
        let made = base.new_random_directory(&format!("{name}.{KIND}-"), Access::Private, &marker(&job));
        let path = made.map_err(failed)?.path().to_owned();
        let random = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit('-').next());
        let user = spec.identity.user.clone().unwrap_or_else(user_name);
        let user = format!("{user}.{KIND}-{}", random.unwrap_or_default());
        Ok(RehearsalDirectory { base, path, job, user })
    }

    /// Removes it, unless it is to be kept, or nodes still hold data of it. Returns its path if it exists.
    fn end(&self, keep: bool, prefixes: &[PathBuf]) -> Option<PathBuf> {
        let has_data = |prefix: &PathBuf| match JobState::read(prefix) {
            Ok(state) => state.is_some_and(|state| !matches!(state.stage, Stage::Finished { .. })),
            Err(_) => true,
        };
        if keep || prefixes.iter().any(has_data) {
            return Some(self.path.clone());
        }
        let name = self.path.file_name().unwrap_or_default();
        match self.base.remove_tree(name, Access::Private, &marker(&self.job)) {
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(%error, "the directory of the rehearsal cannot be removed");
                Some(self.path.clone())
            }
        }
    }
}

fn marker(job: &str) -> Marker<'_> {
    Marker { kind: KIND, job, prefix: None, allocation: None }
}

impl Report for Rehearsal {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(self.text().as_bytes())
    }

    fn json(&self) -> Value {
        document(serde_json::to_value(self).unwrap_or_default())
    }
}
