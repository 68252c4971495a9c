//! The program, from init to finalize.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_client::{Client, ClientError, Environment, Rank, RestartFiles, RestartOutcome};
use holdfast_core::durable::check_replaceable;

use crate::args::{HeatArgs, HeatInitArgs};
use crate::checkpoint::{self, Damage, Owner};
use crate::error::{HeatError, InputError};
use crate::field::{self, Header};
use crate::geometry::Size;
use crate::neighbours::{Neighbours, own_address};
use crate::partial::Partial;
use crate::slab::Slab;
use crate::variables::SavedField;

/// How often the existence of the file of `--until` is checked.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// `holdfast example heat`: takes part in the run of the environment variables. On an error, the process should end
/// with [`HeatError::exit_code`].
pub fn run(args: &HeatArgs) -> Result<(), HeatError> {
    let environment = Environment::from_environment().map_err(ClientError::from)?;
    run_in(args, environment, &mut io::stdout())
}

/// `holdfast example heat-init`.
pub fn run_init(args: &HeatInitArgs) -> Result<(), HeatError> {
    field::write_initial(&args.file, args.size)
}

/// The application with the given environment; rank 0 writes its lines to `report`.
pub fn run_in(args: &HeatArgs, environment: Environment, report: &mut dyn Write) -> Result<(), HeatError> {
    // Before anything is computed.
    args.output.as_deref().map_or(Ok(()), check_replaceable)?;
    let virtual_node = environment.node.clone();
    // The application ends itself on a halt, to print a line; by default the client would end the process.
    let builder = Client::builder().environment(environment).exit_on_halt(false);
    let mut api = if args.variables {
        Api::Variables(Box::new(SavedField::init(builder)?))
    } else {
        Api::Files(Box::new(builder.init()?))
    };
    let (rank, ranks) = (api.client().rank(), api.client().ranks());
    let address = if ranks > 1 { Some(own_address(rank, args.address, virtual_node.as_ref())?) } else { None };
    let (mut slab, origin) = initial(args, api.client())?;
    let mut neighbours = match address {
        Some(address) => Some(Neighbours::meet(api.client(), address)?),
        None => None,
    };
    let mut simulation = Simulation { args, owner: Owner { rank, ranks, origin }, api: &mut api, report };
    if let Some(reason) = simulation.api.client().restart().halt.clone() {
        simulation.print(format_args!("halted before the first step: {reason}"));
        return Ok(());
    }
    simulation.restart(&mut slab)?;
    while slab.step() < args.steps {
        simulation.inject_faults(&slab)?;
        if let Some(neighbours) = &mut neighbours {
            neighbours.exchange(&mut slab)?;
        }
        slab.advance();
        if !args.step_delay.is_zero() {
            std::thread::sleep(args.step_delay);
        }
        if simulation.due(slab.step())?
            && let Some(reason) = simulation.checkpoint(&slab)?
        {
            simulation.print(format_args!("halted at step {}: {reason}", slab.step()));
            return Ok(());
        }
    }
    simulation.inject_faults(&slab)?;
    simulation.finish(&slab)?;
    if !args.no_finalize {
        match api {
            Api::Files(client) => client.finalize()?,
            Api::Variables(field) => field.finalize()?,
        }
    }
    Ok(())
}

/// What saves the slab.
enum Api {
    Files(Box<Client>),
    Variables(Box<SavedField>),
}

impl Api {
    fn client(&mut self) -> &mut Client {
        match self {
            Api::Files(client) => client,
            Api::Variables(field) => field.client(),
        }
    }
}

/// Why a rank cannot restart from a checkpoint; an older one may be usable.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    NoPath(#[from] ClientError),
    #[error(transparent)]
    Damage(#[from] Damage),
}

struct Simulation<'a> {
    args: &'a HeatArgs,
    owner: Owner,
    api: &'a mut Api,
    report: &'a mut dyn Write,
}

