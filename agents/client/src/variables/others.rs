//! Recovery from a checkpoint that another number of ranks wrote (`checkpoint.restart.ranks: any`).
//!
//! Before the first recovery, and before each from an older checkpoint, the ranks share the work of looking at the
//! files: each reads the sizes in some of them, and gets those in all. `recover` does the same with the hashes. Then
//! each rank reads its part of the variables from the files that have it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use holdfast_formats::FormatsError;
use holdfast_formats::fti_ff::checkpoint::{Checkpoint, Variable};
use holdfast_formats::fti_ff::name::{FileName, FileRole};
use holdfast_formats::fti_ff::verify;
use holdfast_model::{CheckpointId, Rank};
use holdfast_wire::rank::LARGEST_CONTRIBUTION;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::distribution::{Block, Distribution, Part, Run};
use super::load::reading;
use super::{VariableId, Variables, VariablesError};
use crate::ClientError;

/// What the ranks know of a checkpoint that another number of ranks wrote, or why it is unusable. Equal on all ranks.
pub(super) type Survey = Arc<Result<WrittenByOthers, String>>;

/// A checkpoint that another number of ranks wrote.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrittenByOthers {
    /// The program's id of it.
    pub(super) id: u32,
    /// The names of the files, by the rank that wrote them.
    files: Vec<String>,
    /// What each rank stored of a variable; `None` if it had none of this id.
    stored: BTreeMap<i32, Vec<Option<Stored>>>,
}

/// A variable in the file of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    bytes: u64,
    digest: [u8; 16],
}

/// What a rank found in its share of the files.
#[derive(Debug, Serialize, Deserialize)]
enum Found {
    Files(Vec<FoundFile>),
    Unusable(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct FoundFile {
    writer: usize,
    variables: Vec<(i32, Stored)>,
}

/// A rank's own block of a variable, sent to the other ranks.
#[derive(Debug, Serialize, Deserialize)]
struct OwnBlock {
    id: i32,
    block: Block,
    length: u64,
}

/// How this rank loads its variables.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) variables: Vec<(VariableId, Origin)>,
    pub(super) absent: Vec<VariableId>,
    pub(super) unclaimed: Vec<VariableId>,
}

#[derive(Debug)]
pub(super) enum Origin {
    /// From the file of any rank: of this one.
    Whole(usize),
    Parts(Vec<Part>),
}

impl Origin {
    fn writers(&self) -> Vec<usize> {
        match self {
            Origin::Whole(writer) => vec![*writer],
            Origin::Parts(parts) => parts.iter().map(|part| part.writer).collect(),
        }
    }
}

impl WrittenByOthers {
    /// The bytes of a variable for one of `ranks` ranks, if they have equally long blocks.
    pub(super) fn bytes_for(&self, id: i32, distribution: Distribution, (rank, ranks): (Rank, u32)) -> Option<u64> {
        let stored = self.stored.get(&id)?;
        match distribution {
            Distribution::Own => None,
            Distribution::Uniform => stored.iter().flatten().next().map(|stored| stored.bytes),
            Distribution::Block(block) => {
                let lengths = stored.iter().map(|stored| block.length(stored.map_or(0, |stored| stored.bytes)));
                let all = lengths.sum::<Option<u64>>()?;
                Some(block.even_bytes(all, rank.0, ranks))
            }
        }
    }

    /// The ids of all variables.
    pub(super) fn ids(&self) -> impl Iterator<Item = i32> {
        self.stored.keys().copied()
    }

