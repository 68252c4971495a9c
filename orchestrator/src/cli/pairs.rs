//! `holdfast pairs`: the pairs of main and replica of a running job.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use holdfast_failover::CommandRefused;
use holdfast_model::NodeName;
use holdfast_model::pair::{CopyState, JobRunState, PairCommand, Side};
use holdfast_shm::clients;
use serde_json::json;

use super::failure::Failure;
use super::job::JobSelection;
use super::output::{Style, printable, report};
use super::pair_client;
use super::running_job::RunningJob;
use crate::exit;
use crate::host::shell::quoted;
use crate::job::replicated::requests::PairRequests;
use crate::job::state::JobState;
use crate::pairs::overview::{CopyOverview, JobOverview};
use crate::pairs::{Overview, PairOverview};
use crate::spec::ALL_PAIRS as ALL;

/// How long the command waits for the orchestrator to take a request up.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Of more pairs, the reasons are not shown.
const MOST_SHOWN: usize = 8;

/// List the pairs of main and replica of a running job, or change which copy is awake
#[derive(Clone, Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct PairsArgs {
    #[command(subcommand)]
    command: PairsCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum PairsCommand {
    /// Show the copies of each pair, and which of them is awake
    #[command(after_help = "\
Examples:
  holdfast pairs list job.yaml
  holdfast pairs list --json --prefix ./vision

Exit codes: 0 shown; 69 no job with pairs runs in this prefix")]
    List(JobSelection),
    /// End the main of a pair, and wake its replica
    ///
    /// The main is started again and waits. It is woken when the replica fails, or with `fail-back`.
    #[command(after_help = "\
Examples:
  holdfast pairs fail-over dnn0 job.yaml
  holdfast pairs fail-over dnn0,dnn1 --prefix ./vision
  holdfast pairs fail-over --dry-run all job.yaml

Nothing is changed unless it is possible for all of these pairs. `all` leaves out those that have finished.

Exit codes: 0 requested; 64 the job has no such pair; 69 no job with pairs runs in this prefix, or a copy is not in a \
state in which that is possible")]
    FailOver(ChangeArgs),
    /// End the replica of a pair, and wake its main
    #[command(after_help = "\
Examples:
  holdfast pairs fail-back dnn0 job.yaml
  holdfast pairs fail-back --dry-run all --prefix ./vision

JSON and exit codes: as `holdfast pairs fail-over`")]
    FailBack(ChangeArgs),
    /// Start a copy again, also one that was given up; one that is awake is ended as in a failure
    #[command(after_help = "\
Examples:
  holdfast pairs restart --side replica dnn0 job.yaml
  holdfast pairs restart --side main --dry-run all --prefix ./vision

JSON and exit codes: as `holdfast pairs fail-over`")]
    Restart(RestartArgs),
    /// Print the variable by which programs that users start find their pairs (`started_by: user`)
    #[command(after_help = "\
Examples:
  eval \"$(holdfast pairs env job.yaml)\"; ./dnn main 0 & ./dnn replica 0 &
  ssh n2 \"$(holdfast pairs env --node n2 job.yaml); cd $PWD; ./dnn replica 3\"

Exit codes: 0 shown; 64 the job has no such node; 69 no job with pairs runs in this prefix, or the node does not \
answer")]
    Env(EnvArgs),
    /// Be a copy until the program of a user has taken its place (the agent starts it, for `started_by: user`)
    #[command(hide = true)]
    Client,
}

#[derive(Clone, Debug, clap::Args)]
struct EnvArgs {
    #[command(flatten)]
    job: JobSelection,
    /// The node on which the program is started; default: the only node of the job
    #[arg(long, value_name = "NODE")]
    node: Option<NodeName>,
}

