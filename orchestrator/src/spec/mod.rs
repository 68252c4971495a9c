//! The YAML job spec (DESIGN §4): types, defaults, diagnostics with line and column.
//!
//! [`JobSpec::load`] reads a file; [`JobSpec::from_command`] makes the spec of `holdfast run -- ./app args`. What comes
//! out is complete: every default is filled in and every number checked against the others, so that nobody who uses a
//! spec asks whether it makes sense. [`Settings`] keeps where each value came from. `configs/reference.yaml` has all keys.
//!
//! * `document`: YAML events to nodes with places, bounded;
//! * `reading`: nodes to settings, section by section; one file of types for each section;
//! * [`Surroundings`]: SCR's parameters, which stand above and below the spec;
//! * `validation`: what no single section can know;
//! * `diagnostics`: what the user sees of a mistake;
//! * [`quantity`]: durations, sizes, points in time.

mod allocation;
mod checkpoint;
mod diagnostics;
mod document;
pub mod quantity;
mod reading;
pub mod resolved;
mod run;
mod settings;
mod ssh;
mod supervision;
mod surroundings;
mod validation;

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

pub use allocation::{Allocation, Chaos, ChaosAction, ChaosMoment, ChaosPhase, Manager, virtual_node};
pub use checkpoint::{
    Cache, Checkpoint, ControlDirectory, Crc, DataPlane, FailureDomain, Flush, FlushMode, Need, Redundancy, Scheme,
    Source,
};
pub use diagnostics::{Diagnostic, Diagnostics, Place};
pub use document::MAX_BYTES;
pub use run::{Launcher, Run};
pub use settings::{Origin, Setting, Settings};
pub use ssh::{SshAccess, SshHost};
pub use supervision::{CommandNodes, ExitAction, ExitCodeRule, Halt, Health, Relaunch, SiteCommand};

pub use surroundings::{SYSTEM_FILE, Surroundings, SurroundingsError};

use document::Node;
use reading::{Choice, Reader, Section, TEXT};

/// A job: the series of runs and allocations that completes one simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// Its name; a single path component.
    pub job: String,
    /// Its directory on the parallel file system.
    pub prefix: PathBuf,
    /// The nodes.
    pub allocation: Allocation,
    /// Run once in an allocation, before the first launch.
    pub before: Vec<SiteCommand>,
    /// Run once in an allocation, after the last run and before the drain.
    pub after: Vec<SiteCommand>,
    /// What is run, in this order; at least one. The short form (`run:` at the top) is one step named after the job.
    pub steps: Vec<Step>,
    /// When a run that ended is made again.
    pub relaunch: Relaunch,
    /// When a node is down.
    pub health: Health,
    /// When the job stops by itself.
    pub halt: Halt,
    /// Every setting and where it came from.
    pub settings: Settings,
}

/// One step of a job: an application with checkpoints of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name; a single path component.
    pub name: String,
    /// Steps that must be finished before; they stand earlier in the list.
    pub needs: Vec<String>,
    /// The directory of its checkpoints and index: the job's prefix, or, in a job of several steps, `<prefix>/<name>`.
    pub prefix: PathBuf,
    /// What is launched.
    pub run: Run,
    /// Its checkpoints.
    pub checkpoint: Checkpoint,
}

/// What a spec describes.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A job whose lost nodes are replaced by relaunching on others.
    Job,
}

impl Choice for Kind {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("job", Kind::Job)];
    const LATER: &'static [&'static str] = &["replicated"];
}

impl JobSpec {
    /// Reads a spec from a file.
    ///
    /// # Errors
    /// The file cannot be read, or holds mistakes: all of them.
    pub fn load(path: &Path, surroundings: &Surroundings) -> Result<JobSpec, Diagnostics> {
        let name = path.display().to_string();
        JobSpec::parse_in(&read_text(path, &name)?, &name, surroundings)
    }

    /// Reads a spec from text, in no surroundings; `file_name` is what messages call it.
    ///
    /// # Errors
    /// All mistakes in it.
    pub fn parse(text: &str, file_name: &str) -> Result<JobSpec, Diagnostics> {
        JobSpec::parse_in(text, file_name, &Surroundings::default())
    }

    /// Reads a spec from text, with the parameters that stand above and below it.
    ///
    /// # Errors
    /// All mistakes in it, and in those parameters.
    pub fn parse_in(text: &str, file_name: &str, surroundings: &Surroundings) -> Result<JobSpec, Diagnostics> {
        let root = document::read(text).map_err(|mistake| Diagnostics::new(file_name, text, vec![mistake]))?;
        JobSpec::from_document(&root, surroundings).map_err(|mistakes| Diagnostics::new(file_name, text, mistakes))
    }