    /// Puts together what all ranks have found.
    fn of(names: Vec<(String, u32)>, found: Vec<Found>) -> Result<WrittenByOthers, String> {
        let writers = names.len();
        let (files, ids): (Vec<String>, Vec<u32>) = names.into_iter().unzip();
        let id = *ids.first().ok_or("no rank wrote it")?;
        if let Some((name, _)) = files.iter().zip(&ids).find(|(_, other)| **other != id) {
            return Err(format!(
                "its files are of several checkpoints of the program: {name} is not of checkpoint {id}"
            ));
        }
        let mut stored: BTreeMap<i32, Vec<Option<Stored>>> = BTreeMap::new();
        for found in found {
            let files = match found {
                Found::Files(files) => files,
                Found::Unusable(reason) => return Err(reason),
            };
            for FoundFile { writer, variables } in files {
                for (id, variable) in variables {
                    let of_writers = stored.entry(id).or_insert_with(|| vec![None; writers]);
                    if let Some(of_writer) = of_writers.get_mut(writer) {
                        *of_writer = Some(variable);
                    }
                }
            }
        }
        Ok(WrittenByOthers { id, files, stored })
    }
}

impl Variables {
    /// Looks at the checkpoint to restart from, if another number of ranks wrote it. Collective.
    pub(super) fn survey(&mut self) -> Result<(), VariablesError> {
        self.others = None;
        let restart = self.client.restart();
        let Some(writers) = restart.written_by.filter(|_| restart.checkpoint.is_some()) else { return Ok(()) };
        let names = self.names(writers)?;
        let found = match &names {
            Ok(names) => self.found_files(names)?,
            Err(reason) => Found::Unusable(reason.clone()),
        };
        let all = self.gather(&found)?;
        self.others = Some(Arc::new(names.and_then(|names| WrittenByOthers::of(names, all))));
        Ok(())
    }

    /// Name and program's id of the file of variables of each rank that wrote the checkpoint.
    fn names(&mut self, writers: u32) -> Result<Result<Vec<(String, u32)>, String>, VariablesError> {
        let files = match self.client.restart_files() {
            Ok(listed) => listed.files,
            Err(ClientError::Failed { source, .. }) => return Ok(Err(source.to_string())),
            Err(error) => return Err(error.into()),
        };
        let mut names: BTreeMap<Rank, (String, u32)> = BTreeMap::new();
        for file in files {
            let Some(parsed) = FileName::parse(&file.name) else { continue };
            if let (FileRole::Rank, true, Some(id)) = (parsed.role, parsed.rank == file.rank.0, parsed.checkpoint) {
                names.insert(file.rank, (file.name, id));
            }
        }
        let of_all = (0..writers).map(|rank| {
            names.remove(&Rank(rank)).ok_or_else(|| format!("the checkpoint has no file of variables of rank {rank}"))
        });
        Ok(of_all.collect())
    }

    /// The files of which this rank looks at sizes and hashes.
    fn files_to_look_at(&self, writers: usize) -> impl Iterator<Item = usize> + use<> {
        (self.client.rank().0 as usize..writers).step_by(self.client.ranks().max(1) as usize)
    }

    fn found_files(&mut self, names: &[(String, u32)]) -> Result<Found, VariablesError> {
        let mut files = Vec::new();
        for writer in self.files_to_look_at(names.len()) {
            let Some((name, _)) = names.get(writer) else { continue };
            let file = match self.open_file(name)? {
                Ok(file) => file,
                Err(reason) => return Ok(Found::Unusable(reason)),
            };
            let variables = stored_in(&file);
            let bytes = variables.iter().fold(0_u64, |sum, (_, stored)| sum.saturating_add(stored.bytes));
            if bytes > file.input.size {
                // Memory would be allocated for them.
                let reason = format!("{name} is damaged: its containers overlap, with {bytes} bytes of variables");
                return Ok(Found::Unusable(reason));
            }
            files.push(FoundFile { writer, variables });
        }
        Ok(Found::Files(files))
    }