#[derive(Clone, Debug, clap::Args)]
struct ChangeArgs {
    /// The pairs: names with commas between them, or `all`
    #[arg(value_name = "PAIRS")]
    pairs: String,
    #[command(flatten)]
    job: JobSelection,
    /// Show what would be requested; change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug, clap::Args)]
struct RestartArgs {
    #[command(flatten)]
    change: ChangeArgs,
    /// The copy
    #[arg(long, value_name = "SIDE")]
    side: TypedSide,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum TypedSide {
    Main,
    Replica,
}

pub(super) fn run(args: PairsArgs, style: Style) -> Result<u8, Failure> {
    match args.command {
        PairsCommand::List(job) => {
            let overview = super::runtime::block_on(running(&job, style)?.pairs())?;
            let fields = serde_json::to_value(&overview).unwrap_or_default();
            style.result(&report(fields, |to| write_pairs(&overview, to, "")))?;
            Ok(exit::FINISHED)
        }
        PairsCommand::FailOver(args) => change(&args, PairCommand::FailOver, style),
        PairsCommand::FailBack(args) => change(&args, PairCommand::FailBack, style),
        PairsCommand::Restart(args) => {
            let side = match args.side {
                TypedSide::Main => Side::Main,
                TypedSide::Replica => Side::Replica,
            };
            change(&args.change, PairCommand::Restart(side), style)
        }
        PairsCommand::Env(args) => env(&args, style),
        PairsCommand::Client => pair_client::run(),
    }
}

/// Shows the variable for programs on a node.
fn env(args: &EnvArgs, style: Style) -> Result<u8, Failure> {
    let job = running(&args.job, style)?;
    let nodes = job.state.allocation.nodes();
    let node = match (&args.node, nodes) {
        (Some(node), nodes) if nodes.contains(node) => node,
        (None, [node]) => node,
        (given, nodes) => {
            let names = nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ");
            let message = given.as_ref().map_or_else(
                || format!("the job has {} nodes", nodes.len()),
                |node| format!("the job has no node `{}`", printable(node.as_str())),
            );
            return Err(Failure::new(exit::USAGE, message).remedy(format!("write `--node` with one of {names}")));
        }
    };
    let clients = super::runtime::block_on(job.clients())?;
    let Some(directory) = clients.get(node) else {
        let message = format!("the agent of {node} does not answer");
        return Err(
            Failure::new(exit::UNAVAILABLE, message).remedy("`holdfast pairs list` shows the pairs of its node")
        );
    };
    let value = directory.display().to_string();
    let fields = json!({"node": node, "variable": clients::DIRECTORY, "value": value});
    let line = format!("export {}={}", clients::DIRECTORY, quoted(&value));
    style.result(&report(fields, |to| writeln!(to, "{line}")))?;
    Ok(exit::FINISHED)
}

/// The job, which must run pairs.
fn running(job: &JobSelection, style: Style) -> Result<RunningJob, Failure> {
    let running = RunningJob::of(&job.clone().into(), style)?;
    match running.state.has_pairs() {
        true => Ok(running),
        false if running.state.pairs.is_some() => Err(running.not_running()),
        false => Err(Failure::new(
            exit::UNAVAILABLE,
            format!("job {} has no pairs of main and replica", running.state.agents.job_id),
        )
        .at(running.prefix.display())
        .remedy("give the spec of a job of `kind: replicated`, or its prefix directory with `--prefix`")),
    }
}

fn change(args: &ChangeArgs, command: PairCommand, style: Style) -> Result<u8, Failure> {
    let job = running(&args.job, style)?;
    let mut chosen = chosen(&job.state, &args.pairs)?;
    let overview = super::runtime::block_on(job.pairs())?;
    if overview.pairs.iter().all(|pair| pair.main.status.is_none() && pair.replica.status.is_none()) {
        return Err(job.not_running());
    }
    // One whose nodes are lost is finished by the orchestrator's record only.
    let recorded = job.state.pairs.as_ref().map(|pairs| pairs.progress.finished.clone()).unwrap_or_default();
    let is_finished = |pair: &PairOverview| pair.is_finished() || recorded.contains(&pair.pair);
    let of_number = |number: &u32| overview.pairs.get(*number as usize);
    let mut finished = Vec::new();
    if args.pairs == ALL {
        (finished, chosen) = chosen.into_iter().partition(|pair| of_number(pair).is_some_and(is_finished));
    }
    let check = |pair: &PairOverview| match is_finished(pair) {
        true => Err(CommandRefused::Finished.into()),
        false => pair.check(command),
    };
    let refused = chosen.iter().filter_map(of_number).filter_map(|pair| Some((pair, check(pair).err()?)));
    let refused: Vec<String> = refused.map(|(pair, why)| format!("{}: {why}", pair.name)).collect();
    if !refused.is_empty() || chosen.is_empty() {
        return Err(not_possible(&refused, chosen.len()));
    }
    let names = |pairs: &[u32]| pairs.iter().filter_map(of_number).map(|pair| pair.name.clone()).collect::<Vec<_>>();
    let (requested, finished) = (names(&chosen), names(&finished));
    if args.dry_run {
        show(style, command, &requested, &finished, None)?;
        return Ok(exit::FINISHED);
    }
    let is_split = |pair: &u32| of_number(pair).is_some_and(|pair| pair.main.node != pair.replica.node);
    // Between nodes, the orchestrator decides.
    let by_orchestrator = |pair: &u32| is_split(pair) && !matches!(command, PairCommand::Restart(_));
    let (split, local): (Vec<u32>, Vec<u32>) = chosen.into_iter().partition(by_orchestrator);
    let mut done = Vec::new();
    let of_agents = super::runtime::block_on(job.command_pairs(&local, command, &mut done))?;
    let all = of_agents.and_then(|()| match split.is_empty() {
        true => Ok(true),
        false => request(&job, &split, command),
    });
    let taken_up = all.map_err(|failure| partly_done(failure, &names(&done)))?;
    show(style, command, &requested, &finished, Some(taken_up))?;
    Ok(exit::FINISHED)
}

/// Nothing was changed, for these reasons.
fn not_possible(refused: &[String], chosen: usize) -> Failure {
    if chosen == 0 {
        return Failure::new(exit::UNAVAILABLE, "all pairs have finished");
    }
    let shown = refused.iter().take(MOST_SHOWN).map(|reason| printable(reason).to_string()).collect::<Vec<_>>();
    let more = refused.len() - shown.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let message = format!("not possible for {} of {chosen} pairs; nothing was changed", refused.len());
    Failure::new(exit::UNAVAILABLE, message)
        .because(format!("{}{more}", shown.join("; ")))
        .remedy("`holdfast pairs list` shows the states of the copies; name only pairs for which it is possible")
}

/// A failure after which the request was obeyed for these pairs.
fn partly_done(failure: Failure, done: &[String]) -> Failure {
    match done {
        [] => failure,
        done => {
            let remedy = format!("it was done for {}; repeat the command for the others", done.join(", "));
            failure.remedy(remedy)
        }
    }
}

/// The numbers of the pairs with these names.
fn chosen(state: &JobState, names: &str) -> Result<Vec<u32>, Failure> {
    let places = || (0..).zip(state.pairs.iter().flat_map(|pairs| &pairs.places));
    if names == ALL {
        return Ok(places().map(|(pair, _)| pair).collect());
    }
    let names: BTreeSet<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let found: Vec<(u32, &str)> =
        places().map(|(pair, place)| (pair, place.name.as_str())).filter(|(_, name)| names.contains(name)).collect();
    let missing = names.iter().find(|name| !found.iter().any(|(_, known)| known == *name));
    if let Some(missing) = missing.copied().or(names.is_empty().then_some("")) {
        let known: Vec<&str> = places().take(8).map(|(_, place)| place.name.as_str()).collect();
        return Err(Failure::new(exit::USAGE, format!("there is no pair `{}`", printable(missing)))
            .remedy(format!("write `{ALL}`, or names of pairs: {}", known.join(", "))));
    }
    Ok(found.into_iter().map(|(pair, _)| pair).collect())
}

/// Records requests, and waits until the orchestrator has taken them up.
fn request(job: &RunningJob, pairs: &[u32], command: PairCommand) -> Result<bool, Failure> {
    let number = PairRequests::add(&job.prefix, &job.state.agents.job_id, pairs, command)?;
    let began = Instant::now();
    while began.elapsed() < TAKEN_UP_WITHIN && job.has_orchestrator {
        let state = JobState::read(&job.prefix)?;
        if state.and_then(|state| state.pairs).is_some_and(|pairs| pairs.progress.requests_done >= number) {
            return Ok(true);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(false)
}

/// A line for each pair and job.
pub(super) fn write_pairs(overview: &Overview, to: &mut dyn Write, margin: &str) -> io::Result<()> {
    let width = |name: &str| name.chars().count();
    let names = overview.pairs.iter().map(|pair| width(&pair.name));
    let names = names.chain(overview.jobs.iter().map(|job| width(&job.status.name) + 4)).max().unwrap_or(0);
    for pair in &overview.pairs {
        let PairOverview { name, main, replica, missed, fail_overs, fail_backs, .. } = pair;
        let (main, replica, beats) = (copy_text(main), copy_text(replica), pair.beats());
        let checkpoint = match pair.checkpoint_age_ms {
            Some(age) => format!("checkpoint {} ({} ago)", pair.checkpoint, age_text(age)),
            None => "no checkpoint".to_owned(),
        };
        let is_silent = pair.main.status.is_none() && pair.replica.status.is_none();
        let numbers = match is_silent {
            true => "no node of it answers".to_owned(),
            false => format!(
                "{checkpoint}, heartbeats {beats}, missed {missed}, fail-overs {fail_overs}, fail-backs {fail_backs}"
            ),
        };
        let finished = if pair.finished && !pair.shows_its_end() { ", finished" } else { "" };
        writeln!(to, "{margin}{:names$}  main {main:24} replica {replica:24} {numbers}{finished}", printable(name))?;
    }
    for JobOverview { node, status } in &overview.jobs {
        let name = format!("job {}", printable(&status.name));
        let state = match status.state {
            JobRunState::Absent => "absent",
            JobRunState::Running => "running",
            JobRunState::Suspended => "suspended",
            JobRunState::Finished => "finished",
            JobRunState::GivenUp => "given up",
        };
        writeln!(to, "{margin}{name:names$}  {state} on {}", printable(node.as_str()))?;
    }
    Ok(())
}

/// A time in milliseconds, in the unit in which it is read best.
fn age_text(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..120_000 => format!("{:.1} s", millis as f64 / 1e3),
        _ => format!("{} min", millis / 60_000),
    }
}

fn copy_text(copy: &CopyOverview) -> String {
    let state = copy.status.map_or_else(|| "unknown".to_owned(), |status| status.state.to_string());
    let is_up = |state| matches!(state, CopyState::Starting | CopyState::Asleep | CopyState::Awake | CopyState::Ending);
    let pid = copy.status.filter(|status| is_up(status.state)).and_then(|status| status.pid);
    let pid = pid.map(|pid| format!(" {pid}")).unwrap_or_default();
    format!("{state} ({}{pid})", printable(copy.node.as_str()))
}

/// Shows what was requested for these pairs; `finished` are those that `all` leaves out. `taken_up`: an agent or the
/// orchestrator has acted on it; `None` in a dry run.
fn show(
    style: Style,
    command: PairCommand,
    pairs: &[String],
    finished: &[String],
    taken_up: Option<bool>,
) -> io::Result<()> {
    let (name, what) = match command {
        PairCommand::FailOver => ("fail_over", "fail over to the replica of"),
        PairCommand::FailBack => ("fail_back", "fail back to the main of"),
        PairCommand::Restart(Side::Main) => ("restart_main", "restart the main of"),
        PairCommand::Restart(Side::Replica) => ("restart_replica", "restart the replica of"),
    };
    let fields = json!({"command": name, "pairs": pairs, "finished": finished, "taken_up": taken_up});
    style.result(&report(fields, |to| {
        let pairs = pairs.join(", ");
        match taken_up {
            None => writeln!(to, "would {what} {pairs}"),
            Some(true) => writeln!(to, "requested: {what} {pairs}"),
            Some(false) => writeln!(to, "recorded, but no orchestrator has taken it up yet: {what} {pairs}"),
        }?;
        match finished {
            [] => Ok(()),
            finished => writeln!(to, "left out, because they have finished: {}", finished.join(", ")),
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use holdfast_model::NodeName;

    use super::*;
    use crate::pairs::placement::PairPlace;

    #[test]
    fn silent_nodes_are_not_shown_as_zeros() {
        let node = |name: &str| NodeName::from(name);
        let place = |name: &str| PairPlace { name: name.to_owned(), main: node("n0"), replica: node("n1") };
        let overview = Overview::new(&[place("done"), place("other")], &[0].into(), &BTreeMap::new());
        let mut text = Vec::new();
        write_pairs(&overview, &mut text, "").unwrap();
        let text = String::from_utf8(text).unwrap();
        let [done, other] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(done.starts_with("done ") && done.ends_with("no node of it answers, finished"), "{done}");
        assert!(other.contains("main unknown (n0)") && other.ends_with("no node of it answers"), "{other}");
    }
}
