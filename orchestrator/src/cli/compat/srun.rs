//! `scr_srun`: a job of Holdfast from the arguments of srun.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use holdfast_agent::sources::scr_files;
use serde_json::{Value, json};

use super::super::failure::Failure;
use super::super::output::{Style, printable};
use super::super::{job, prefix_access, run};
use super::arguments::parse;
use super::directories;
use super::result::{CompatError, ExitResult, YES, refused};
use super::scripts::{ScriptOutput, date, is_disabled, prerun};
use crate::host::libraries::Libraries;
use crate::host::program;
use crate::job::{RestartChoice, RunChoices};
use crate::spec::JobSpec;

/// Short options of srun without a value.
const SHORT_WITHOUT_VALUE: &str = "EHIklOQsuvVXZK";
/// Long options of srun without a value, or with one behind `=` only.
const LONG_WITHOUT_VALUE: &[&str] = &[
    "bcast",
    "compress",
    "contiguous",
    "disable-status",
    "exact",
    "exclusive",
    "hold",
    "immediate",
    "kill-on-bad-exit",
    "label",
    "multi-prog",
    "nice",
    "no-allocate",
    "no-kill",
    "overcommit",
    "overlap",
    "oversubscribe",
    "preserve-env",
    "propagate",
    "pty",
    "quiet",
    "quit-on-interrupt",
    "reboot",
    "resv-ports",
    "send-libs",
    "share",
    "spread-job",
    "unbuffered",
    "use-min-nodes",
    "verbose",
    "whole",
];
/// Options that Holdfast sets itself.
const OWN: &[&str] = &["overlap", "no-kill", "kill-on-bad-exit", "wait", "label", "k", "K", "W", "l"];
/// Options that contradict the placement by Holdfast.
const CONTRADICTING: &[&str] =
    &["nodelist", "exclude", "distribution", "nodefile", "multi-prog", "relative", "w", "x", "m", "r", "F"];

/// The arguments of srun.
#[derive(Debug, Default, PartialEq, Eq)]
struct SrunArgs {
    nodes: Option<u32>,
    ranks: Option<u32>,
    ranks_per_node: Option<u32>,
    /// Those that srun gets unchanged.
    options: Vec<String>,
    command: Vec<String>,
}

/// An option of srun with its value.
struct SrunOption {
    name: String,
    value: Option<String>,
    words: Vec<String>,
}

impl SrunArgs {
    /// Separates the options of srun from the command.
    ///
    /// # Errors
    /// An option that Holdfast cannot keep.
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut args = SrunArgs::default();
        let mut rest = words.iter().cloned();
        while let Some(word) = rest.next() {
            if word == "--" {
                args.command = rest.collect();
                break;
            }
            if !word.starts_with('-') || word == "-" {
                args.command = std::iter::once(word).chain(rest).collect();
                break;
            }
            let option = read(word, &mut rest)?;
            args.take(option)?;
        }
        if args.command.is_empty() { Err("the program is missing".to_owned()) } else { Ok(args) }
    }

    fn take(&mut self, option: SrunOption) -> Result<(), String> {
        let name = option.name.as_str();
        let number = || {
            let text = option.value.as_deref().unwrap_or_default();
            // `-N 4-8`: the least number.
            let least = text.split('-').next().unwrap_or_default();
            least.parse().map(Some).map_err(|_| format!("{} is not a number: {text:?}", option.words.join(" ")))
        };
        match name {
            "n" | "ntasks" => self.ranks = number()?,
            "N" | "nodes" => self.nodes = number()?,
            "ntasks-per-node" => self.ranks_per_node = number()?,
            name if OWN.contains(&name) => {}
            name if CONTRADICTING.contains(&name) => {
                return Err(format!(
                    "{} contradicts the placement of the ranks by Holdfast; to exclude nodes, set SCR_EXCLUDE_NODES",
                    option.words.join(" ")
                ));
            }
            _ => self.options.extend(option.words),
        }
        Ok(())
    }

    /// The spec of the job, in an allocation or not. `used` is the number of nodes that the previous run used, if there
    /// was one; `source` is the checkpoint source, if it is not the default.
    fn spec(&self, is_allocated: bool, used: Option<u32>, source: Option<&str>) -> Value {
        let mut run = json!({"command": self.command});
        // In an allocation the ranks are spread over its nodes; without one each rank gets a virtual node.
        let spread = self.ranks.filter(|_| self.ranks_per_node.is_none() && !is_allocated);
        for (key, value) in
            [("nodes", self.nodes.or(spread)), ("ranks", self.ranks), ("ranks_per_node", self.ranks_per_node)]
        {
            if let Some(value) = value {
                run[key] = value.into();
            }
        }
        if !self.options.is_empty() {
            run["launcher_options"] = json!(self.options);
        }
        // SCR launches once, unless SCR_RUNS or SCR_RETRIES is set, which takes precedence over a spec.
        let mut relaunch = json!({"attempts": 0});
        if let Some(used) = used.filter(|used| *used > 0) {
            // SCR_MIN_NODES, if it is set, takes precedence.
            relaunch["min_nodes"] = self.nodes.map_or(used, |nodes| used.min(nodes)).into();
        }
        let mut spec = json!({"run": run, "relaunch": relaunch});
        if let Some(source) = source {
            spec["checkpoint"] = json!({"source": source});
        }
        spec
    }
}

