//! Whether a run may inject the faults of its spec: always on virtual nodes, and on machines that others may use only
//! with `--allow-faults` and a confirmation.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::failure::Failure;
use crate::exit;
use crate::spec::JobSpec;

/// The option `--allow-faults`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AllowFaults {
    /// Inject the faults of the spec (`allocation.faults`) on the machines of the allocation. They are ended, stopped
    /// and deleted there: only processes that this job started, only directories with its mark. Without a terminal, the
    /// name of the job confirms it: `--allow-faults=heat`. Virtual nodes need neither
    #[arg(long, value_name = "JOB", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub allow_faults: Option<String>,
}

/// What is decided from the option.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Permission {
    NotNeeded,
    Given,
    /// The user is to type the name of the job.
    Ask,
    Refused {
        message: String,
        remedy: String,
    },
}

/// `touched`: the manager on whose machines faults would be injected.
fn decide(touched: Option<&str>, option: Option<&str>, job: &str, has_terminal: bool) -> Permission {
    let Some(manager) = touched else { return Permission::NotNeeded };
    match option {
        None => Permission::Refused {
            message: format!(
                "the spec injects faults (`allocation.faults`) on machines of `manager: {manager}`; nothing was started"
            ),
            remedy: format!("allow it with `--allow-faults={job}`, or write `manager: local` for virtual nodes"),
        },
        Some(confirmed) if confirmed == job => Permission::Given,
        Some("") if has_terminal => Permission::Ask,
        Some("") => Permission::Refused {
            message: "`--allow-faults` is not confirmed: there is no terminal to ask at; nothing was started"
                .to_owned(),
            remedy: format!("confirm it with the name of the job: `--allow-faults={job}`"),
        },
        Some(other) => Permission::Refused {
            message: format!("`--allow-faults={other}` does not name this job; nothing was started"),
            remedy: format!("write `--allow-faults={job}`"),
        },
    }
}

impl AllowFaults {
    /// True if the faults of the spec may be injected on machines; asks the user if necessary.
    ///
    /// # Errors
    /// They may not.
    pub fn check(&self, spec: &JobSpec) -> Result<bool, Failure> {
        let touched = crate::job::machines_with_faults(spec).map_err(super::run::failed)?;
        let has_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
        let refused = |message: String, remedy: String| Err(Failure::new(exit::CONFIGURATION, message).remedy(remedy));
        match decide(touched, self.allow_faults.as_deref(), &spec.job, has_terminal) {
            Permission::NotNeeded => Ok(false),
            Permission::Given => Ok(true),
            Permission::Refused { message, remedy } => refused(message, remedy),
            Permission::Ask => match ask(spec) {
                Ok(answer) if answer.trim() == spec.job => Ok(true),
                Ok(_) => {
                    refused("the faults were not confirmed; nothing was started".to_owned(), "run it again".into())
                }
                Err(error) => refused(format!("cannot ask: {error}"), format!("write `--allow-faults={}`", spec.job)),
            },
        }
    }
}

fn ask(spec: &JobSpec) -> io::Result<String> {
    let mut to = io::stderr().lock();
    writeln!(to, "These faults will be injected on machines of this allocation:")?;
    for fault in &spec.allocation.faults {
        writeln!(to, "  {fault}")?;
    }
    write!(to, "Type the name of the job ({}) to go on: ", spec.job)?;
    to.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_on_machines_need_the_option_and_a_confirmation() {
        let refused = |option, has_terminal| match decide(Some("ssh"), option, "heat", has_terminal) {
            Permission::Refused { message, remedy } => format!("{message}; {remedy}"),
            other => panic!("{other:?}"),
        };
        assert_eq!(decide(None, None, "heat", false), Permission::NotNeeded);
        assert!(refused(None, true).contains("`manager: ssh`") && refused(None, true).contains("--allow-faults=heat"));
        assert!(refused(Some(""), false).contains("no terminal"));
        assert!(refused(Some("wave"), true).contains("`--allow-faults=wave` does not name this job"));
        assert_eq!(decide(Some("ssh"), Some(""), "heat", true), Permission::Ask);
        assert_eq!(decide(Some("slurm"), Some("heat"), "heat", false), Permission::Given);
    }
}
