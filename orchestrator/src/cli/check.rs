//! `holdfast check`: reads a job spec and reports its mistakes or its settings. Starts nothing.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::failure::Failure;
use super::output::{Report, Style, document, printable, report};
use super::prefix_access;
use crate::exit;
use crate::job::restart_choice::{self, RunChoices};
use crate::job::{MissingProgram, missing_program};
use crate::job::{failure_domains, start};
use crate::launch::registry::registered;
use crate::spec::{Environment, JobSpec, Origin, Setting, Step, frequency, reference, resolved};

/// Check a job spec without starting anything
///
/// All errors are reported at once, each with file, line, column, key, what was expected and the nearest valid
/// spelling. SCR_* parameters in the environment override the spec. It is also an error if the newest checkpoint does
/// not fit the spec (another number of ranks, or another source, wrote it), and if a program of the spec does not
/// exist. Where the nodes are other machines, a program that is missing here is a warning.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast check job.yaml                   report errors
  holdfast check --explain job.yaml         print every setting and its origin
  SCR_FLUSH=5 holdfast check --explain job.yaml
  holdfast check --resolved job.yaml        print the spec with all defaults filled in
  holdfast check --reference                print every key with its default and meaning

Exit codes: 0 nothing is wrong; 78 mistakes in the spec, a program that does not exist, or a checkpoint that does not \
fit")]
pub struct CheckArgs {
    /// The job spec
    #[arg(value_name = "SPEC", required_unless_present = "reference")]
    spec: Option<PathBuf>,
    /// Print every setting in force and its origin: the line of the spec, a parameter, or the default
    #[arg(long)]
    explain: bool,
    /// Print the spec as YAML with all defaults filled in
    #[arg(long, conflicts_with = "explain")]
    resolved: bool,
    /// Print a spec that has every key with its default and meaning
    #[arg(long, conflicts_with_all = ["spec", "explain", "resolved"])]
    reference: bool,
}

/// The warning about a program that may exist on the nodes.
const NOT_A_NODE: &str = "this machine may be none of the nodes: there, the program must exist at the same path on all \
                          of them, and where `holdfast run` is called";

struct Checked {
    file: String,
    spec: JobSpec,
    explain: bool,
    /// Parameters that are set and have no key.
    parameters: Vec<Setting>,
}

pub(super) fn run(args: CheckArgs, output: Style) -> Result<u8, Failure> {
    let Some(path) = args.spec else {
        let text = reference::text(&registered());
        output.result(&report(json!({"reference": text}), |to| to.write_all(text.as_bytes())))?;
        return Ok(exit::FINISHED);
    };
    let environment = super::job::environment(output)?;
    let spec = JobSpec::load(&path, &environment)?;
    spec.warnings.iter().for_each(|warning| output.warn(warning));
    prefix_access::warn(&spec.prefix, output);
    restart_choice::check(&spec, &RunChoices::default()).map_err(super::run::failed)?;
    if args.resolved {
        let text = resolved::yaml(&spec.settings).map_err(|error| Failure::of(exit::INTERNAL, &error))?;
        output.result(&report(json!({"resolved": text}), |to| to.write_all(text.as_bytes())))?;
        return Ok(exit::FINISHED);
    }
    if let Some(MissingProgram { error, may_be_on_nodes }) = missing_program(&spec) {
        // The settings are shown whether or not the program is built.
        match (may_be_on_nodes, args.explain) {
            (true, _) => output.warn(&format!("{error}; {NOT_A_NODE}")),
            (false, true) => output.warn(&error.to_string()),
            (false, false) => return Err(super::run::failed(error)),
        }
    }
    let (file, parameters) = (path.display().to_string(), without_key(&environment));
    output.result(&Checked { file, spec, explain: args.explain, parameters })?;
    Ok(exit::FINISHED)
}

/// SCR_ENABLE, SCR_USER_NAME and SCR_JOB_ID, as far as they are set.
fn without_key(environment: &Environment) -> Vec<Setting> {
    let identity = &environment.identity;
    let switched_off = environment.disabled.as_ref().map(|_| "0".to_owned());
    let all = [
        ("SCR_ENABLE", switched_off),
        ("SCR_USER_NAME", identity.user.clone()),
        ("SCR_JOB_ID", identity.job_id.clone()),
    ];
    let setting = |(name, value): (&str, Option<String>)| {
        let (key, origin) = (name.to_owned(), Origin::Parameter(name.to_owned()));
        Some(Setting { key, value: value?, is_default: false, origin })
    };
    all.into_iter().filter_map(setting).collect()
}