/// Reads an option, with its value if that is the next word.
fn read(word: String, rest: &mut impl Iterator<Item = String>) -> Result<SrunOption, String> {
    let mut next = |word: &str| rest.next().ok_or_else(|| format!("{word} has no value"));
    if let Some(long) = word.strip_prefix("--") {
        if let Some((name, value)) = long.split_once('=') {
            return Ok(SrunOption { name: name.to_owned(), value: Some(value.to_owned()), words: vec![word] });
        }
        let name = long.to_owned();
        if LONG_WITHOUT_VALUE.contains(&long) {
            return Ok(SrunOption { name, value: None, words: vec![word] });
        }
        let value = next(&word)?;
        return Ok(SrunOption { name, value: Some(value.clone()), words: vec![word, value] });
    }
    let mut letters = word.chars().skip(1);
    let name: String = letters.next().into_iter().collect();
    let attached: String = letters.collect();
    if SHORT_WITHOUT_VALUE.contains(&name) {
        return Ok(SrunOption { name, value: None, words: vec![word] });
    }
    if !attached.is_empty() {
        return Ok(SrunOption { name, value: Some(attached), words: vec![word] });
    }
    let value = next(&word)?;
    Ok(SrunOption { name, value: Some(value.clone()), words: vec![word, value] })
}

/// Run a job: relaunch it when nodes are lost, and save its newest checkpoint
#[derive(Parser)]
#[command(
    name = "scr_srun",
    no_binary_name = true,
    override_usage = "scr_srun [SRUN OPTIONS] PROGRAM [ARGUMENTS]...",
    after_help = "\
--nodes, --ntasks and --ntasks-per-node (-N, -n) set the nodes and ranks; most other options are passed to srun. Nodes \
that are not used are spares. SCR_RUNS or SCR_RETRIES set the number of launches.

Examples:
  scr_srun -n 4 ./app input.txt
  SCR_RUNS=3 scr_srun -N 4 -n 16 ./app"
)]
struct SrunHelp {}

pub(super) fn srun(words: &[String]) -> ExitResult {
    if let [only] = words
        && ["--help", "-h"].contains(&only.as_str())
    {
        let SrunHelp {} = parse(words)?;
    }
    if is_disabled() {
        // Returns only if it failed.
        let error = Command::new("srun").args(words).exec();
        return Err(refused(format!("srun cannot be run: {error}")));
    }
    let output = ScriptOutput::start("scr_srun")?;
    let args = SrunArgs::parse(words).map_err(refused)?;
    let allocated = directories::variable(&["SLURM_JOB_NUM_NODES", "SLURM_NNODES"]);
    let allocated = allocated.and_then(|number| number.parse::<u32>().ok());
    // A node of an earlier allocation may have a nodes file with a larger number.
    let used = nodes_of_last_run().filter(|used| allocated.is_some_and(|nodes| *used <= nodes));
    let library = library_of_llnl(&args.command);
    if let Some(library) = &library {
        output.line(&format!("The program uses LLNL's SCR library, {}", printable(&library.display().to_string())))?;
    }
    let source = library.map(|_| scr_files::ENTRY.name);
    let spec = args.spec(allocated.is_some(), used, source).to_string();
    let environment = job::environment(Style::Human { verbose: false })?;
    let spec = JobSpec::parse(&spec, "scr_srun", &environment)?;
    spec.warnings.iter().for_each(|warning| Style::Quiet.warn(warning));
    prefix_access::warn(&spec.prefix, Style::Quiet);
    output.line(&format!("prerun: {}", date()))?;
    prerun(&[])?;
    output.line(&format!("RUN 1: {}", date()))?;
    // As SCR: whether an earlier run in this directory was finished does not matter.
    let choices = RunChoices { again: true, restart: RestartChoice::Newest };
    let ran = run::run_spec(spec, choices, Style::Human { verbose: false });
    match &ran {
        Ok(report) => output.line(&format!("run: exit code {}", report.exit_code))?,
        // Nothing was started.
        Err(failure) => return Err(CompatError::Failed(Failure::new(failure.code(), text(failure)))),
    }
    // The run has drained the caches itself.
    output.line(&format!("postrun: {}", date()))?;
    output.line(&format!("Ended: {}", date()))?;
    Ok(YES)
}

