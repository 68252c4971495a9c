//! The loop of a job with pairs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::owned::OwnedError;
use holdfast_core::state_directory::StateDirectory;
use holdfast_failover::lease::Orders;
use holdfast_model::NodeName;
use holdfast_model::pair::PairStatus;
use holdfast_wire::agent::{AgentEvent, HaltReport, PollReply};
use holdfast_wire::pairs::{PairsPlan, PairsSettings, PairsStop, PairsSync, PeerOfPair};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::super::claim::Claim;
use super::super::error::RunError;
use super::super::record::JobRecord;
use super::super::release::release;
use super::super::reporter::Reporter;
use super::super::restart_choice;
use super::super::settings;
use super::super::settings_in_force;
use super::super::shell::{JobShell, RunOptions};
use super::super::signals::Signals;
use super::super::site::{self, CommandContext};
use super::super::state::{PairsProgress, Stage};
use super::follow::{FollowReport, FollowedNode, Follower};
use super::history::{History, quote_output};
use super::opening::{self, Opened};
use super::requests::{PairRequest, PairRequests};
use super::saved::{self, Left};
use crate::allocation::Allocation;
use crate::events::report::PairReport;
use crate::events::{CommandKey, LogEvent, PrefixReport, RunReport};
use crate::exit;
use crate::fleet::clock::unix_now;
use crate::fleet::{AgentClient, AgentSupervisor, Clock, FleetEvent, RequestError, to_each};
use crate::host::program;
use crate::pairs::{Action, AgentsConfig, Event, Machine, Outcome, PairsEnd, Placement, RebootRule};
use crate::relaunch::Changes;
use crate::spec::{JobSpec, Reboot, Replicated};

/// Interval at which the live view is refreshed and the end of the allocation is looked at.
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// Agents that do not report their last events within this are not waited for.
const LAST_EVENTS_WITHIN: Duration = Duration::from_secs(1);
/// The output of copies is not waited for longer.
const OUTPUT_WITHIN: Duration = Duration::from_secs(5);
/// Nor is the list of what was saved.
const SAVED_WITHIN: Duration = Duration::from_secs(10);
/// An agent delays the answer about its pairs by this at most.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The longest time between two looks at which orchestrator is the newest one.
const CONFIRM_EVERY: Duration = Duration::from_millis(250);
/// An agent is started when no other orchestrator has the job, or when that is not known after this time.
const UNCONFIRMED_START: Duration = Duration::from_secs(2);
/// How long an answer may take beyond that delay.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(2);

/// Runs a job with pairs to its end.
pub async fn run(options: &RunOptions, replicated: &Replicated) -> Result<RunReport, RunError> {
    let (spec, began) = (&options.spec, Instant::now());
    let prepared = opening::preflight(spec, replicated)?;
    restart_choice::check(spec, &options.choices)?;
    let mut shell = JobShell::begin(options)?;
    let prefix = shell.prefix.clone();
    if !options.choices.again
        && let Some(earlier) = opening::is_finished(spec, &prefix)?
    {
        options.screen.line("the job was finished in an earlier run and is not run again; `--again` repeats it");
        let outcome = "the job was finished in an earlier run; `holdfast run --again` repeats it".to_owned();
        let job_id = earlier.agents.job_id;
        return Ok(report(spec, &prefix, (job_id, outcome, exit::FINISHED), Vec::new(), began));
    }
    let mut reporter = shell.reporter(&prefix, None)?;
    let from = (&*prefix, &options.choices.restart);
    let opened = opening::open(spec, replicated, &prepared, from, (&mut reporter, &mut shell.signals)).await;
    let ended = match opened {
        Err(error) => Err(error),
        Ok(opened) => {
            shell.allocation_id = Some(opened.allocation.allocation_id());
            let job = Job { replicated, directory: prepared.working_directory, began };
            match job.run(opened, reporter, &mut shell).await {
                // The chain of allocations is the other orchestrator's, too.
                Ok(EndedJob { report, is_replaced: true }) => return Ok(report),
                ended => ended.map(|ended| ended.report),
            }
        }
    };
    shell.end(ended).await
}

