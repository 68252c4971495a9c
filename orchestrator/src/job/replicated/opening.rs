//! The nodes and the state of a job with pairs: new ones, or those of an orchestrator that died.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::state_directory::StateDirectory;
use holdfast_core::state_files;
use holdfast_model::pair::PairConfig;
use holdfast_wire::trust;

use super::super::claim::Claim;
use super::super::error::RunError;
use super::super::preflight::manager;
use super::super::release::release;
use super::super::reporter::Reporter;
use super::super::restart_choice::RestartChoice;
use super::super::signals::Signals;
use super::super::start::set_aside;
use super::super::state::{JobState, PairsProgress, PairsState, Stage, StateError};
use super::super::{requeue, site, standalone, start};
use super::saved::{self, Continued};
use crate::allocation::{AgentTemplate, Allocation, AllocationRequest, ManagerEntry};
use crate::exit;
use crate::host::program::{self, ProgramError};
use crate::launch::LaunchError;
use crate::pairs::Placement;
use crate::pairs::placement::PairPlace;
use crate::pairs::takeover::{Changed, InitialSpec, compare_places};
use crate::spec::{CLIENT_COMMAND, JobSpec, Replicated, StartedBy};

/// Where the output of copies and jobs is, below the directory of the job's state.
const OUTPUT: &str = "pairs";

/// What was checked before anything is started.
pub(super) struct Prepared {
    manager: &'static ManagerEntry,
    /// The programs of all copies and jobs, by the names in their commands.
    pub(super) programs: BTreeMap<String, PathBuf>,
    /// The working directory of copies and jobs, absolute.
    pub(super) working_directory: PathBuf,
}

/// Checks the manager, the working directory and the programs.
pub(super) fn preflight(spec: &JobSpec, replicated: &Replicated) -> Result<Prepared, RunError> {
    let manager = manager(spec)?;
    (manager.check)()?;
    let directory = replicated.settings.directory.as_deref();
    let working_directory = site::working_directory(directory).map_err(RunError::io("find the working directory"))?;
    if !working_directory.is_dir() {
        return Err(LaunchError::NoDirectory { path: working_directory, key: "replication.directory" }.into());
    }
    let path = replicated.settings.env.get("PATH").map(Into::into).or_else(|| env::var_os("PATH"));
    let (by_agent, by_user): (Vec<_>, Vec<_>) =
        replicated.pairs.iter().partition(|pair| pair.started_by == StartedBy::Agent);
    let of_pairs = by_agent.into_iter().flat_map(|pair| {
        let PairConfig { name, main, replica, .. } = &pair.config;
        [("main", "pair", name, main), ("replica", "pair", name, replica)]
    });
    let of_jobs = replicated.jobs.iter().map(|job| ("command", "job", &job.config.name, &job.config.command));
    // Each program once, with the first of its keys.
    let mut names = BTreeMap::new();
    for (key, kind, owner, command) in of_pairs.chain(of_jobs) {
        if let Some(program) = command.first() {
            names.entry(program.as_str()).or_insert((key, kind, owner));
        }
    }
    let find = |(name, (key, kind, owner)): (&str, (&str, &str, &String))| {
        let found = program::find(name, &working_directory, path.as_deref());
        let found = found.map_err(|error| error.of_key(format!("`{key}` of the {kind} `{owner}`")))?;
        Ok((name.to_owned(), found))
    };
    let found = names.into_iter().map(find).collect::<Result<_, ProgramError>>();
    let mut programs: BTreeMap<String, PathBuf> = found.map_err(LaunchError::from)?;
    if !by_user.is_empty() {
        programs.insert(CLIENT_COMMAND[0].to_owned(), program::ourselves().map_err(LaunchError::from)?);
    }
    if let Some(requeue) = &spec.requeue {
        requeue::check(requeue)?;
    }
    Ok(Prepared { manager, programs, working_directory })
}

fn request<'a>(spec: &'a JobSpec, prepared: &'a Prepared, prefix: &'a Path) -> AllocationRequest<'a> {
    AllocationRequest {
        needed: spec.allocation.nodes,
        programs: prepared.programs.values().map(PathBuf::as_path).collect(),
        working_directories: vec![&prepared.working_directory],
        ..start::allocation_request(spec, &[], prefix)
    }
}

