//! The application: ranks that make the same calls of the checkpoint API, write and read files, and exit.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast::relaunch::Event;
use holdfast_core::store::DirectoryName;
use holdfast_model::dataset::default_name;
use holdfast_model::{CheckpointId, Generation, Rank, RankEnd};
use holdfast_testkit::Dice;
use holdfast_wire::payload::Payload;
use holdfast_wire::peer::{Outcome, ToLeader};
use holdfast_wire::rank::{Call, Reply};

use crate::content::{Content, FileName, Origin};
use crate::link::calls_of;
use crate::names::NodeIndex;
use crate::prefix::PrefixFile;
use crate::queue::MS;
use crate::store::File;
use crate::world::{SimulatedEvent, World, trace};

/// The ranks of one launch.
pub struct Application {
    pub homes: Vec<NodeIndex>,
    /// The ranks of each node.
    pub by_home: BTreeMap<NodeIndex, Vec<Rank>>,
    pub ranks: Vec<RankState>,
    pub alive_ranks: u32,
    /// Events that the launcher reported; a new orchestrator gets them again.
    pub reported: Vec<Event>,
    /// The launcher was cancelled and reports nothing more.
    pub ended: bool,
}

#[derive(Clone, Debug)]
pub struct RankState {
    pub alive: bool,
    /// Counts its steps, so that events of an earlier step are ignored.
    pub turn: u32,
    /// The sequence number of its last collective call.
    pub seq: u64,
    /// The call that it waits for.
    pub call: Option<Call>,
    /// The agent's participation that has received the call: it is not made there twice.
    made_to: u64,
    phase: Phase,
    iteration: u32,
    /// It has loaded once: the iterations that it repeats do not load again.
    loaded: bool,
}