struct Job<'a> {
    replicated: &'a Replicated,
    /// The working directory of copies and jobs.
    directory: PathBuf,
    began: Instant,
}

struct EndedJob {
    report: RunReport,
    is_replaced: bool,
}

impl Job<'_> {
    async fn run(self, opened: Opened, mut reporter: Reporter, shell: &mut JobShell<'_>) -> Result<EndedJob, RunError> {
        let Job { replicated, directory, began } = self;
        let (spec, prefix) = (shell.spec, &*shell.prefix);
        reporter.log(&settings_in_force::event(spec, None));
        let Opened { allocation, placement, mut state, claim, took_over } = opened;
        let clock = Clock::since(unix_now());
        let agents = shell.supervisor(&allocation, &state, clock)?;
        let known = state.running.keys().cloned().collect();
        let pairs = state.pairs.clone().unwrap_or_default();
        let config = AgentsConfig {
            nodes: placement.nodes(),
            pairs: pairs.places,
            finished: pairs.progress.finished,
            replica_preferred: pairs.progress.replica_preferred,
            stop_grace: replicated.settings.stop_grace,
            epoch: pairs.epoch,
            lease: replicated.settings.lease,
            start_within: replicated.settings.start_within,
            reboot: replicated.settings.reboot.command.is_some().then(|| RebootRule {
                after: replicated.settings.reboot.after,
                attempts: replicated.settings.reboot.attempts,
                own_node: allocation.own_node(),
            }),
        };
        let (machine, actions) = Machine::new(config, &known, clock.now());
        state.allocation_end = allocation.end().map(settings::epoch);
        let (sender, inbox) = mpsc::unbounded_channel();
        let (follow_sender, followed) = mpsc::unbounded_channel();
        let record = JobRecord::new(state, prefix.to_owned(), Some(claim.clone()));
        let record = record.map_err(RunError::io("start the thread of the journal"))?;
        let mut driver = Driver {
            prefix: prefix.to_owned(),
            settings: PairsSettings {
                lease: replicated.settings.lease,
                pin_watcher: replicated.settings.pin_watcher,
                directory,
                output: Some(opening::output(prefix)),
                save_to: pairs.progress.save_to.as_deref().map(|run| saved::directory(prefix, run)),
                restore_from: pairs.progress.restore_from.iter().map(|run| saved::directory(prefix, run)).collect(),
                environment: replicated.settings.env.clone(),
            },
            wait: LONGEST_WAIT.min(replicated.settings.lease / 4),
            patience: SHORTEST_PATIENCE.max(spec.health.down_after),
            before_end: spec.halt.before_end,
            reboot: replicated.settings.reboot.clone(),
            reboots: JoinSet::new(),
            stop_grace: replicated.settings.stop_grace,
            epoch: pairs.epoch,
            machine,
            agents,
            allocation,
            placement,
            record,
            claim,
            confirm: Arc::new(Notify::new()),
            starts: BTreeMap::new(),
            reporter,
            clock,
            followers: BTreeMap::new(),
            sender,
            follow_sender,
            history: History::default(),
            outcome: None,
            signals: 0,
            was_awake: false,
            up_before: known,
        };
        let output = opening::output(prefix);
        driver.reporter.screen.line(&format!("output of copies and jobs: {}/*.log", output.display()));
        if took_over {
            let directory = StateDirectory::below(prefix).path().to_owned();
            let read = tokio::task::spawn_blocking(move || History::of_log(&directory)).await;
            driver.history = read.unwrap_or_default();
            driver.reporter.emit(LogEvent::PairsTakenOver { epoch: driver.epoch });
            let running = driver.record.state.running.clone();
            driver.agents.adopt(&running).await;
        }
        driver.perform(actions);
        let outcome = driver.follow_job(&mut shell.signals, (inbox, followed)).await;
        if !outcome.is_replaced() {
            driver.last_events().await;
        }
        let overview = driver.machine.overview();
        let report_pairs = with_output(driver.history.report(&overview), prefix).await;
        let (exit_code, message) = (outcome.exit_code(), outcome.to_string());
        if outcome.is_replaced() {
            // Agents, nodes, the state and the event log are those of another orchestrator.
            let ended = (driver.record.state.agents.job_id, message, exit_code);
            let report = report(spec, prefix, ended, report_pairs, began);
            return Ok(EndedJob { report, is_replaced: true });
        }
        driver.end_saving(&outcome.end).await;
        driver.reporter.emit(LogEvent::Finished { exit_code, message: message.clone(), interval: None });
        let Driver { mut agents, allocation, mut record, mut reporter, followers, was_awake, .. } = driver;
        drop(followers);
        agents.end_all(outcome.unreachable.is_empty()).await;
        let nodes = allocation.nodes().to_vec();
        // Unless copies may still run on them, nothing is left on the nodes.
        release(allocation, &mut reporter).await;
        record.state.stage = Stage::Finished { exit_code, message: message.clone() };
        let ended = nodes.into_iter().map(|node| (node, None)).collect();
        record.finish(Changes::default(), ended, (&mut shell.signals, &reporter.screen)).await;
        let ended = (record.state.agents.job_id.clone(), message, exit_code);
        shell.made_progress = was_awake;
        Ok(EndedJob { report: report(spec, prefix, ended, report_pairs, began), is_replaced: false })
    }
}