    /// The spec of a command without a file: `command` as it stands, everything else from the surroundings or default.
    ///
    /// # Errors
    /// The command is empty, or a mistake in the parameters.
    pub fn from_command(command: &[String], surroundings: &Surroundings) -> Result<JobSpec, Diagnostics> {
        let root = document::of_command(command);
        let mut spec = JobSpec::from_document(&root, surroundings).map_err(|mut mistakes| {
            mistakes.iter_mut().for_each(|mistake| mistake.place = None);
            Diagnostics::new("command line", "", mistakes)
        })?;
        spec.settings.mark_command_line();
        Ok(spec)
    }

    fn from_document(root: &Node, surroundings: &Surroundings) -> Result<JobSpec, Vec<Diagnostic>> {
        let reader = Reader::new(surroundings.above.clone(), surroundings.below.clone());
        let mut spec = read_job(&reader, root, surroundings.allocated_nodes);
        validation::check(&spec, &reader);
        let (mistakes, settings) = reader.finish();
        spec.settings = settings;
        if mistakes.is_empty() { Ok(spec) } else { Err(mistakes) }
    }
}

fn read_job(reader: &Reader, root: &Node, allocated_nodes: Option<u32>) -> JobSpec {
    let mut section = reader.root(root);
    section.choice("kind", Kind::Job);
    let job = section.value("job", &TEXT, "job".to_owned());
    let prefix = PathBuf::from(section.value("prefix", &TEXT, ".".to_owned()));
    let written = allocation::Written::read(section.section("allocation")).within(allocated_nodes);
    let before = SiteCommand::read_list(&mut section, "before");
    let steps = read_steps(&mut section, &job, &prefix, written.nodes);
    let after = SiteCommand::read_list(&mut section, "after");
    let relaunch = Relaunch::read(section.section("relaunch"));
    let health = Health::read(section.section("health"));
    let halt = Halt::read(section.section("halt"));
    section.finish();
    let needed = steps.iter().map(|step| step.run.nodes).max().unwrap_or(1);
    let allocation = written.with_nodes(needed);
    JobSpec { job, prefix, allocation, before, after, steps, relaunch, health, halt, settings: Settings::default() }
}

fn read_steps(section: &mut Section<'_>, job: &str, prefix: &Path, nodes: Option<u32>) -> Vec<Step> {
    let Some(elements) = section.sections("steps") else {
        let run = Run::read(section.section("run"), nodes);
        let checkpoint = Checkpoint::read(section.section("checkpoint"));
        return vec![Step { name: job.to_owned(), needs: Vec::new(), prefix: prefix.to_owned(), run, checkpoint }];
    };
    if elements.is_empty() {
        let help = "list at least one step, or write `run:` instead";
        section.reader().mistake("steps", "the list is empty", help);
    }
    for key in ["run", "checkpoint"] {
        if section.has(key) {
            let help = format!("move `{key}:` into the steps, or remove `steps:`");
            section.reader().mistake("steps", format!("`steps` and `{key}` at the top exclude each other"), help);
        }
        section.skip(key);
    }
    elements.into_iter().map(|element| read_step(element, prefix, nodes)).collect()
}

fn read_step(mut section: Section<'_>, prefix: &Path, nodes: Option<u32>) -> Step {
    let name = section.optional("name", &TEXT);
    if name.is_none() {
        section.reader().mistake(&section.path_of("name"), "the step has no name", "write `name: prepare`");
    }
    let name = name.unwrap_or_default();
    let needs = section.words("needs").unwrap_or_default();
    let run = Run::read(section.section("run"), nodes);
    let checkpoint = Checkpoint::read(section.section("checkpoint"));
    section.finish();
    Step { prefix: prefix.join(&name), name, needs, run, checkpoint }
}

/// The text of a file that may be anything: too large, a directory, not UTF-8.
fn read_text(path: &Path, name: &str) -> Result<String, Diagnostics> {
    let unreadable = |error: std::io::Error| {
        let (message, help) = match error.kind() {
            ErrorKind::NotFound => (
                "there is no such file".to_owned(),
                "check the path; `holdfast run -- ./app args` needs no spec at all",
            ),
            ErrorKind::PermissionDenied => ("it may not be read".to_owned(), "check its owner and mode"),
            ErrorKind::IsADirectory => ("it is a directory".to_owned(), "name the spec inside it"),
            _ => (format!("it cannot be read: {error}"), "check the file and its file system"),
        };
        Diagnostics::of_file(name, message, help)
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("it is larger than {}", quantity::format_bytes(MAX_BYTES));
        return Err(Diagnostics::of_file(name, message, "a job spec is a page of YAML; is this the right file?"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = format!("it is not UTF-8 text: the byte at offset {at} (line {line}) is wrong");
        Diagnostics::of_file(name, message, "save it as UTF-8; is this the right file?")
    })
}