/// LLNL's library, if the program of this command is linked with it. A program that cannot be examined, a script for
/// example, uses the functions of Holdfast's.
fn library_of_llnl(command: &[String]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH");
    let program = program::find(command.first()?, &std::env::current_dir().ok()?, path.as_deref()).ok()?;
    Libraries::of(&program, &BTreeMap::new()).ok()?.scr_of_llnl().map(Path::to_owned)
}

/// The number of nodes that the previous run in this allocation used, from the nodes file of this node
/// (`SCR manual §9.6`).
fn nodes_of_last_run() -> Option<u32> {
    let control = directories::control_directory()?;
    directories::nodes_of(&control).ok().flatten()
}

fn text(failure: &Failure) -> String {
    failure.to_string().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<SrunArgs, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        SrunArgs::parse(&words)
    }

    #[test]
    fn options_end_at_the_program_whose_own_are_kept() {
        let args = parsed("-n4 -N 2-4 --mpi=pmix -c 2 -l --cpu-bind cores ./app -n 3 --nodes 7").unwrap();
        assert_eq!((args.nodes, args.ranks), (Some(2), Some(4)));
        assert_eq!(args.options, ["--mpi=pmix", "-c", "2", "--cpu-bind", "cores"]);
        assert_eq!(args.command, ["./app", "-n", "3", "--nodes", "7"]);
        assert_eq!(parsed("--overcommit -- -x").unwrap().command, ["-x"]);
    }

    #[test]
    fn options_that_contradict_the_placement_are_refused() {
        for line in ["-w n1 ./app", "--exclude=n1 ./app", "--distribution cyclic ./app"] {
            assert!(parsed(line).unwrap_err().contains("contradicts"), "{line}");
        }
        assert!(parsed("-n x ./app").unwrap_err().contains("not a number"));
        assert!(parsed("-n").unwrap_err().contains("no value"));
        assert!(parsed("-n4").unwrap_err().contains("program"));
    }

    #[test]
    fn ranks_without_nodes_are_spread_over_the_allocation() {
        let run = |line: &str, is_allocated| parsed(line).unwrap().spec(is_allocated, None, None)["run"].clone();
        // By the spec's default.
        assert_eq!(run("-n8 a", true), json!({"command": ["a"], "ranks": 8}));
        assert_eq!(run("-n8 -N4 a", true), json!({"command": ["a"], "nodes": 4, "ranks": 8}));
        assert_eq!(run("-n2 a", false), json!({"command": ["a"], "nodes": 2, "ranks": 2}));
        assert_eq!(run("a", true), json!({"command": ["a"]}));
    }

    #[test]
    fn a_run_needs_as_many_nodes_as_the_previous_one_used() {
        let relaunch = |line: &str, used| parsed(line).unwrap().spec(true, used, None)["relaunch"].clone();
        assert_eq!(relaunch("-n8 a", Some(3)), json!({"attempts": 0, "min_nodes": 3}));
        assert_eq!(relaunch("-n8 -N2 a", Some(3)), json!({"attempts": 0, "min_nodes": 2}));
        assert_eq!(relaunch("-n8 a", Some(0)), json!({"attempts": 0}));
        assert_eq!(relaunch("-n8 a", None), json!({"attempts": 0}));
    }

    #[test]
    fn program_of_llnl_s_library_gets_its_source() {
        let spec = |source| parsed("-n8 a").unwrap().spec(true, None, source);
        assert_eq!(spec(Some("scr-files"))["checkpoint"], json!({"source": "scr-files"}));
        assert_eq!(spec(None)["checkpoint"], Value::Null);
    }
}