/// Adds the last output of copies that were given up, if it can be read.
async fn with_output(mut pairs: Vec<PairReport>, prefix: &Path) -> Vec<PairReport> {
    let (directory, mut quoted) = (opening::output(prefix), pairs.clone());
    let read = tokio::task::spawn_blocking(move || {
        quote_output(&mut quoted, &directory);
        quoted
    });
    // A prefix directory that hangs does not delay the end.
    if let Ok(Ok(quoted)) = tokio::time::timeout(OUTPUT_WITHIN, read).await {
        pairs = quoted;
    }
    pairs
}

fn report(
    spec: &JobSpec,
    prefix: &Path,
    (job_id, outcome, exit_code): (String, String, u8),
    pairs: Vec<PairReport>,
    began: Instant,
) -> RunReport {
    RunReport {
        job: spec.job.clone(),
        job_id,
        outcome,
        exit_code,
        pairs: Some(pairs),
        files: PrefixReport {
            output: Some(opening::output(prefix)),
            ..PrefixReport::new(prefix.to_owned(), spec.event_log)
        },
        took: began.elapsed(),
        ..RunReport::default()
    }
}

/// Results of requests to agents, and of the poll of the resource manager.
type Inbox = mpsc::UnboundedReceiver<Event>;
type Followed = mpsc::UnboundedReceiver<FollowReport>;

struct Driver {
    prefix: PathBuf,
    machine: Machine,
    agents: AgentSupervisor,
    allocation: Arc<dyn Allocation>,
    placement: Placement,
    settings: PairsSettings,
    epoch: u64,
    wait: Duration,
    patience: Duration,
    before_end: Duration,
    reboot: Reboot,
    /// The commands that run; they are ended with the job.
    reboots: JoinSet<()>,
    /// The longest grace of a copy.
    stop_grace: Duration,
    record: JobRecord,
    claim: Claim,
    /// The claim is to be looked at now.
    confirm: Arc<Notify>,
    /// The nodes on which agents are to be started, and since when: a process that was stopped for long may find that
    /// it has lost agents which another orchestrator has.
    starts: BTreeMap<NodeName, Duration>,
    reporter: Reporter,
    clock: Clock,
    followers: BTreeMap<NodeName, Follower>,
    sender: mpsc::UnboundedSender<Event>,
    follow_sender: mpsc::UnboundedSender<FollowReport>,
    history: History,
    outcome: Option<Outcome>,
    /// Signals received.
    signals: u32,
    /// A copy was awake.
    was_awake: bool,
    /// Nodes that had an agent before.
    up_before: BTreeSet<NodeName>,
}