/// The plan of a dry run, and why a run would begin nothing.
pub fn plan(
    spec: &JobSpec,
    replicated: &Replicated,
    prefix: &Path,
    restart: &RestartChoice,
) -> Result<(String, Option<RunError>), RunError> {
    let prepared = preflight(spec, replicated)?;
    let preview = (prepared.manager.preview)(&request(spec, &prepared, prefix))?;
    let mut text = String::new();
    let pairs = replicated.pairs.len();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}: {pairs} pair{}", spec.job, if pairs == 1 { "" } else { "s" });
    let _ = writeln!(text, "  in {}, prefix {}", prepared.working_directory.display(), prefix.display());
    for pair in &replicated.pairs {
        let (config, main, replica) = (&pair.config, &pair.main, &pair.replica);
        let _ = writeln!(text, "  pair {}: main on node {main}, replica on node {replica}", config.name);
    }
    for job in &replicated.jobs {
        let _ = writeln!(text, "  job {} on node {}", job.config.name, job.node);
    }
    for line in &preview.lines {
        let _ = writeln!(text, "  {line}");
    }
    let mut refusal = preview.refusal.map(RunError::from);
    let old = JobState::read(prefix)?;
    if let Some(old) = old.as_ref().filter(|old| old.stage == Stage::Running && old.has_nodes()) {
        match &old.pairs {
            Some(pairs) => {
                text.push_str(&format!("  would take over job {}\n", old.agents.job_id));
                let placement = Placement::new(replicated, old.allocation.nodes(), &prepared.programs)?;
                let now = InitialSpec::new(&placement, &replicated.settings);
                let compared = compare(&pairs.places, pairs.initial_spec.as_ref(), &now, &placement);
                let refused = |change| RunError::OtherPairs { prefix: prefix.to_owned(), change };
                refusal = refusal.or(compared.err().map(refused));
            }
            None => refusal = refusal.or(Some(RunError::OtherKind { prefix: prefix.to_owned(), running: "job" })),
        }
    } else {
        let places = replicated.pairs.iter().map(|pair| pair.config.name.as_str());
        let Continued { finished, restore_from } = saved::continued(old.as_ref(), &spec.job, places, restart);
        if !restore_from.is_empty() {
            let finished = finished.len();
            let _ = writeln!(text, "  would go on from the checkpoints of an earlier run; {finished} finished in it");
        }
    }
    Ok((text, refusal))
}

/// A job whose nodes and state exist.
pub(super) struct Opened {
    pub(super) allocation: Arc<dyn Allocation>,
    pub(super) placement: Placement,
    /// On disk, with an epoch that no earlier orchestrator had.
    pub(super) state: JobState,
    /// With the same epoch.
    pub(super) claim: Claim,
    pub(super) took_over: bool,
}

/// Opens the nodes. The state is written before anything is granted to a node.
pub(super) async fn open(
    spec: &JobSpec,
    replicated: &Replicated,
    prepared: &Prepared,
    (prefix, restart): (&Path, &RestartChoice),
    (reporter, signals): (&mut Reporter, &mut Signals),
) -> Result<Opened, RunError> {
    let previous = JobState::read(prefix)?;
    let earlier = previous.as_ref().map(|state| state.agents.job_id.clone());
    let places = replicated.pairs.iter().map(|pair| pair.config.name.as_str());
    let continued = saved::continued(previous.as_ref(), &spec.job, places, restart);
    let previous = previous.filter(JobState::has_nodes);
    let logs = StateDirectory::below(prefix).join("agents");
    match previous {
        Some(mut state) if state.stage == Stage::Running => {
            let Some(pairs) = &mut state.pairs else {
                return Err(RunError::OtherKind { prefix: prefix.to_owned(), running: "job" });
            };
            let places = pairs.places.clone();
            let allocation = signals.or(state.allocation.reopen(Some(&spec.allocation), logs)).await?;
            let placement = Placement::new(replicated, allocation.nodes(), &prepared.programs)?;
            let now = InitialSpec::new(&placement, &replicated.settings);
            let changed = compare(&places, pairs.initial_spec.as_ref(), &now, &placement)
                .map_err(|change| RunError::OtherPairs { prefix: prefix.to_owned(), change })?;
            pairs.initial_spec = Some(now);
            make_output(prefix)?;
            let claim = claimed(prefix, &mut state).await?;
            state.orchestrator = std::process::id();
            write_now(prefix.to_owned(), state.clone()).await?;
            changed.lines().for_each(|line| reporter.screen.line(&line));
            Ok(Opened { allocation, placement, state, claim, took_over: true })
        }
        previous => {
            if let Some(state) = previous {
                // A job with ranks that could not be drained.
                signals.or(standalone::finish_earlier(spec, prefix, state, &reporter.screen)).await?;
            }
            let allocation = signals.or((prepared.manager.open)(request(spec, prepared, prefix))).await?;
            let job = (spec, replicated, prepared);
            match begin_with(job, &allocation, prefix, earlier.as_deref(), continued).await {
                Ok((placement, state, claim)) => {
                    start::announce(&state, prefix, reporter);
                    Ok(Opened { allocation, placement, state, claim, took_over: false })
                }
                Err(error) => {
                    release(allocation, reporter).await;
                    Err(error)
                }
            }
        }
    }
}