impl Simulation<'_> {
    /// Prints a line on rank 0. Errors of the output are ignored.
    fn print(&mut self, line: std::fmt::Arguments<'_>) {
        if self.api.client().rank() == Rank(0) {
            let _ = writeln!(self.report, "heat: {line}").and_then(|()| self.report.flush());
        }
    }

    /// Restarts from the newest checkpoint that all ranks can read. Without one, the slab is not changed.
    fn restart(&mut self, slab: &mut Slab) -> Result<(), HeatError> {
        if let Api::Variables(field) = &mut *self.api {
            let (origin, levels) = (self.owner.origin, self.args.level.clone());
            let outcome = field.restart(slab, origin, levels)?;
            if let Some(outcome) = outcome {
                for skipped in outcome.skipped {
                    self.print(format_args!("checkpoint {skipped} cannot be used"));
                }
                if let (Some(checkpoint), Some(level)) = (outcome.checkpoint, outcome.level) {
                    let step = slab.step();
                    self.print(format_args!("restarted from checkpoint {checkpoint} of level {level} at step {step}"));
                    return Ok(());
                }
            }
        }
        while self.api.client().have_restart().is_some() {
            let checkpoint = self.api.client().start_restart()?;
            let mut loaded = slab.clone();
            let valid = match self.load(&mut loaded)? {
                Ok(()) => true,
                Err(problem) => {
                    let rank = self.api.client().rank();
                    eprintln!("heat: rank {rank} cannot restart from checkpoint {checkpoint}: {problem}");
                    false
                }
            };
            match self.api.client().complete_restart(valid)? {
                RestartOutcome::Accepted => {
                    *slab = loaded;
                    let step = slab.step();
                    self.print(format_args!("restarted from checkpoint {checkpoint} at step {step}"));
                    return Ok(());
                }
                RestartOutcome::Older(older) => {
                    self.print(format_args!("checkpoint {checkpoint} cannot be used, trying {older}"));
                }
                RestartOutcome::Nothing => self.print(format_args!("checkpoint {checkpoint} cannot be used")),
            }
        }
        let (size, ranks) = (slab.size(), self.api.client().ranks());
        self.print(format_args!("started from the beginning, {size} on {ranks} ranks"));
        Ok(())
    }

    /// The outer error ends the program, the inner one only rejects this checkpoint.
    fn load(&mut self, slab: &mut Slab) -> Result<Result<(), Unusable>, HeatError> {
        match self.read_rows(slab) {
            Err(Unusable::NoPath(error))
                if !matches!(error, ClientError::Failed { .. } | ClientError::BadName { .. }) =>
            {
                Err(error.into())
            }
            read => Ok(read),
        }
    }

    /// Reads the rows from the files of all ranks that had any of them: only the own ones, unless another number of
    /// ranks wrote the checkpoint.
    fn read_rows(&mut self, slab: &mut Slab) -> Result<(), Unusable> {
        let RestartFiles { ranks, files } = self.api.client().restart_files()?;
        let mut step = None;
        for rank in (0..ranks).map(Rank) {
            let rows = slab.size().rows_of(rank, ranks).map_err(|error| Damage::Incomplete(error.to_string()))?;
            if rows.end <= slab.rows().start || rows.start >= slab.rows().end {
                continue;
            }
            let mut paths = Vec::new();
            for file in files.iter().filter(|file| file.rank == rank) {
                paths.push(self.api.client().route_file(&file.name)?);
            }
            let mut part = Slab::new(slab.size(), rows);
            checkpoint::read(&paths, Owner { rank, ranks, ..self.owner }, &mut part)?;
            if *step.get_or_insert(part.step()) != part.step() {
                return Err(Damage::Incomplete(format!("the files of rank {rank} are of another step")).into());
            }
            slab.copy_from(&part);
        }
        Ok(())
    }

    fn due(&mut self, step: u64) -> Result<bool, HeatError> {
        // With the API disabled, the files would be written to the current directory and never be read.
        if self.args.never_checkpoint || !self.api.client().enabled() {
            Ok(false)
        } else if self.args.need && !self.args.variables {
            Ok(self.api.client().need_checkpoint()?)
        } else if self.args.need {
            // The snapshot itself decides.
            Ok(true)
        } else {
            Ok(step.is_multiple_of(self.args.checkpoint_every))
        }
    }

    /// Takes a checkpoint. If it fails, the error is printed and the program continues: an older checkpoint still
    /// exists. Returns the reason if the run must end here.
    fn checkpoint(&mut self, slab: &Slab) -> Result<Option<String>, HeatError> {
        let step = slab.step();
        if let Api::Variables(field) = &mut *self.api {
            let Some((completed, problem)) = field.checkpoint(slab, self.args.need)? else { return Ok(None) };
            if let Some(problem) = problem {
                eprintln!("heat: rank {}: {problem}", self.owner.rank);
            }
            let fate = if completed.kept { "" } else { " was dropped" };
            self.print(format_args!("checkpoint {} at step {step}{fate}", completed.checkpoint));
            return Ok(completed.halt);
        }
        let checkpoint = match self.api.client().start_checkpoint() {
            Ok(checkpoint) => checkpoint,
            Err(error @ ClientError::Failed { .. }) => {
                self.print(format_args!("no checkpoint at step {step}: {error}"));
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let files = self.args.files_per_rank;
        let mut written = Ok(());
        let shares = checkpoint::shares(slab.rows().len(), files);
        for (name, share) in checkpoint::names(self.owner.rank, files).into_iter().zip(shares) {
            let path = match self.api.client().route_file(&name) {
                Ok(path) => path,
                Err(ClientError::Failed { source, .. }) => {
                    written = Err(source.to_string());
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            if let Err(error) = checkpoint::write(&path, self.owner, slab, share) {
                written = Err(format!("{}: {error}", path.display()));
                break;
            }
        }
        if let Err(problem) = &written {
            eprintln!("heat: rank {} cannot write checkpoint {checkpoint}: {problem}", self.owner.rank);
        }
        match self.api.client().complete_checkpoint(written.is_ok()) {
            Ok(completed) => {
                let fate = if completed.kept { "" } else { " was dropped" };
                self.print(format_args!("checkpoint {checkpoint} at step {step}{fate}"));
                Ok(completed.halt)
            }
            Err(error @ ClientError::Failed { .. }) => {
                self.print(format_args!("checkpoint {checkpoint} at step {step} failed: {error}"));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits, hangs or fails as set by the options for tests.
    fn inject_faults(&mut self, slab: &Slab) -> Result<(), HeatError> {
        let (step, rank) = (slab.step(), self.api.client().rank());
        if self.args.hold_at == Some(step) {
            self.print(format_args!("holding at step {step}"));
            while !self.args.until.as_ref().is_some_and(|file| file.exists()) {
                std::thread::sleep(LOOK_PAUSE);
            }
        }
        if self.args.hang_at == Some(step) && self.args.hang_rank.is_none_or(|only| only == rank.0) {
            self.hang()?;
        }
        let concerned = self.args.exit_rank.is_none_or(|only| only == rank.0);
        // Not only at this step: also a launch that restarted from a later step must fail.
        if concerned && self.args.exit_at.is_some_and(|at| step >= at) {
            return Err(HeatError::InjectedFault { rank, step, code: self.args.exit_code });
        }
        Ok(())
    }

    /// Blocks for ever, or computes for a long time; once per job.
    fn hang(&self) -> Result<(), HeatError> {
        let Some(file) = &self.args.hang_once else { return Ok(()) };
        let mut mark = file.clone().into_os_string();
        mark.push(format!(".{}", self.owner.rank));
        let mark = PathBuf::from(mark);
        match OpenOptions::new().write(true).create_new(true).open(&mark) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            made => made.map(drop).map_err(HeatError::file("creating", &mark))?,
        }
        let begun = Instant::now();
        match self.args.hang_busy {
            Some(busy) => {
                while begun.elapsed() < busy {
                    std::hint::spin_loop();
                }
            }
            None => loop {
                std::thread::park();
            },
        }
        Ok(())
    }

    /// Writes the field and prints its checksum.
    fn finish(&mut self, slab: &Slab) -> Result<(), HeatError> {
        let crc = field_checksum(self.api.client(), slab)?;
        let header = Header { size: slab.size(), step: slab.step(), crc };
        if let Some(path) = &self.args.output {
            write_output(self.api.client(), path, header, slab)?;
        }
        self.print(format_args!("finished step {}, checksum {crc:#010x}", header.step));
        Ok(())
    }
}

/// The slab at step 0, and the checksum of the field. Collective.
fn initial(args: &HeatArgs, client: &mut Client) -> Result<(Slab, u32), HeatError> {
    let Some(path) = &args.input else {
        let size = args.size.unwrap_or(Size::DEFAULT);
        let mut slab = Slab::new(size, size.rows_of(client.rank(), client.ranks())?);
        field::fill_initial(size, slab.rows().start, slab.cells_mut());
        let crc = field_checksum(client, &slab)?;
        return Ok((slab, crc));
    };
    let input = |problem| HeatError::Input { path: path.clone(), problem };
    let (file, header) = field::open(path)?;
    if let Some(size) = args.size.filter(|size| *size != header.size) {
        return Err(input(InputError::OtherSize { found: header.size, wanted: size }));
    }
    let mut slab = Slab::new(header.size, header.size.rows_of(client.rank(), client.ranks())?);
    field::read_rows(&file, path, &mut slab)?;
    slab.set_step(header.step);
    // Each rank has read only its rows: the checksum of the file needs all of them.
    let crc = field_checksum(client, &slab)?;
    if crc != header.crc {
        return Err(input(InputError::DamagedRows { found: crc, written: header.crc }));
    }
    Ok((slab, crc))
}

/// CRC32 of the cells of all ranks, in order.
fn field_checksum(client: &mut Client, slab: &Slab) -> Result<u32, HeatError> {
    let bytes = std::mem::size_of_val(slab.cells()) as u64;
    let mut own = field::checksum(slab.cells()).to_le_bytes().to_vec();
    own.extend_from_slice(&bytes.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    for (other, part) in client.allgather(&own)?.iter().enumerate() {
        let parsed = part.split_first_chunk::<4>().and_then(|(crc, rest)| Some((crc, rest.first_chunk::<8>()?)));
        let Some((crc, bytes)) = parsed else {
            return Err(HeatError::OtherRank { other: Rank(other as u32), doing: "computing the checksum" });
        };
        let part = crc32fast::Hasher::new_with_initial_len(u32::from_le_bytes(*crc), u64::from_le_bytes(*bytes));
        hasher.combine(&part);
    }
    Ok(hasher.finalize())
}

/// Every rank writes its rows to one partial file, which then replaces `path`. Collective: each step waits for all
/// ranks.
fn write_output(client: &mut Client, path: &Path, header: Header, slab: &Slab) -> Result<(), HeatError> {
    let partial = Partial::of(path);
    let first = client.rank() == Rank(0);
    let created = if first { partial.create().map(drop) } else { Ok(()) };
    agree(client, "creating the output", created.map_err(HeatError::file("creating", path)))?;
    let written = partial.open().and_then(|file| field::write_rows(&file, slab));
    agree(client, "writing the output", written.map_err(HeatError::file("writing", path)))?;
    let place = |file| field::write_header(&file, header).and_then(|()| partial.place(&file));
    let placed = if first { partial.open().and_then(place) } else { Ok(()) };
    agree(client, "renaming the output", placed.map_err(HeatError::file("replacing", path)))
}

/// An error of one rank is an error on all, so that no rank waits for one that has ended.
fn agree(client: &mut Client, doing: &'static str, own: Result<(), HeatError>) -> Result<(), HeatError> {
    let all = client.allgather(&[u8::from(own.is_ok())])?;
    own?;
    match all.iter().position(|part| part != &[1]) {
        None => Ok(()),
        Some(other) => Err(HeatError::OtherRank { other: Rank(other as u32), doing }),
    }
}