impl Driver {
    /// The loop. It never waits for a file system.
    async fn follow_job(&mut self, signals: &mut Signals, (mut inbox, mut followed): (Inbox, Followed)) -> Outcome {
        let mut check = tokio::time::interval(CHECK_EVERY);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end_watch = self.watch_end();
        let requests_watch = self.watch_requests();
        let claim_watch = self.watch_claim();
        let outcome = loop {
            if let Some(outcome) = self.outcome.take() {
                break outcome;
            }
            let deadline = self.clock.reach(self.machine.deadline());
            let event = tokio::select! {
                biased;
                name = signals.next() => self.signal(name),
                Some(event) = inbox.recv() => {
                    self.report_reboot(&event);
                    Some(event)
                }
                Some(report) = followed.recv() => self.report_of(report),
                event = self.agents.next() => self.fleet_event(event),
                _ = self.record.written() => None,
                () = deadline => None,
                _ = check.tick() => None,
            };
            let now = self.clock.now();
            self.start_agents(now, event.as_ref());
            let mut actions = event.map(|event| self.machine.handle(now, event)).unwrap_or_default();
            actions.extend(self.machine.tick(now));
            self.perform(actions);
            // No action waits for it.
            self.record.commit(false, &self.agents, Changes::default);
            self.refresh();
        };
        end_watch.abort();
        requests_watch.abort();
        claim_watch.abort();
        outcome
    }

    /// The events of the agents up to the end of their copies, which they report for the last time.
    async fn last_events(&mut self) {
        let mut waiting: BTreeSet<NodeName> = self.machine.agents().into_keys().collect();
        let end = tokio::time::Instant::now() + LAST_EVENTS_WITHIN;
        let asked = self.clock.now();
        self.agents.poll_now(&waiting);
        while !waiting.is_empty() {
            let Ok(event) = tokio::time::timeout_at(end, self.agents.next()).await else { return };
            match event {
                FleetEvent::Answered { node, sent, reply } => {
                    if sent >= asked {
                        waiting.remove(&node);
                    }
                    self.answered(&node, *reply);
                }
                FleetEvent::Unchanged { answers } => {
                    for (node, _) in answers.into_iter().filter(|(_, sent)| *sent >= asked) {
                        waiting.remove(&node);
                    }
                }
                FleetEvent::Lost { node, .. } => {
                    waiting.remove(&node);
                }
                _ => {}
            }
        }
    }

    /// Watches the end of the allocation. A manager that does not answer delays only this task.
    fn watch_end(&self) -> tokio::task::JoinHandle<()> {
        let (allocation, sender, before_end) = (Arc::clone(&self.allocation), self.sender.clone(), self.before_end);
        tokio::spawn(async move {
            loop {
                let manager = Arc::clone(&allocation);
                let Ok(end) = tokio::task::spawn_blocking(move || manager.end()).await else { return };
                let left = end.map(|end| settings::epoch(end) - unix_now());
                if left.is_some_and(|left| left <= i64::try_from(before_end.as_secs()).unwrap_or(i64::MAX)) {
                    let _ = sender.send(Event::Halt { reason: "the allocation ends".to_owned(), at_once: false });
                    return;
                }
                tokio::time::sleep(CHECK_EVERY).await;
            }
        })
    }

    /// Reads the requests of users for pairs on two nodes again and again.
    fn watch_requests(&self) -> tokio::task::JoinHandle<()> {
        let (prefix, job_id) = (self.prefix.clone(), self.record.state.agents.job_id.clone());
        let mut done = self.record.state.pairs.as_ref().map_or(0, |pairs| pairs.progress.requests_done);
        let sender = self.sender.clone();
        let has_split = self.placement.pairs().any(crate::pairs::placement::PairPlace::is_split);
        let mut unreadable = Lasting::default();
        tokio::spawn(async move {
            if !has_split {
                return;
            }
            loop {
                let (prefix, job_id) = (prefix.clone(), job_id.clone());
                let read = tokio::task::spawn_blocking(move || PairRequests::read(&prefix, &job_id));
                match read.await {
                    Ok(Ok(requests)) => {
                        if unreadable.ends() {
                            tracing::warn!("requests for pairs can be read again");
                        }
                        for request in requests.after(done) {
                            done = request.number;
                            let PairRequest { pair, command, number } = request;
                            if sender.send(Event::Requested { pair, command, number }).is_err() {
                                return;
                            }
                        }
                    }
                    Ok(Err(error)) if unreadable.begins() => {
                        tracing::warn!(%error, "requests for pairs cannot be read");
                    }
                    Ok(Err(_)) => {}
                    Err(_) => return,
                }
                tokio::time::sleep(CHECK_EVERY).await;
            }
        })
    }