/// Begins a job on new nodes. `earlier` is the id of the job before it. If it fails, the caller releases the nodes.
async fn begin_with(
    (spec, replicated, prepared): (&JobSpec, &Replicated, &Prepared),
    allocation: &Arc<dyn Allocation>,
    prefix: &Path,
    earlier: Option<&str>,
    continued: Continued,
) -> Result<(Placement, JobState, Claim), RunError> {
    let (placement, mut state) = begin(spec, replicated, &**allocation, (prefix, prepared))?;
    set_aside(prefix, OUTPUT, earlier);
    make_output(prefix)?;
    let claim = claimed(prefix, &mut state).await?;
    if let Some(pairs) = &mut state.pairs {
        let Continued { finished, restore_from } = continued;
        let run = format!("{}-{}", state.agents.job_id, claim.epoch).replace('/', "_");
        pairs.progress = PairsProgress { finished, restore_from, save_to: Some(run), ..PairsProgress::default() };
    }
    write_now(prefix.to_owned(), state.clone()).await?;
    Ok((placement, state, claim))
}

/// Writes a state before anything that depends on it is done.
async fn write_now(prefix: PathBuf, state: JobState) -> Result<(), StateError> {
    let path = prefix.clone();
    let written = tokio::task::spawn_blocking(move || state.write(&path)).await;
    written.unwrap_or_else(|error| Err(StateError::file("write", &prefix)(std::io::Error::other(error))))
}

/// Whether a job with these pairs can go on with this placement. Returns what has changed.
fn compare(
    places: &[PairPlace],
    before: Option<&InitialSpec>,
    now: &InitialSpec,
    placement: &Placement,
) -> Result<Changed, String> {
    compare_places(places, placement.pairs())?;
    before.map_or_else(|| Ok(Changed::default()), |before| before.compare(now, placement))
}

/// Claims the job for this process, and enters the epoch in the state.
async fn claimed(prefix: &Path, state: &mut JobState) -> Result<Claim, StateError> {
    let (path, job_id) = (prefix.to_owned(), state.agents.job_id.clone());
    let epoch = state.pairs.as_ref().map_or(0, |pairs| pairs.epoch) + 1;
    let claim = tokio::task::spawn_blocking(move || Claim::make(&path, &job_id, epoch)).await;
    let claim = claim.unwrap_or_else(|error| Err(StateError::file("write", prefix)(std::io::Error::other(error))))?;
    if let Some(pairs) = &mut state.pairs {
        pairs.epoch = claim.epoch;
    }
    Ok(claim)
}

/// The directory for the output of copies and jobs.
pub(super) fn output(prefix: &Path) -> PathBuf {
    StateDirectory::below(prefix).join(OUTPUT)
}

fn make_output(prefix: &Path) -> Result<(), RunError> {
    let failed = RunError::io("make the directory for the output of copies");
    state_files::create_directory(&output(prefix)).map_err(|error| failed(error.into()))?;
    Ok(())
}

fn begin(
    spec: &JobSpec,
    replicated: &Replicated,
    allocation: &dyn Allocation,
    (prefix, prepared): (&Path, &Prepared),
) -> Result<(Placement, JobState), RunError> {
    let placement = Placement::new(replicated, allocation.nodes(), &prepared.programs)?;
    let template = AgentTemplate::new(
        &spec.job,
        vec![prefix.to_owned()],
        &replicated.control,
        std::iter::empty(),
        spec.health.disk_timeout,
        allocation.identity(),
        trust::generate()?,
    );
    let mut state = JobState::new(spec.job.clone(), allocation.record(), template);
    (state.group_access, state.event_log) = (spec.group_access, spec.event_log);
    state.requests_at_once = spec.health.requests;
    let places = placement.pairs().cloned().collect();
    let initial_spec = Some(InitialSpec::new(&placement, &replicated.settings));
    state.pairs = Some(PairsState { places, initial_spec, ..PairsState::default() });
    Ok((placement, state))
}

/// True if a job with the same pairs was finished in an earlier run.
pub(super) fn is_finished(spec: &JobSpec, prefix: &Path) -> Result<Option<JobState>, RunError> {
    let is_same = |state: &JobState| {
        let names = |state: &JobState| {
            let places = state.pairs.as_ref().map(|pairs| pairs.places.iter().map(|place| place.name.clone()));
            places.map(Iterator::collect::<BTreeSet<_>>)
        };
        let replicated = spec.replicated.as_ref();
        let own = replicated.map(|replicated| replicated.pairs.iter().map(|pair| pair.config.name.clone()).collect());
        matches!(state.stage, Stage::Finished { exit_code: exit::FINISHED, .. })
            && state.job == spec.job
            && names(state) == own
    };
    Ok(JobState::read(prefix)?.filter(is_same))
}
