//! Failures of commands, and their conversion to messages.

use std::error::Error;
use std::fmt;
use std::io;
use std::iter;

use holdfast_core::kvtree::file::HashFileError;
use holdfast_core::store::PrefixError;
use holdfast_core::store::directory_name::GivenNameError;
use holdfast_formats::FormatsError;
use holdfast_formats::sion::SionError;

use crate::exit;
use crate::job::state::StateError;
use crate::spec::Diagnostics;

/// The failure of a command: message and exit code.
///
/// The typed errors of the libraries already contain file, location and remedy; they become the message, and their
/// sources the causes.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    code: u8,
    pub(super) message: String,
    place: Option<String>,
    remedy: Option<String>,
    /// Nearest first.
    causes: Vec<String>,
    /// The reader of the output has closed the pipe, which is not reported.
    pub(super) is_closed_pipe: bool,
    /// Boxed, to keep results small.
    mistakes: Option<Box<serde_json::Value>>,
}

impl Failure {
    /// A failure with an exit code (a constant of [`exit`]) and a message without a full stop.
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Failure { code, message: message.into(), ..Failure::default() }
    }

    /// A failure from an error; its sources become the causes, without those that the message already contains.
    pub fn of(code: u8, error: &(dyn Error + 'static)) -> Self {
        let message = error.to_string();
        let causes = chain(error).skip(1).map(ToString::to_string).filter(|cause| !message.contains(cause)).collect();
        Failure { causes, ..Failure::new(code, message) }
    }

    /// Adds the file, node or argument.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.place = Some(place.to_string());
        self
    }

    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let cause = cause.into();
        let is_closed_pipe = |error: &(dyn Error + 'static)| {
            error.downcast_ref::<io::Error>().is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe)
        };
        self.is_closed_pipe = chain(&*cause).any(is_closed_pipe);
        self.causes = chain(&*cause).map(ToString::to_string).collect();
        self
    }

    pub fn code(&self) -> u8 {
        self.code
    }

    /// The failure as JSON: `{version, error: {message, place, remedy, causes, mistakes, exit_code}}`; `mistakes` are
    /// those of a job spec: `[{file, line, column, key, message, help}…]`, otherwise null.
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "version": super::output::JSON_VERSION,
            "error": {
                "message": self.message,
                "place": self.place,
                "remedy": self.remedy,
                "causes": self.causes,
                "mistakes": self.mistakes,
                "exit_code": self.code,
            },
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("error: ")?;
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        for cause in &self.causes {
            write!(f, "\n  cause: {cause}")?;
        }
        if let Some(remedy) = &self.remedy {
            write!(f, "\n  help: {remedy}")?;
        }
        Ok(())
    }
}

/// An error and its sources.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

impl From<Diagnostics> for Failure {
    fn from(mistakes: Diagnostics) -> Self {
        let count = mistakes.count();
        let what = if count == 1 { "1 mistake".to_owned() } else { format!("{count} mistakes") };
        let message = format!("{what} in the job spec; nothing was started\n\n{mistakes}");
        let list = mistakes.iter().map(|mistake| {
            serde_json::json!({
                "file": mistakes.file,
                "line": mistake.place.map(|place| place.line),
                "column": mistake.place.map(|place| place.column),
                "key": mistake.key,
                "message": mistake.message,
                "help": mistake.help,
            })
        });
        let list = Box::new(list.collect());
        Failure { mistakes: Some(list), ..Failure::new(exit::CONFIGURATION, message) }
    }
}

impl From<PrefixError> for Failure {
    fn from(error: PrefixError) -> Self {
        let code = match &error {
            PrefixError::HashFile(HashFileError::Format { .. })
            | PrefixError::Content { .. }
            | PrefixError::Name { .. }
            | PrefixError::OldSummary { .. } => exit::DAMAGED_DATA,
            PrefixError::DirectoryName { .. } | PrefixError::JobId { .. } => exit::USAGE,
            _ => exit::UNAVAILABLE,
        };
        Failure::of(code, &error)
    }
}

impl From<GivenNameError> for Failure {
    fn from(error: GivenNameError) -> Self {
        Failure::from(PrefixError::from(error))
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Failure::of(error.exit_code(), &error)
    }
}

impl From<HashFileError> for Failure {
    fn from(error: HashFileError) -> Self {
        let code = if matches!(error, HashFileError::Format { .. }) { exit::DAMAGED_DATA } else { exit::UNAVAILABLE };
        Failure::of(code, &error)
    }
}

impl From<FormatsError> for Failure {
    fn from(error: FormatsError) -> Self {
        let code = match error {
            FormatsError::Damaged { .. } | FormatsError::NotRestorable { .. } | FormatsError::UnsafeName { .. } => {
                exit::DAMAGED_DATA
            }
            FormatsError::NotPossible { .. } | FormatsError::Unwritable { .. } => exit::USAGE,
            _ => exit::UNAVAILABLE,
        };
        Failure::of(code, &error)
    }
}

impl From<SionError> for Failure {
    fn from(error: SionError) -> Self {
        let code = match &error {
            error if error.is_damage() => exit::DAMAGED_DATA,
            SionError::Io { .. } | SionError::Durable(_) | SionError::Exists { .. } => exit::UNAVAILABLE,
            _ => exit::USAGE,
        };
        Failure::of(code, &error)
    }
}

/// An error while writing the output. A closed pipe (`holdfast … | head`) is handled in [`super::main`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::new(exit::UNAVAILABLE, "cannot write the output").because(error)
    }
}