    /// Looks again and again whether another orchestrator has claimed the job. While the prefix directory does not
    /// answer, there is no event.
    fn watch_claim(&self) -> tokio::task::JoinHandle<()> {
        let (prefix, claim, sender) = (self.prefix.clone(), self.claim.clone(), self.sender.clone());
        let (clock, confirm, every) = (self.clock, self.confirm.clone(), CONFIRM_EVERY.min(self.settings.lease / 8));
        let mut unknown = Lasting::default();
        tokio::spawn(async move {
            loop {
                let (prefix, claim, since) = (prefix.clone(), claim.clone(), clock.now());
                let event = match tokio::task::spawn_blocking(move || claim.is_newest(&prefix)).await {
                    Ok(Ok(true)) => Some(Event::Confirmed { since }),
                    Ok(Ok(false)) => Some(Event::Replaced),
                    Ok(Err(error)) => {
                        if unknown.begins() {
                            tracing::warn!(%error, "it is not known whether another orchestrator has the job");
                        }
                        None
                    }
                    Err(_) => return,
                };
                if event.is_some() && unknown.ends() {
                    tracing::warn!("it is known again whether another orchestrator has the job");
                }
                if event.is_some_and(|event| sender.send(event).is_err()) {
                    return;
                }
                let _ = tokio::time::timeout(every, confirm.notified()).await;
            }
        })
    }

    fn signal(&mut self, name: &'static str) -> Option<Event> {
        self.signals += 1;
        let number = self.signals;
        // Its sentence is about ranks and the drain.
        self.reporter.log(&LogEvent::Signal { name: name.to_owned(), number, at_once: false });
        let (again, how) = if number > 1 { (" again", "killing") } else { ("", "ending") };
        self.reporter.screen.line(&format!("{name}{again}: {how} all copies and jobs"));
        Some(Event::Signal { name })
    }

    fn report_of(&mut self, report: FollowReport) -> Option<Event> {
        let is_current = |node: &NodeName, address: &SocketAddr| {
            self.followers.get(node).is_some_and(|follower| follower.address == *address)
        };
        match report {
            FollowReport::Replaced => Some(Event::Replaced),
            // An agent that was replaced since.
            FollowReport::Reported { ref node, ref address, .. } | FollowReport::Lost { ref node, ref address, .. }
                if !is_current(node, address) =>
            {
                None
            }
            FollowReport::Reported { node, report, asked, .. } => {
                self.note_begun(&report.pairs);
                if report.version == 0 {
                    // An agent that was restarted meanwhile at the same address.
                    return Some(Event::AgentLost { node, reason: "it has no plan".to_owned() });
                }
                Some(Event::Reported { node, report, asked })
            }
            FollowReport::Lost { node, reason, .. } => {
                self.reporter.emit(LogEvent::AgentLost { node: node.clone(), reason: reason.clone() });
                Some(Event::AgentLost { node, reason })
            }
        }
    }

    fn fleet_event(&mut self, event: FleetEvent) -> Option<Event> {
        match event {
            FleetEvent::Up { node, address, clock_skew_ms, health, .. } => {
                self.reporter.agent_up(&node, clock_skew_ms, health.as_deref());
                let faults = health.iter().flat_map(|health| &health.directories);
                for fault in faults.filter_map(|directory| Some((&directory.path, directory.fault.as_ref()?))) {
                    let message = format!("{}: {}", fault.0, fault.1);
                    self.reporter.emit(LogEvent::of_agent(&node, AgentEvent::Notice { message }));
                }
                let again = !self.up_before.insert(node.clone());
                self.reporter.emit(LogEvent::AgentReady { node: node.clone(), again });
                // Commands find the job by its agents.
                self.record.agent_changed(&node);
                self.record.make_durable();
                Some(Event::AgentUp { node, address })
            }
            FleetEvent::StartFailed { node, reason, .. } => Some(Event::AgentStartFailed { node, reason }),
            FleetEvent::Lost { node, reason } => {
                self.record.agent_changed(&node);
                if !self.machine.is_ending() {
                    self.reporter.emit(LogEvent::AgentLost { node: node.clone(), reason: reason.clone() });
                }
                Some(Event::AgentLost { node, reason })
            }
            FleetEvent::Answered { node, reply, .. } => self.answered(&node, *reply),
            FleetEvent::Unchanged { .. } | FleetEvent::PollsRan { .. } | FleetEvent::Checked { .. } => None,
        }
    }