impl RankState {
    pub fn new() -> Self {
        RankState {
            alive: false,
            turn: 0,
            seq: 0,
            call: None,
            made_to: 0,
            phase: Phase::Begin,
            iteration: 0,
            loaded: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Begin,
    /// Reads its files of this checkpoint.
    Read(CheckpointId),
    Compute,
    /// Writes its files, this part next.
    Write(CheckpointId, u8),
}

/// What the application does in an iteration.
enum Activity {
    Checkpoint,
    Output {
        checkpoint: bool,
        bypass: bool,
    },
    Need,
    ShouldExit,
    Allgather,
    RestartName,
    Load,
    /// A call that names the dataset of an earlier iteration.
    Named(fn(String) -> Call, String),
}

impl World {
    fn rank(&mut self, generation: Generation, rank: Rank, turn: u32) -> Option<&mut RankState> {
        let state = self.applications.get_mut(&generation)?.ranks.get_mut(rank.index())?;
        (state.alive && state.turn == turn).then_some(state)
    }

    fn next_step(&mut self, generation: Generation, rank: Rank, delay: u64) {
        let Some(application) = self.applications.get_mut(&generation) else { return };
        let state = &mut application.ranks[rank.index()];
        state.turn += 1;
        let turn = state.turn;
        self.after(delay, SimulatedEvent::RankStep { generation, rank, turn });
    }

    /// The next step of a rank that waits for no answer.
    pub fn rank_step(&mut self, generation: Generation, rank: Rank, turn: u32) {
        let Some(state) = self.rank(generation, rank, turn) else { return };
        let (iteration, loaded) = (state.iteration, state.loaded);
        match state.phase.clone() {
            Phase::Begin => self.make_call(generation, rank, Call::Init),
            Phase::Read(checkpoint) => self.read_files(generation, rank, checkpoint),
            Phase::Write(checkpoint, part) => self.write_file(generation, rank, checkpoint, part),
            Phase::Compute => {
                let call = self.next_call(iteration, rank, loaded);
                self.make_call(generation, rank, call);
            }
        }
    }

    /// The call of an iteration; the same on all ranks.
    fn next_call(&self, iteration: u32, rank: Rank, loaded: bool) -> Call {
        if iteration >= self.scenario.iterations {
            return Call::Finalize;
        }
        match activity(self.scenario.program, iteration) {
            Activity::Checkpoint => Call::Start,
            Activity::Output { .. } if self.scenario.files.is_some_and(|rates| !rates.outputs) => Call::Start,
            Activity::Output { checkpoint, bypass } => {
                Call::StartOutput { name: Some(format!("output {iteration}")), checkpoint, output: true, bypass }
            }
            Activity::Need => Call::Need,
            Activity::RestartName => Call::RestartName,
            Activity::Load if loaded => Call::Need,
            Activity::Load => Call::Load,
            Activity::Named(call, name) => call(name),
            Activity::ShouldExit => Call::ShouldExit,
            Activity::Allgather => Call::Allgather { data: Payload::from(rank.0.to_be_bytes().to_vec()) },
        }
    }

    fn make_call(&mut self, generation: Generation, rank: Rank, call: Call) {
        if manages(&call) {
            let newest = self.nodes.iter().filter_map(|node| node.disk.held.keys().next_back()).max();
            self.oracle.datasets_given_up(generation, newest.map_or(CheckpointId::NONE, |(checkpoint, _)| *checkpoint));
        }
        let Some(application) = self.applications.get_mut(&generation) else { return };
        let state = &mut application.ranks[rank.index()];
        state.seq += 1;
        state.turn += 1;
        state.loaded |= call == Call::Load;
        (state.call, state.made_to) = (Some(call), 0);
        let turn = state.turn;
        self.rank_calls(generation, rank, turn);
    }

    /// The rank's call reaches its agent, if that serves its generation.
    pub fn rank_calls(&mut self, generation: Generation, rank: Rank, turn: u32) {
        let at = self.applications.get(&generation).map(|application| application.homes[rank.index()]);
        let Some(state) = self.rank(generation, rank, turn) else { return };
        let (Some(call), seq, Some(at)) = (state.call.clone(), state.seq, at) else { return };
        if self.serving(at).is_some_and(|serving| serving > generation) {
            // The agent refuses the call: its run is over.
            return self.rank_ends(generation, rank, RankEnd::Code(1));
        }
        let Some(number) = self.part(at, generation).map(|part| part.number) else { return };
        let Some(state) = self.rank(generation, rank, turn) else { return };
        if std::mem::replace(&mut state.made_to, number) == number {
            return;
        }
        let Some(part) = self.part(at, generation) else { return };
        let of_seq = part.calls.entry(seq).or_default();
        of_seq.insert(rank, call.clone());
        let complete = of_seq.len() == part.local.len();
        // An earlier agent has served the run, and may have answered the other ranks.
        part.adopted |= part.known.insert(rank) && seq > 1;
        let mut messages = Vec::new();
        if seq > part.newest {
            // Ranks that wait for an earlier one missed its results, and the others will not repeat that call.
            part.newest = seq;
            messages.extend(part.calls.range(..seq).map(|(earlier, calls)| calls_of(*earlier, calls)));
        }
        if part.adopted || seq < part.newest {
            messages.push(ToLeader::Calls { seq, calls: vec![(rank, call)] });
        } else if complete {
            messages.extend(part.calls.get(&seq).map(|calls| calls_of(seq, calls)));
        }
        if let Some(link) = part.link {
            messages.into_iter().for_each(|message| self.send_to_leader(link, message));
        }
    }

    /// After a restart of their agent, ranks that wait for an answer repeat their calls.
    pub fn ranks_connect(&mut self, at: NodeIndex) {
        let Some(generation) = self.nodes[at as usize].ranks else { return };
        let Some(application) = self.applications.get(&generation) else { return };
        let local = application.by_home.get(&at).into_iter().flatten();
        let waiting = local.map(|rank| (*rank, &application.ranks[rank.index()]));
        let waiting = waiting.filter(|(_, state)| state.alive && state.call.is_some());
        let waiting: Vec<(Rank, u32)> = waiting.map(|(rank, state)| (rank, state.turn)).collect();
        for (rank, turn) in waiting {
            let delay = self.between(MS, 40 * MS);
            self.after(delay, SimulatedEvent::RankCall { generation, rank, turn });
        }
    }

    pub fn rank_reply(
        &mut self,
        at: NodeIndex,
        instance: u64,
        generation: Generation,
        rank: Rank,
        seq: u64,
        outcome: &Arc<Outcome>,
    ) {
        if self.agent(at, instance).is_none() {
            return;
        }
        let Some(state) = self.applications.get_mut(&generation).map(|it| &mut it.ranks[rank.index()]) else { return };
        if !state.alive {
            return;
        }
        assert!(
            state.call.is_some() && state.seq == seq,
            "rank {rank} received the answer of call {seq} and waits for {}",
            state.seq
        );
        let call = state.call.take();
        state.turn += 1;
        self.oracle.replied(generation, rank, seq, outcome, self.scenario.world());
        match &**outcome {
            Err(failure) => {
                trace!(self, "rank {rank}: its call failed: {failure}");
                if call.as_ref().is_some_and(manages) {
                    // There is no such dataset, or the prefix directory failed.
                    return self.rank_goes_on(generation, rank, call, &Reply::Done);
                }
                self.rank_ends(generation, rank, RankEnd::Code(1));
            }
            Ok(reply) => self.rank_goes_on(generation, rank, call, reply),
        }
    }

    fn rank_goes_on(&mut self, generation: Generation, rank: Rank, call: Option<Call>, reply: &Reply) {
        let delay = self.between(MS, 30 * MS);
        let Some(application) = self.applications.get_mut(&generation) else { return };
        let at = application.homes[rank.index()];
        let state = &mut application.ranks[rank.index()];
        match reply {
            Reply::Restart(restart) => {
                if restart.halt.is_some() {
                    return self.rank_ends(generation, rank, RankEnd::SUCCESS);
                }
                match restart.checkpoint {
                    Some(checkpoint) => {
                        let disk = &self.nodes[at as usize].disk;
                        let direct = disk.member.as_ref().is_some_and(|memory| memory.direct.is_some());
                        let known = disk.get(checkpoint, rank).is_some_and(|held| held.descriptor.is_some());
                        if !direct && !known {
                            // Its agent has no record of the files.
                            trace!(self, "rank {rank}: no files of checkpoint {checkpoint} on n{at}");
                            return self.rank_ends(generation, rank, RankEnd::Code(1));
                        }
                        state.phase = Phase::Read(checkpoint);
                    }
                    None => (state.phase, state.iteration) = (Phase::Compute, 0),
                }
            }
            Reply::Started { checkpoint, .. } => state.phase = Phase::Write(*checkpoint, 0),
            Reply::Completed { halt: Some(_), .. } => return self.rank_ends(generation, rank, RankEnd::SUCCESS),
            Reply::Flag(true) if call == Some(Call::ShouldExit) => {
                return self.rank_ends(generation, rank, RankEnd::SUCCESS);
            }
            Reply::Flag(true) => {
                return self.make_call(generation, rank, Call::Start);
            }
            Reply::Done if call == Some(Call::Finalize) => return self.rank_ends(generation, rank, RankEnd::SUCCESS),
            // The restart files were read; the iteration was set with them.
            Reply::Done if matches!(call, Some(Call::CompleteRestart { .. })) => state.phase = Phase::Compute,
            _ => {
                state.iteration += 1;
                state.phase = Phase::Compute;
            }
        }
        self.next_step(generation, rank, delay);
    }

    /// The rank routes a file through its agent and writes it.
    fn write_file(&mut self, generation: Generation, rank: Rank, checkpoint: CheckpointId, part: u8) {
        let at = self.applications[&generation].homes[rank.index()];
        let iteration = self.applications[&generation].ranks[rank.index()].iteration;
        if self.part(at, generation).is_none() {
            // Its agent is being restarted.
            return self.next_step(generation, rank, 30 * MS);
        }
        let parts = self.scenario.parts;
        let full = self.disk_fails(at, true);
        let name = FileName::Application { rank, part: part.min(parts - 1) };
        let origin = Origin { rank, checkpoint, generation, iteration: iteration + 1, part: part.min(parts - 1) };
        if self.files.is_some() && (full || !self.write_on_files(at, &origin, false)) {
            // It was not routed, or not written: the rank knows that its checkpoint is incomplete.
            return self.make_call(generation, rank, Call::Complete { valid: false });
        }
        if self.files.is_some() && part + 1 < parts {
            // The next file is routed and begun.
            self.write_on_files(at, &Origin { part: part + 1, ..origin }, true);
        }
        let disk = &mut self.nodes[at as usize].disk;
        let direct = disk.member.as_mut().and_then(|memory| memory.direct.as_mut());
        if self.files.is_some() {
            // It was written above.
        } else if let Some((directory, files)) = direct {
            let known = files.entry(rank).or_default();
            let text = name.to_string();
            if part < parts && !known.contains(&text) {
                known.push(text);
            }
            let directory = DirectoryName::new(directory.as_str()).unwrap();
            if let Some(directory) = self.prefix.directories.get_mut(&directory) {
                directory.files.insert(name, PrefixFile { rank, content: Content::Written(origin) });
            }
        } else if !full {
            disk.held(checkpoint, rank).put(File {
                name,
                content: Content::Written(origin),
                sealed: false,
                there: true,
            });
            if part + 1 < parts {
                // The next file is routed and begun.
                let name = FileName::Application { rank, part: part + 1 };
                disk.held(checkpoint, rank).put(File { name, content: Content::Torn, sealed: false, there: true });
            }
        }
        if part + 1 < parts {
            let state = &mut self.applications.get_mut(&generation).unwrap().ranks[rank.index()];
            state.phase = Phase::Write(checkpoint, part + 1);
            let delay = self.between(MS, 5 * MS);
            return self.next_step(generation, rank, delay);
        }
        let valid = !full && self.dice.below(1000) > 0;
        self.make_call(generation, rank, Call::Complete { valid });
    }

    /// The rank reads what it restarts from.
    fn read_files(&mut self, generation: Generation, rank: Rank, checkpoint: CheckpointId) {
        let at = self.applications[&generation].homes[rank.index()];
        let parts = self.scenario.parts;
        let unreadable = self.disk_fails(at, false);
        let disk = &self.nodes[at as usize].disk;
        let direct = disk.member.as_ref().and_then(|memory| memory.direct.as_ref());
        let direct = direct.map(|(directory, _)| DirectoryName::new(directory.as_str()).unwrap());
        if direct.is_some() && self.files.is_some() && self.part(at, generation).is_none() {
            // Its agent is being restarted.
            return self.next_step(generation, rank, 30 * MS);
        }
        let disk = &self.nodes[at as usize].disk;
        let mut found: BTreeMap<u8, Content> = BTreeMap::new();
        for part in 0..parts {
            let name = FileName::Application { rank, part };
            let content = match &direct {
                Some(_) if self.files.is_some() => self.read_bypassing(at, rank, name),
                Some(directory) => {
                    let directory = self.prefix.directories.get(directory);
                    directory.and_then(|it| it.files.get(&name)).map(|file| file.content.clone())
                }
                None => {
                    let held = disk.get(checkpoint, rank);
                    let file = held.and_then(|held| held.files.iter().find(|file| file.name == name));
                    file.filter(|file| file.there && !unreadable).map(|file| file.content.clone())
                }
            };
            found.extend(content.map(|content| (part, content)));
        }
        // What reads a damaged file after the restart, such as a flush, may have recorded that it is not complete.
        let may_be_torn = self.nodes[at as usize].damaged;
        let damaged = found.values().any(|content| match content {
            Content::Damaged | Content::Garbage => true,
            Content::Torn => may_be_torn,
            _ => false,
        });
        if damaged {
            trace!(self, "rank {rank}: files of checkpoint {checkpoint} are damaged on n{at}");
            // A file that is read where it was written is not compared with its checksum.
            let in_place = !found.values().any(|content| matches!(content, Content::Garbage));
            let excused = self.oracle.undetected || (in_place && self.nodes[at as usize].damaged);
            self.oracle.unreadable(generation, rank, checkpoint, excused);
        }
        let valid = found.len() == usize::from(parts) && !damaged && self.dice.below(500) > 0;
        if found.len() < usize::from(parts) {
            trace!(self, "rank {rank}: files of checkpoint {checkpoint} are missing on n{at}");
            let excused = self.nodes[at as usize].damaged;
            self.oracle.unreadable(generation, rank, checkpoint, excused);
        }
        if !valid {
            self.oracle.rejected = self.oracle.rejected.max(Some(checkpoint));
        }
        for content in found.into_values().filter(|_| valid) {
            let iteration = self.oracle.restored(generation, rank, checkpoint, &content);
            self.applications.get_mut(&generation).unwrap().ranks[rank.index()].iteration = iteration;
        }
        self.make_call(generation, rank, Call::CompleteRestart { valid });
    }

    /// A rank of the newest generation, if it is alive.
    pub fn some_rank(&mut self) -> Option<(Generation, Rank)> {
        let (generation, application) = self.applications.last_key_value()?;
        let rank = Rank(self.dice.below(application.ranks.len() as u32));
        application.ranks[rank.index()].alive.then_some((*generation, rank))
    }
}

/// True for calls that manage datasets by their name.
fn manages(call: &Call) -> bool {
    matches!(call, Call::Current { .. } | Call::Load | Call::Drop { .. } | Call::Delete { .. })
}

fn activity(program: u64, iteration: u32) -> Activity {
    let (mut dice, choice) = choice(program, iteration);
    match choice {
        0..53 => Activity::Checkpoint,
        53..58 => Activity::Output { checkpoint: false, bypass: false },
        58..63 => Activity::Output { checkpoint: true, bypass: false },
        63..68 => Activity::Output { checkpoint: true, bypass: true },
        68..77 => Activity::Need,
        77..85 => Activity::ShouldExit,
        85..93 => Activity::Allgather,
        93 => Activity::RestartName,
        94 => Activity::Load,
        95..97 => Activity::Named(|name| Call::Current { name }, earlier(program, iteration, &mut dice)),
        97 => Activity::Named(|name| Call::Drop { name }, earlier(program, iteration, &mut dice)),
        _ => Activity::Named(|name| Call::Delete { name }, earlier(program, iteration, &mut dice)),
    }
}

/// The name of a dataset that an earlier iteration may have written.
fn earlier(program: u64, iteration: u32, dice: &mut Dice) -> String {
    let before = dice.below(iteration.max(1));
    if (53..68).contains(&choice(program, before).1) {
        format!("output {before}")
    } else {
        default_name(CheckpointId(u64::from(before) + 1))
    }
}

/// What decides what an iteration does.
fn choice(program: u64, iteration: u32) -> (Dice, u32) {
    let mut dice = Dice(program ^ (u64::from(iteration) << 32));
    let choice = dice.below(100);
    (dice, choice)
}
