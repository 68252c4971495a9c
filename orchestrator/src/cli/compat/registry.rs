//! The commands of SCR that this program has.

use serde_json::json;

use super::super::failure::Failure;
use super::super::output::{Style, report};
use super::result::{ExitResult, NO, YES};
use super::{
    cache, check_node, control, directories, down_nodes, flush, halt, hosts, index, log_event, param, postrun, scripts,
    srun,
};
use crate::exit;

/// A command of SCR.
pub(in super::super) struct ScrCommand {
    pub(super) name: &'static str,
    /// What it does.
    pub(super) about: &'static str,
    /// What differs from SCR; empty if nothing does.
    pub(super) difference: &'static str,
    pub(super) run: fn(&[String]) -> ExitResult,
    /// The exit code for wrong arguments, and if the command failed.
    pub(super) refusal: u8,
}

/// A command that fails with 1.
const fn command(
    name: &'static str,
    about: &'static str,
    difference: &'static str,
    run: fn(&[String]) -> ExitResult,
) -> ScrCommand {
    ScrCommand { name, about, difference, run, refusal: NO }
}

pub(super) static COMMANDS: &[ScrCommand] = &[
    command(
        "scr_check_node",
        "checks the control and cache directories of this node",
        "the size of the file system is determined without `df`",
        check_node::check_node,
    ),
    command(
        "scr_cntl_dir",
        "prints the control directory of a job, or its cache directories",
        "SCR_USER_NAME, SCR_JOB_ID and CACHEDESC of the system file count too, as they do for the job",
        directories::cntl_dir,
    ),
    command(
        "scr_copy",
        "copies the files of a checkpoint from the cache of this node",
        "a rank whose files are damaged is reported with 1, and the other ranks are copied",
        cache::copy,
    ),
    command(
        "scr_env",
        "prints user, job id, nodes and down nodes of the job",
        "nodes in the state `fail` count as down too",
        directories::env,
    ),
    command(
        "scr_flush",
        "copies a checkpoint from the caches of the nodes",
        "a step of the job runs the copies; no files of pdsh's output are left",
        flush::flush,
    ),
    command("scr_flush_file", "reports which checkpoints of a node must be flushed", "", control::flush_file),
    command(
        "scr_glob_hosts",
        "counts, selects, subtracts and intersects host lists",
        "zero padding, several lists in one and names without number are kept; an invalid list ends with 1",
        hosts::glob_hosts,
    ),
    command(
        "scr_halt",
        "sets and lists the halt conditions of jobs",
        "changes the halt files of all nodes; `--immediate` keeps the agents; times are read by `date`",
        halt::halt,
    ),
    command("scr_halt_cntl", "changes the halt file of this node", "", halt::halt_cntl),
    command(
        "scr_hostlist",
        "expands and compresses host lists",
        "in SCR a perl module, which here calls this command: expand, compress, diff and intersect are subcommands",
        hosts::hostlist,
    ),
    command(
        "scr_index",
        "lists, adds and removes checkpoints of the index",
        "`--add` verifies checksums before a rebuild, and examines an incomplete directory again",
        index::index,
    ),
    command(
        "scr_inspect",
        "prints the checkpoints in the caches that can be completed",
        "no files of pdsh's output are left; the job id is not needed",
        cache::inspect,
    ),
    command("scr_inspect_cache", "prints the complete ranks in the cache of this node", "", cache::inspect_cache),
    command(
        "scr_list_down_nodes",
        "prints the nodes that cannot be used",
        "a node that does not answer is down; a step of the job runs the check",
        down_nodes::list_down_nodes,
    ),
    command(
        "scr_log_event",
        "adds an event to the event log",
        "the event goes to the event log of the prefix directory, if it has one, and not to MySQL",
        log_event::log_event,
    ),
    command("scr_nodes_file", "prints the number of nodes of the last run", "", control::nodes_file),
    command(
        "scr_param",
        "prints the values of SCR's parameters",
        "in SCR a perl module, which here calls this command: get and get_hash are subcommands",
        param::param,
    ),
    command(
        "scr_postrun",
        "saves the newest checkpoint in the caches to the prefix directory",
        "prints the steps of Holdfast's drain; what is saved and the exit code are SCR's",
        postrun::postrun,
    ),
    command(
        "scr_prerun",
        "prepares a job",
        "checks nothing: pdsh, dshbak and Date::Manip are not needed",
        scripts::prerun,
    ),
    command(
        "scr_print_hash_file",
        "prints a file of SCR's",
        "control characters are escaped",
        control::print_hash_file,
    ),
    command(
        "scr_rebuild_xor",
        "rebuilds the files of a lost member of an XOR set",
        "checksums of the other members are verified first; nothing is changed if one is wrong",
        index::rebuild_xor,
    ),
    ScrCommand {
        name: "scr_retries_halt",
        about: "decides by the halt file whether the job ends",
        difference: "a halt file that cannot be read ends the job (0); SCR continues",
        run: control::retries_halt,
        // If it is unknown whether to halt, the job halts.
        refusal: YES,
    },
    command(
        "scr_srun",
        "runs a job: relaunches it when nodes are lost, and saves its newest checkpoint",
        "runs `holdfast run`: the agents serve the program, which is linked with Holdfast's libscr or LLNL's",
        srun::srun,
    ),
    command(
        "scr_test_runtime",
        "checks that what the scripts need is there",
        "needs the commands of Slurm, in a job; pdsh, dshbak and Date::Manip are not needed",
        scripts::test_runtime,
    ),
    command("scr_transfer", "does nothing: the agents copy files", "ends at once", scripts::transfer),
];

pub(super) fn find(name: &str) -> Option<&'static ScrCommand> {
    COMMANDS.iter().find(|command| command.name == name)
}

pub(super) fn list(output: Style) -> Result<u8, Failure> {
    let command = |command: &ScrCommand| {
        let difference = Some(command.difference).filter(|text| !text.is_empty());
        json!({"name": command.name, "about": command.about, "difference": difference})
    };
    let fields = json!({"commands": COMMANDS.iter().map(command).collect::<Vec<_>>()});
    output.result(&report(fields, |to| {
        COMMANDS.iter().try_for_each(|ScrCommand { name, about, difference, .. }| {
            writeln!(to, "{name:<20}  {about}")?;
            if difference.is_empty() { Ok(()) } else { writeln!(to, "{:<20}  difference: {difference}", "") }
        })
    }))?;
    Ok(exit::FINISHED)
}