    fn answered(&mut self, node: &NodeName, reply: PollReply) -> Option<Event> {
        if !reply.events.is_empty() {
            // An orchestrator that takes over requests events again whose numbers are not on disk.
            self.record.agent_changed(node);
        }
        for event in reply.events {
            let event = LogEvent::of_agent(node, event.event);
            self.history.note(&event);
            self.reporter.emit(event);
        }
        let HaltReport { reason, immediate, .. } = reply.health.halt?;
        // The agents repeat it with each answer.
        self.machine.obeys_halt(immediate).then(|| {
            self.reporter.emit(LogEvent::HaltSet { reason: reason.clone() });
            Event::Halt { reason, at_once: immediate }
        })
    }

    /// Pairs of which a copy is awake for the first time: from now on they have checkpoints of this run.
    fn note_begun(&mut self, pairs: &[PairStatus]) {
        let begun = self.record.state.pairs.as_ref().map(|pairs| &pairs.progress.begun);
        let is_new =
            |pair: &&PairStatus| pair.awake().is_some() && begun.is_some_and(|begun| !begun.contains(&pair.pair));
        let new: Vec<u32> = pairs.iter().filter(is_new).map(|pair| pair.pair).collect();
        if !new.is_empty() {
            self.was_awake = true;
            self.record_pairs(|progress| progress.begun.extend(new));
        }
    }

    /// Reports which checkpoints the next run goes on from, and removes those that it does not need.
    async fn end_saving(&mut self, end: &PairsEnd) {
        let Some(progress) = self.record.state.pairs.as_ref().map(|pairs| pairs.progress.clone()) else { return };
        let finished = self.machine.finished().clone();
        let unfinished = (0..).zip(self.placement.pairs()).filter(|(at, _)| !finished.contains(at));
        let unfinished: Vec<String> = unfinished.map(|(_, place)| place.name.clone()).collect();
        let (prefix, is_over) = (self.prefix.clone(), *end == PairsEnd::Finished);
        let look = tokio::task::spawn_blocking(move || {
            let left = saved::left(&prefix, &progress, unfinished)?;
            let mut kept = Vec::new();
            if !is_over {
                kept.extend(progress.save_to);
                if !(left.older.is_empty() && left.without.is_empty()) {
                    kept.extend(progress.restore_from);
                }
            }
            saved::remove_all_but(&prefix, &kept);
            Ok::<_, OwnedError>((left, kept))
        });
        // A prefix directory that hangs does not delay the end.
        match tokio::time::timeout(SAVED_WITHIN, look).await {
            Ok(Ok(Ok((Left { saved, older, without }, kept)))) => {
                self.record_pairs(|progress| progress.restore_from.retain(|run| kept.contains(run)));
                if !is_over {
                    self.reporter.emit(LogEvent::PairsSaved { pairs: saved.len(), older, without });
                }
            }
            Ok(Ok(Err(error))) => tracing::warn!("it is not known which checkpoints are saved: {error}"),
            Ok(Err(_)) | Err(_) => {
                tracing::warn!("it is not known which checkpoints are saved: the prefix directory does not answer");
            }
        }
    }