    /// Opens a file of another rank. The inner error is the reason why it cannot be used.
    fn open_file(&mut self, name: &str) -> Result<Result<Checkpoint, String>, VariablesError> {
        match self.client.route_file(name) {
            Ok(path) => Ok(Checkpoint::open(&path).map_err(|error| error.to_string())),
            Err(ClientError::Failed { source, .. }) => Ok(Err(source.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Verifies every hash of this rank's share of the files; the reason why they are unusable.
    pub(super) fn verify_share(&mut self, others: &WrittenByOthers) -> Result<Result<(), String>, VariablesError> {
        for writer in self.files_to_look_at(others.files.len()) {
            let Some(name) = others.files.get(writer) else { continue };
            let path = match self.open_file(name)? {
                Ok(file) => file.input.path,
                Err(reason) => return Ok(Err(reason)),
            };
            match verify::verify_own(&path, &mut |_, _| {}).map(|check| check.damages.into_iter().next()) {
                Ok(None) => {}
                Ok(Some(damage)) => return Ok(Err(format!("{} is damaged: {damage}", path.display()))),
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        Ok(Ok(()))
    }

    /// Where this rank's variables are in the files. Collective; the inner error is that of this rank.
    pub(super) fn place(
        &mut self,
        checkpoint: CheckpointId,
        others: &WrittenByOthers,
    ) -> Result<Result<Placed, VariablesError>, VariablesError> {
        let blocks = self.own_blocks(checkpoint);
        // A rank whose blocks are impossible takes part, so that no other one waits for it.
        let all: Vec<Option<Vec<OwnBlock>>> = self.gather(&blocks.as_ref().ok())?;
        if let Err(error) = blocks {
            return Ok(Err(error));
        }
        if let Some(rank) = (0..).map(Rank).zip(&all).find_map(|(rank, blocks)| blocks.is_none().then_some(rank)) {
            return Ok(Err(VariablesError::SizeOnOtherRank { rank, checkpoint }));
        }
        let all: Vec<Vec<OwnBlock>> = all.into_iter().flatten().collect();
        self.placed(checkpoint, others, &all)
    }

    fn own_blocks(&self, checkpoint: CheckpointId) -> Result<Vec<OwnBlock>, VariablesError> {
        let mut blocks = Vec::new();
        for variable in &self.protected {
            let Distribution::Block(block) = variable.distribution else { continue };
            let bytes = variable.memory.bytes() as u64;
            let length = block.length(bytes).ok_or_else(|| VariablesError::NoBlock {
                id: variable.id,
                bytes,
                step: block.step(),
                place: "in memory".to_owned(),
                checkpoint,
            })?;
            blocks.push(OwnBlock { id: variable.id.0, block, length });
        }
        Ok(blocks)
    }

    fn placed(
        &mut self,
        checkpoint: CheckpointId,
        others: &WrittenByOthers,
        all: &[Vec<OwnBlock>],
    ) -> Result<Result<Placed, VariablesError>, VariablesError> {
        let protected: Vec<(VariableId, Distribution)> =
            self.protected.iter().map(|variable| (variable.id, variable.distribution)).collect();
        let (mut variables, mut absent) = (Vec::new(), Vec::new());
        for (id, distribution) in &protected {
            let Some(stored) = others.stored.get(&id.0) else {
                absent.push(*id);
                continue;
            };
            let origin = match distribution {
                Distribution::Own => {
                    let (written, running) = (stored.len(), self.client.ranks());
                    Err(VariablesError::OfOneRank { id: *id, checkpoint, written, running })
                }
                Distribution::Uniform => self.uniform_origin(*id, checkpoint, others, stored)?.map(Origin::Whole),
                Distribution::Block(block) => {
                    parts(*id, *block, checkpoint, (stored, all), self.client.rank()).map(Origin::Parts)
                }
            };
            match origin {
                Ok(origin) => variables.push((*id, origin)),
                Err(error) => return Ok(Err(error)),
            }
        }
        let is_protected = |stored: &i32| protected.iter().any(|(id, _)| id.0 == *stored);
        let unclaimed = others.ids().filter(|id| !is_protected(id)).map(VariableId).collect();
        Ok(Ok(Placed { variables, absent, unclaimed }))
    }

    /// The rank from whose file a uniform variable is read, if all have the same value.
    fn uniform_origin(
        &mut self,
        id: VariableId,
        checkpoint: CheckpointId,
        others: &WrittenByOthers,
        stored: &[Option<Stored>],
    ) -> Result<Result<usize, VariablesError>, VariablesError> {
        let differs = |rank: usize| VariablesError::NotUniform { id, rank, checkpoint };
        let Some((first, rest)) = stored.split_first() else { return Ok(Err(differs(0))) };
        let mut value = None;
        for (writer, other) in (1..).zip(rest) {
            if other == first && first.is_some() {
                continue;
            }
            let (Some(first), Some(other)) = (first, other) else { return Ok(Err(differs(writer))) };
            // Written in other chunks, for example after the variable has grown in steps.
            let equal = first.bytes == other.bytes && {
                let value = match &value {
                    Some(value) => value,
                    None => value.insert(self.value(id, others, 0)?),
                };
                *value == self.value(id, others, writer)?
            };
            if !equal {
                return Ok(Err(differs(writer)));
            }
        }
        let (protected, stored) = (self.size(id).unwrap_or_default(), first.map_or(0, |first| first.bytes));
        let accepted = self.protected.iter().any(|variable| variable.id == id && variable.memory.accepts(stored));
        if !accepted {
            return Ok(Err(VariablesError::Size { id, protected, stored, checkpoint }));
        }
        let writers = others.files.len().max(1);
        Ok(Ok(self.client.rank().0 as usize % writers))
    }

    /// The value of a variable in the file of a rank.
    fn value(&mut self, id: VariableId, others: &WrittenByOthers, writer: usize) -> Result<Vec<u8>, VariablesError> {
        let opened = self.opened(others, writer)?;
        let (file, variable) = (&opened.file, opened.variable(id)?);
        let bytes = usize::try_from(variable.size()).unwrap_or(usize::MAX);
        let mut value = vec![0; bytes];
        file.read(variable, 0, &mut value).map_err(reading(&file.input.path))?;
        Ok(value)
    }

    fn opened(&mut self, others: &WrittenByOthers, writer: usize) -> Result<OpenedOther, VariablesError> {
        let name = others.files.get(writer).map_or("", String::as_str);
        let path = self.client.route_file(name)?;
        let file = Checkpoint::open(&path).map_err(reading(&path))?;
        Ok(OpenedOther { variables: file.variables(), file })
    }

    /// Loads this rank's variables, from one file after the other.
    pub(super) fn load_placed(
        &mut self,
        checkpoint: CheckpointId,
        others: &WrittenByOthers,
        placed: &[(VariableId, Origin)],
    ) -> Result<(), VariablesError> {
        let writers: BTreeSet<usize> = placed.iter().flat_map(|(_, origin)| origin.writers()).collect();
        for writer in writers {
            let opened = self.opened(others, writer)?;
            for (id, origin) in placed {
                let Some(variable) = self.protected.iter_mut().find(|known| known.id == *id) else { continue };
                let (bytes, part) = match origin {
                    Origin::Whole(whole) if *whole == writer => (opened.variable(*id)?.size(), None),
                    Origin::Whole(_) => continue,
                    Origin::Parts(parts) => match parts.iter().find(|part| part.writer == writer) {
                        Some(part) => (variable.memory.bytes() as u64, Some(*part)),
                        None => continue,
                    },
                };
                let mut result = Ok(());
                let room = usize::try_from(bytes).unwrap_or(usize::MAX);
                let fits = variable.memory.fill(room, &mut |room| result = opened.fill(*id, part, room));
                result?;
                if !fits {
                    let (id, protected) = (variable.id, variable.memory.bytes());
                    return Err(VariablesError::Size { id, protected, stored: bytes, checkpoint });
                }
            }
        }
        Ok(())
    }

    /// The values of all ranks, by rank, of any size. Collective.
    fn gather<T: Serialize + ?Sized, R: DeserializeOwned>(&mut self, own: &T) -> Result<Vec<R>, VariablesError> {
        let unreadable =
            |error: serde_json::Error| ClientError::Unexpected { call: "allgather", answer: error.to_string() };
        let own = serde_json::to_vec(own).map_err(unreadable)?;
        let mut rest = own.as_slice();
        let mut all = vec![Vec::new(); self.client.ranks() as usize];
        loop {
            // The first byte: whether more follows.
            let (part, later) = rest.split_at(rest.len().min(LARGEST_CONTRIBUTION - 1));
            rest = later;
            let message = [&[u8::from(!rest.is_empty())], part].concat();
            let mut more = false;
            for (all, message) in all.iter_mut().zip(self.client.allgather(&message)?) {
                if let Some((follows, part)) = message.split_first() {
                    more |= *follows != 0;
                    all.extend_from_slice(part);
                }
            }
            if !more {
                break;
            }
        }
        let values = all.iter().map(|bytes| serde_json::from_slice(bytes).map_err(unreadable));
        Ok(values.collect::<Result<_, _>>()?)
    }
}

/// The file of another rank.
#[derive(Debug)]
struct OpenedOther {
    file: Checkpoint,
    variables: Vec<Variable>,
}

impl OpenedOther {
    fn variable(&self, id: VariableId) -> Result<&Variable, VariablesError> {
        let found = self.variables.iter().find(|variable| variable.id == id.0);
        let missing = || FormatsError::damaged("read variables of", &self.file.input.path, format!("no variable {id}"));
        found.ok_or_else(|| self.changed(missing()))
    }

    /// Reads the whole variable, or a part of it, to its places in this memory.
    fn fill(&self, id: VariableId, part: Option<Part>, room: &mut [u8]) -> Result<(), VariablesError> {
        let variable = self.variable(id)?;
        let read =
            |from: u64, room: &mut [u8]| self.file.read(variable, from, room).map_err(|error| self.changed(error));
        let Some(part) = part else { return read(0, room) };
        // Many short runs are read at once.
        let mut whole = Vec::new();
        if part.runs().nth(1).is_some() {
            whole.resize(usize::try_from(variable.size()).unwrap_or(usize::MAX), 0);
            read(0, &mut whole)?;
        }
        for Run { from, to, bytes } in part.runs() {
            let range =
                |start: u64| Some(usize::try_from(start).ok()?..usize::try_from(start.checked_add(bytes)?).ok()?);
            let here = range(to).and_then(|range| room.get_mut(range)).ok_or_else(|| self.too_short())?;
            if whole.is_empty() {
                read(from, here)?;
            } else {
                let there = range(from).and_then(|range| whole.get(range)).ok_or_else(|| self.too_short())?;
                here.copy_from_slice(there);
            }
        }
        Ok(())
    }

    fn too_short(&self) -> VariablesError {
        self.changed(FormatsError::reading("read", &self.file.input.path)(io::ErrorKind::UnexpectedEof.into()))
    }

    /// The file was verified before.
    fn changed(&self, error: FormatsError) -> VariablesError {
        reading(&self.file.input.path)(error)
    }
}

fn stored_in(file: &Checkpoint) -> Vec<(i32, Stored)> {
    let variables = file.variables();
    let stored = variables.iter().map(|found| (found.id, Stored { bytes: found.size(), digest: found.digest() }));
    stored.collect()
}

/// From where this rank's block of a variable is read. `stored`: by the rank that wrote it; `all`: the blocks of the
/// ranks that run.
fn parts(
    id: VariableId,
    block: Block,
    checkpoint: CheckpointId,
    (stored, all): (&[Option<Stored>], &[Vec<OwnBlock>]),
    rank: Rank,
) -> Result<Vec<Part>, VariablesError> {
    let mut lengths = Vec::with_capacity(stored.len());
    for (writer, stored) in stored.iter().enumerate() {
        let bytes = stored.map_or(0, |stored| stored.bytes);
        let place = || format!("of rank {writer}");
        let no_block = || VariablesError::NoBlock { id, bytes, step: block.step(), place: place(), checkpoint };
        lengths.push(block.length(bytes).ok_or_else(no_block)?);
    }
    let own = |blocks: &Vec<OwnBlock>| blocks.iter().find(|own| own.id == id.0).map(|own| (own.block, own.length));
    let running: Vec<Option<(Block, u64)>> = all.iter().map(own).collect();
    if let Some(other) = running.iter().position(|own| own.is_some_and(|(other, length)| other != block && length > 0))
    {
        return Err(VariablesError::OtherShape { id, rank: other, checkpoint });
    }
    let running: Vec<u64> = running.into_iter().map(|own| own.map_or(0, |(_, length)| length)).collect();
    let total = |lengths: &[u64]| lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(*length));
    let (stored, protected) = (total(&lengths), total(&running));
    if stored != protected {
        return Err(VariablesError::OtherLength { id, stored, protected, checkpoint });
    }
    let rank = rank.0 as usize;
    let start = total(running.get(..rank).unwrap_or_default());
    let end = start.saturating_add(running.get(rank).copied().unwrap_or(0));
    Ok(block.parts(&lengths, start..end))
}
