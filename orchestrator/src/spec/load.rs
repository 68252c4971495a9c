//! A spec from a file, from text, or from a command line: reads it, checks it, and fills in what the environment
//! determines.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::diagnostics::{Diagnostic, Diagnostics};
use super::document::{self, MAX_BYTES, YamlNode};
use super::environment::Environment;
use super::job::JobSpec;
use super::keys::Keys;
use super::reading::Reader;
use super::{applies, each, former_names, not_a_spec, quantity, shell_syntax, step_order, validation, warnings};

impl JobSpec {
    /// Reads a spec from a file.
    ///
    /// # Errors
    /// The file cannot be read, or holds mistakes: all of them.
    pub fn load(path: &Path, environment: &Environment) -> Result<JobSpec, Diagnostics> {
        let name = path.display().to_string();
        JobSpec::parse_in(base_of(path), &read_text(path, &name)?, &name, environment)
    }

    /// Reads a spec from text; `file_name` is its name in messages. Paths are relative to the working directory.
    ///
    /// # Errors
    /// All mistakes in it, and in those parameters.
    pub fn parse(text: &str, file_name: &str, environment: &Environment) -> Result<JobSpec, Diagnostics> {
        JobSpec::parse_in(None, text, file_name, environment)
    }

    /// A spec for a test, from text without mistakes.
    #[cfg(test)]
    pub(crate) fn of_test(text: &str) -> JobSpec {
        JobSpec::parse(text, "job.yaml", &Environment::empty(crate::launch::registry::registered())).unwrap()
    }

    /// Reads the text of a spec that will be this file: paths are relative to its directory.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn parse_at(path: &Path, text: &str, environment: &Environment) -> Result<JobSpec, Diagnostics> {
        let base = std::path::absolute(path).ok().and_then(|path| Some(path.parent()?.to_owned()));
        JobSpec::parse_in(base, text, &path.display().to_string(), environment)
    }

    fn parse_in(
        base: Option<PathBuf>,
        text: &str,
        file_name: &str,
        environment: &Environment,
    ) -> Result<JobSpec, Diagnostics> {
        let mut root = document::read(text).map_err(|mistake| Diagnostics::new(file_name, text, vec![mistake]))?;
        let notes = former_names::replace(&mut root);
        each::expand(&mut root).map_err(|mistakes| Diagnostics::new(file_name, text, mistakes))?;
        let mut spec = JobSpec::from_document(&root, base, environment)
            .map_err(|mistakes| Diagnostics::new(file_name, text, mistakes))?;
        spec.warnings.extend(notes);
        spec.warnings.extend(shell_syntax::notes(&spec));
        Ok(spec)
    }

    /// The spec of a command line: `command`, everything else from the environment or the defaults.
    ///
    /// # Errors
    /// The command is empty, or a mistake in the parameters.
    pub fn from_command(command: &[String], environment: &Environment) -> Result<JobSpec, Diagnostics> {
        let root = document::of_command(command);
        let mut spec = JobSpec::from_document(&root, None, environment).map_err(|mut mistakes| {
            mistakes.iter_mut().for_each(|mistake| mistake.place = None);
            Diagnostics::new("command line", "", mistakes)
        })?;
        spec.settings.mark_command_line();
        spec.warnings.extend(shell_syntax::notes(&spec));
        Ok(spec)
    }

    fn from_document(
        root: &YamlNode,
        base: Option<PathBuf>,
        environment: &Environment,
    ) -> Result<JobSpec, Vec<Diagnostic>> {
        let registry = &environment.registered;
        let manager_keys = registry.manager_keys.iter().map(|keys| keys.read).collect();
        let reader = Reader::new((**registry).clone(), manager_keys, environment.overrides.clone(), base);
        let written = <JobSpec as Keys>::read(reader.root(root));
        let manager = environment.manager(written.allocation.rest.manager);
        let allocated_nodes = manager.and_then(|manager| environment.allocated_nodes(manager));
        let allocated = manager.map(|manager| environment.allocated_names(manager)).unwrap_or_default();
        let mut spec = written.completed(manager, allocated_nodes, allocated, registry, &reader);
        if !spec.has_short_form() {
            spec.steps.iter_mut().enumerate().for_each(|(at, step)| step.key_path = format!("steps[{at}]."));
        }
        validation::check(&spec, manager, environment, &reader);
        step_order::check(&spec, &reader);
        applies::check(&spec, manager, &reader);
        spec.identity = environment.identity.clone();
        let unused = reader.unused_directories();
        let (mistakes, mut settings, notes) = reader.finish();
        settings.retain(|key| applies::is_in_force(&spec, key));
        spec.settings = settings;
        spec.warnings = warnings::of(root, &spec, manager, environment, &unused);
        spec.warnings.extend(notes);
        if let Ok(order) = step_order::order(&spec.steps) {
            spec.steps = order.into_iter().map(|at| spec.steps[at].clone()).collect();
        }
        if mistakes.is_empty() { Ok(spec) } else { Err(mistakes) }
    }
}

/// The directory of a spec file, absolute; `None` if the spec is a pipe, which is in no directory of the user's.
fn base_of(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok().filter(|path| path.is_file())?;
    path.parent().map(Path::to_owned)
}

/// The text of the spec, which may be missing, too large, a directory, or not UTF-8.
fn read_text(path: &Path, name: &str) -> Result<String, Diagnostics> {
    let unreadable = |error: std::io::Error| {
        let (message, help) = match error.kind() {
            ErrorKind::NotFound if not_a_spec::is_command(name) => {
                ("this is a command, not a job spec".to_owned(), not_a_spec::help(name))
            }
            ErrorKind::NotFound => {
                let help = "check the path; `holdfast run -- ./app args` needs no spec";
                ("there is no such file".to_owned(), help.to_owned())
            }
            ErrorKind::PermissionDenied => ("permission denied".to_owned(), "check its owner and mode".to_owned()),
            ErrorKind::IsADirectory => {
                ("this is a directory, not a file".to_owned(), "give the path of the spec file in it".to_owned())
            }
            _ => (format!("cannot read the file: {error}"), "check the file and its file system".to_owned()),
        };
        Diagnostics::of_file(name, message, help)
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if let Some(kind) = not_a_spec::kind(&bytes) {
        return Err(Diagnostics::of_file(name, format!("{kind}, not a job spec"), not_a_spec::help(name)));
    }
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("the file is larger than {}", quantity::format_bytes(MAX_BYTES));
        return Err(Diagnostics::of_file(
            name,
            message,
            "check that this is the job spec: a spec is about a page of YAML",
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = format!("the file is not valid UTF-8: invalid byte at offset {at} (line {line})");
        Diagnostics::of_file(name, message, "check that this is the job spec, and save it as UTF-8")
    })
}