    /// Enters what changed of the pairs in the state. It has to survive a crash of this machine.
    fn record_pairs(&mut self, change: impl FnOnce(&mut PairsProgress)) {
        if let Some(pairs) = &mut self.record.state.pairs {
            change(&mut pairs.progress);
            self.record.make_durable();
        }
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::StartAgent { node } => {
                    self.starts.insert(node, self.clock.now());
                    self.confirm.notify_one();
                }
                Action::End { reason } => self.reporter.emit(LogEvent::PairsEnding { reason }),
                Action::SendPlan { node } => self.send_plan(&node),
                Action::Follow { node, orders } => self.follow(node, orders),
                Action::Order { node, orders } => {
                    if let Some(follower) = self.followers.get(&node) {
                        follower.change(|request| apply(orders, request));
                    }
                }
                Action::Unfollow { node } => drop(self.followers.remove(&node)),
                Action::AnnouncePeer { node } => self.announce_peer(&node),
                Action::ReportFailure { node, reason } => {
                    self.reporter.emit(LogEvent::AgentNotStarted { node, reason });
                }
                Action::Confirm => self.confirm.notify_one(),
                Action::RecordRequest { number } => {
                    let replica_preferred = self.machine.replica_preferred();
                    self.record_pairs(|pairs| {
                        (pairs.requests_done, pairs.replica_preferred) = (number, replica_preferred);
                    });
                }
                Action::RecordPreferred => {
                    let replica_preferred = self.machine.replica_preferred();
                    self.record_pairs(|pairs| pairs.replica_preferred = replica_preferred);
                }
                Action::RecordFinished => {
                    let finished = self.machine.finished().clone();
                    self.record_pairs(|pairs| pairs.finished = finished);
                }
                Action::Reboot { node } => self.reboot(node),
                Action::Stop { node, at_once } => self.stop(node, at_once),
                Action::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    /// Starts the agents that waited for this event, or long enough.
    fn start_agents(&mut self, now: Duration, event: Option<&Event>) {
        let is_due = |asked: Duration| match event {
            Some(Event::Confirmed { since }) => *since >= asked,
            Some(Event::Replaced) => false,
            _ => now >= asked + UNCONFIRMED_START,
        };
        for (node, _) in self.starts.extract_if(.., |_, asked| is_due(*asked)) {
            self.agents.start(node);
        }
    }

    fn plan(&self, node: &NodeName) -> PairsPlan {
        let (agents, finished) = (self.machine.agents(), self.machine.finished());
        let none = BTreeSet::new();
        let begun = self.record.state.pairs.as_ref().map_or(&none, |pairs| &pairs.progress.begun);
        self.placement.plan(node, self.epoch, &self.settings, &agents, (finished, begun))
    }

    /// Passes the answer to a request on, whose success is this event.
    fn answered_by<T>(&self, done: fn(NodeName) -> Event) -> impl Fn(NodeName, Result<T, RequestError>) + use<T> {
        let sender = self.sender.clone();
        move |node, answer| {
            let event = match answer {
                Ok(_) => done(node),
                Err(error) if error.is_superseded() => Event::Replaced,
                Err(error) => plan_refused(node, &error),
            };
            let _ = sender.send(event);
        }
    }

    fn send_plan(&self, node: &NodeName) {
        let request =
            to_each(self.plan(node), |client, address, plan| async move { client.pairs_plan(address, &plan).await });
        self.agents.request([node], request, self.answered_by(|node| Event::Planned { node }));
    }

    fn follow(&mut self, node: NodeName, orders: Orders) {
        let Some(address) = self.machine.agents().get(&node).copied() else { return };
        let (wait, patience, clock) = (self.wait, self.patience, self.clock);
        let followed = FollowedNode { node: node.clone(), address, wait, patience, clock };
        // An agent may have come up after this node's plan was made.
        let peers = self.plan(&node).pairs.into_iter();
        let peers = peers.filter_map(|pair| Some(PeerOfPair { pair: pair.index, address: pair.peer? })).collect();
        let mut request = PairsSync { epoch: self.epoch, peers, ..PairsSync::default() };
        apply(orders, &mut request);
        let client = self.agents.client().clone();
        let follower = Follower::spawn(client, followed, request, self.follow_sender.clone());
        self.followers.insert(node, follower);
    }

    /// The agent of a node listens at another address now.
    fn announce_peer(&mut self, node: &NodeName) {
        let Some(address) = self.machine.agents().get(node).copied() else { return };
        for (other, follower) in self.followers.iter().filter(|(other, _)| *other != node) {
            let shared = (0..).zip(self.placement.pairs());
            let shared = shared.filter(|(_, place)| {
                let nodes = [&place.main, &place.replica];
                place.is_split() && nodes.contains(&other) && nodes.contains(&node)
            });
            let peers: Vec<_> = shared.map(|(pair, _)| PeerOfPair { pair, address }).collect();
            if !peers.is_empty() {
                follower.change(|request| {
                    request.peers.retain(|known| !peers.iter().any(|peer| peer.pair == known.pair));
                    request.peers.extend(peers);
                });
            }
        }
    }

    fn stop(&mut self, node: NodeName, at_once: bool) {
        self.followers.remove(&node);
        let (epoch, grace) = (self.epoch, self.stop_grace);
        let request = move |client: AgentClient, _: NodeName, address| async move {
            client.pairs_stop(address, &PairsStop { epoch, at_once }, grace).await
        };
        self.agents.request([&node], request, self.answered_by(|node| Event::Stopped { node }));
    }

    /// Runs the site's command, and reports its end to the machine.
    fn reboot(&mut self, node: NodeName) {
        let (Some(command), sender) = (self.reboot.command_for(&node), self.sender.clone()) else { return };
        let context = program::ourselves().map(|supervisor| CommandContext {
            job_id: self.record.state.agents.job_id.clone(),
            prefix: self.prefix.clone(),
            directory: self.settings.directory.clone(),
            supervisor,
            allocation: Arc::clone(&self.allocation),
            // Nobody waits for it: its processes end with this one.
            running: mpsc::channel(1).0,
        });
        let (key, program) = (CommandKey::Reboot, command.first().cloned().unwrap_or_default());
        self.reporter.emit(LogEvent::SiteCommandStarted { key, program, nodes: vec![node.clone()] });
        let within = self.reboot.time_limit;
        self.reboots.spawn(async move {
            let ran = match context {
                Ok(context) => site::about_node(command, node.clone(), within, context).await,
                Err(error) => Err(error.into()),
            };
            let failure = ran.err().map(|failure| failure.to_string());
            let _ = sender.send(Event::Rebooted { node, failure });
        });
    }

    fn report_reboot(&mut self, event: &Event) {
        let Event::Rebooted { node, failure } = event else { return };
        let program = self.reboot.command.iter().flatten().next().cloned().unwrap_or_default();
        let failure = failure.as_ref().map(|failure| format!("{node}: {failure}"));
        let (key, nodes) = (Some(CommandKey::Reboot), vec![node.clone()]);
        self.reporter.emit(LogEvent::SiteCommand { key, program, nodes, failure, output: None });
    }

    /// Updates the live view.
    fn refresh(&mut self) {
        if !self.reporter.screen.is_live {
            return;
        }
        let overview = self.machine.overview();
        let agents = self.machine.agents().len();
        let phase = if self.machine.is_ending() { "ending" } else { "running" };
        self.reporter.screen.show(crate::events::View {
            phase: phase.to_owned(),
            used: agents,
            down: self.placement.nodes().len() - agents,
            pairs: Some(overview.summary()),
            ..crate::events::View::default()
        });
    }
}

/// The agent would refuse the content of a plan again.
fn plan_refused(node: NodeName, error: &RequestError) -> Event {
    match error {
        RequestError::Refused { status: 400, message, .. } => {
            Event::PlanRefused { node, reason: message.clone(), is_final: true }
        }
        error => Event::PlanRefused { node, reason: error.to_string(), is_final: false },
    }
}

/// Puts orders into the requests to a node.
fn apply(orders: Orders, request: &mut PairsSync) {
    let Orders { instance, grants, revoked, finished } = orders;
    request.instance = instance;
    (request.leases, request.revoke, request.finished) = (grants, revoked, finished);
}

/// A repeated failure, of which only the beginning and the end are reported.
#[derive(Debug, Default)]
struct Lasting {
    lasts: bool,
}

impl Lasting {
    /// It failed. True: for the first time.
    fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.lasts, true)
    }

    /// It did not fail. True: it had failed before.
    fn ends(&mut self) -> bool {
        std::mem::take(&mut self.lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_failure_is_reported_once_and_its_end_once() {
        let mut lasting = Lasting::default();
        assert!(!lasting.ends());
        assert_eq!([lasting.begins(), lasting.begins(), lasting.begins()], [true, false, false]);
        assert_eq!([lasting.ends(), lasting.ends(), lasting.begins()], [true, false, true]);
    }
}