impl Checked {
    fn settings(&self) -> impl Iterator<Item = Setting> {
        self.parameters.iter().cloned().chain(self.spec.settings_in_force())
    }

    /// The absolute path of the prefix directory.
    fn prefix(&self) -> PathBuf {
        start::canonical(&self.spec.prefix)
    }
}

impl Report for Checked {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        if !self.explain {
            let (allocation, steps) = (&self.spec.allocation, &self.spec.steps);
            write!(to, "{}: job `{}` on {}", self.file, self.spec.job, count(allocation.nodes, "node"))?;
            for step in steps {
                let (nodes, ranks) = (count(step.run.nodes, "node"), count(step.run.ranks, "rank"));
                let spares = count(allocation.nodes - step.run.nodes, "spare");
                let name = if steps.len() > 1 { format!("\n  {}: ", step.name) } else { ": ".to_owned() };
                write!(to, "{name}{ranks} on {nodes}, {spares}")?;
            }
            if let Some(replicated) = &self.spec.replicated {
                let (pairs, jobs) = (number(replicated.pairs.len()), number(replicated.jobs.len()));
                write!(to, ": {}, {}", count(pairs, "pair"), count(jobs, "job"))?;
            }
            return writeln!(to, "; prefix {}", printable(&self.prefix().display().to_string()));
        }
        let keys = self.settings().map(|setting| setting.key.len()).max().unwrap_or(0);
        let values = self.settings().map(|setting| setting.value.chars().count()).max().unwrap_or(0).min(30);
        for setting in self.settings() {
            // The reader may be in another directory than the spec.
            let absolute = self.prefix().display().to_string();
            let value = printable(if setting.key == "prefix" { &absolute } else { &setting.value });
            writeln!(to, "{:keys$}  {value:values$}  {}", setting.key, setting.origin)?;
        }
        for step in self.spec.steps.iter().filter(|step| step.is_auto() && !step.source.facts.has_levels) {
            let text = frequency::explained(self.spec.health.mtbf);
            writeln!(to, "{}checkpoint.every is auto: {text}", step.key_path)?;
        }
        for step in &self.spec.steps {
            let key = format!("{}checkpoint.data_plane", step.key_path);
            if let Some(setting) = self.spec.settings.get(&key) {
                writeln!(to, "{key} is {}: {}", setting.value, step.checkpoint.protection_on_the_network())?;
            }
        }
        for step in &self.spec.steps {
            for line in failure_domains::levels(&self.spec, step) {
                writeln!(to, "{}checkpoint.redundancy: {}", step.key_path, printable(&line.to_string()))?;
            }
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let steps: Vec<&str> = self.spec.steps.iter().map(|step| step.name.as_str()).collect();
        let mut fields = json!({"file": self.file, "job": self.spec.job, "prefix": self.prefix(), "steps": steps});
        if let Some(replicated) = &self.spec.replicated {
            fields["pairs"] = replicated.pairs.iter().map(|pair| json!(pair.config.name)).collect();
            fields["jobs"] = replicated.jobs.iter().map(|job| json!(job.config.name)).collect();
        }
        if self.explain {
            let setting = |setting: Setting| {
                let origin = match &setting.origin {
                    Origin::Spec(place) => json!({"spec": {"line": place.line, "column": place.column}}),
                    Origin::Parameter(name) => json!({"parameter": name}),
                    Origin::CommandLine => json!("command line"),
                    Origin::Default => json!("default"),
                };
                json!({"key": setting.key, "value": setting.value, "origin": origin})
            };
            fields["settings"] = self.settings().map(setting).collect();
            let levels = |step: &Step| (step.name.clone(), json!(failure_domains::levels(&self.spec, step)));
            fields["levels"] = Value::Object(self.spec.steps.iter().map(levels).collect());
        }
        document(fields)
    }
}

fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn count(number: u32, what: &str) -> String {
    match number {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}
