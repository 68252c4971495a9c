//! SCR's parameters: each acts, is refused, or is warned about; and the page that lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast::params::declaration::{AllowedSource, Declaration, Effect};
use holdfast::spec::declared_parameters as declared;
use holdfast_testkit::fixtures;
use tempfile::TempDir;

use super::program::{Ran, command, run, without_parameters};

const PAGE: &str = "docs/scr-parameters.md";
const KEYS: &str = "cli/parameters.rs::parameter_sets_its_key";
const WARNED: &str = "cli/parameters.rs::parameter_without_effect_is_warned_about";
const REFUSED: &str = "cli/parameters.rs::parameter_that_deletes_checkpoints_is_refused";
const TABLES: &str = "cli/parameters.rs::tables_of_a_file_set_lists_and_capacities";
const RUNS: &str = "cli/resolution.rs::runs_come_from_the_environment_only";
const PLAIN: &str = "e2e/parameters.rs::scr_enable_0_launches_once_with_the_exit_code_of_the_program";
const IDENTITY: &str = "e2e/parameters.rs::user_name_and_job_id_name_the_directories_on_nodes";
const BANDWIDTH: &str = "e2e/parameters.rs::nodes_share_the_bandwidth_of_a_flush_in_the_background";
const PERCENT: &str = "e2e/parameters.rs::flush_in_the_background_uses_its_share_of_a_processor";
const PREFIX: &str = "cli/parameters.rs::prefix_of_the_environment_instead_of_that_of_the_spec_is_reported";
const CONTROL: &str = "cli/parameters.rs::site_file_fixes_settings_against_spec_and_environment";
const DEBUG: &str = "e2e/parameters.rs::scr_debug_shows_the_internal_log";
const LOG: &str = "e2e/parameters.rs::scr_log_enable_0_writes_no_event_log";
const NODES: &str = "e2e/excluded_nodes.rs::nodes_outside_of_scr_nodelist_are_not_used";
const DELETED: &str = "e2e/checksums.rs::changed_file_in_cache_is_reported_before_it_is_deleted";
const GLOBAL_RESTART: &str =
    "e2e/parameters.rs::scr_global_restart_flushes_the_newest_checkpoint_and_restarts_from_the_prefix";
const OF_RANKS: &str = "libscr/c.rs::variables_of_scr_3_reach_the_ranks";
const PLAIN_DATA: &str = "cli/parameters.rs::data_without_protection_needs_the_permission_of_the_site";
const CONF: &str = "cli/check.rs::a_user_configuration_file_has_precedence_between_environment_and_spec";

/// The test that shows what becomes of a parameter.
fn shown_by(declaration: &Declaration) -> &'static str {
    match (declaration.name, &declaration.effect) {
        ("SCR_ENABLE", _) => PLAIN,
        ("SCR_USER_NAME" | "SCR_JOB_ID", _) => IDENTITY,
        ("SCR_FLUSH_ASYNC_BW", _) => BANDWIDTH,
        ("SCR_FLUSH_ASYNC_PERCENT", _) => PERCENT,
        ("SCR_PREFIX", _) => PREFIX,
        ("SCR_DEBUG", _) => DEBUG,
        ("SCR_LOG_ENABLE", _) => LOG,
        ("SCR_NODELIST", _) => NODES,
        ("SCR_CRC_ON_DELETE", _) => DELETED,
        ("SCR_GLOBAL_RESTART", _) => GLOBAL_RESTART,
        ("SCR_CACHE_BYPASS" | "SCR_HALT_EXIT", _) => OF_RANKS,
        ("SCR_CNTL_BASE", _) => CONTROL,
        ("SCR_CONF_FILE", _) => CONF,
        ("HOLDFAST_PLAIN_DATA", _) => PLAIN_DATA,
        ("SCR_RUNS" | "SCR_RETRIES", _) => RUNS,
        (_, Effect::Warned(_)) => WARNED,
        (_, Effect::Refused(_)) => REFUSED,
        (_, Effect::Acts(_)) if declaration.is_table() => TABLES,
        (_, Effect::Acts(_)) => KEYS,
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A directory with a spec of four nodes, with these lines below `checkpoint:`.
fn with_spec(checkpoint: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let spec = format!("allocation: {{nodes: 4}}\nrun: {{nodes: 4, command: [/bin/true]}}\ncheckpoint:\n{checkpoint}");
    fs::write(directory.path().join("job.yaml"), spec).unwrap();
    directory
}

/// `holdfast check --explain` in this directory, with these variables.
fn explained(directory: &Path, variables: &[(&str, &str)]) -> Ran {
    run(command(["check", "--explain", "job.yaml"]).current_dir(directory).envs(variables.iter().copied()))
}

/// The value of a key and its origin.
#[track_caller]
fn setting(ran: &Ran, key: &str) -> String {
    assert_eq!(ran.code, 0, "{}", ran.err);
    let words = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    let line = ran.out.lines().find(|line| line.split_whitespace().next() == Some(key));
    line.map(words).unwrap_or_else(|| panic!("no {key} in {}", ran.out))
}

#[test]
fn parameter_sets_its_key() {
    let set = [
        ("SCR_JOB_NAME", "wave", "job", "wave"),
        ("SCR_CACHE_BASE", "/ssd", "checkpoint.cache[0].base", "/ssd"),
        ("SCR_CACHE_SIZE", "5", "checkpoint.cache[0].keep", "5"),
        ("SCR_COPY_TYPE", "PARTNER", "checkpoint.redundancy[0].scheme", "partner"),
        ("SCR_HOP_DISTANCE", "2", "checkpoint.redundancy[0].hop_distance", "2"),
        ("SCR_SET_SIZE", "3", "checkpoint.redundancy[0].set_size", "3"),
        ("SCR_SET_FAILURES", "3", "checkpoint.redundancy[0].failures", "3"),
        ("SCR_DISTRIBUTE", "0", "checkpoint.restart.distribute", "false"),
        ("SCR_FETCH", "0", "checkpoint.restart.fetch", "false"),
        ("SCR_FETCH_WIDTH", "7", "checkpoint.restart.fetch_width", "7"),
        ("SCR_FLUSH", "3", "checkpoint.flush.every", "3"),
        ("SCR_FLUSH_WIDTH", "6", "checkpoint.flush.width", "6"),
        ("SCR_FLUSH_ON_RESTART", "1", "checkpoint.flush.on_restart", "true"),
        ("SCR_FLUSH_ASYNC", "1", "checkpoint.flush.mode", "async"),
        ("SCR_FLUSH_ASYNC_BW", "1MB", "checkpoint.flush.bandwidth", "1MiB/s"),
        ("SCR_FLUSH_ASYNC_PERCENT", "2.5", "checkpoint.flush.percent", "2.5"),
        ("SCR_CRC_ON_COPY", "1", "checkpoint.crc.on_copy", "true"),
        ("SCR_CRC_ON_FLUSH", "0", "checkpoint.crc.on_flush", "false"),
        ("SCR_CRC_ON_DELETE", "1", "checkpoint.crc.on_delete", "true"),
        ("SCR_GLOBAL_RESTART", "1", "checkpoint.restart.from_prefix", "true"),
        ("SCR_LOG_ENABLE", "0", "event_log", "false"),
        ("SCR_NODELIST", "node[0-3]", "allocation.only", "node[0-3]"),
        ("SCR_HALT_SECONDS", "90", "halt.before_end", "1min30s"),
        ("SCR_CHECKPOINT_INTERVAL", "4", "checkpoint.need.interval", "4"),
        ("SCR_CHECKPOINT_SECONDS", "5", "checkpoint.need.seconds", "5"),
        ("SCR_CHECKPOINT_OVERHEAD", "6", "checkpoint.need.overhead", "6"),
        ("SCR_PREFIX", "/pfs", "prefix", "/pfs"),
        ("SCR_RUNS", "4", "relaunch.attempts", "3"),
        ("SCR_RETRIES", "4", "relaunch.attempts", "4"),
        ("SCR_MIN_NODES", "4", "relaunch.min_nodes", "4"),
        ("SCR_EXCLUDE_NODES", "node9", "allocation.exclude", "node[9]"),
        ("SCR_PREFIX_SIZE", "3", "checkpoint.flush.keep", "3"),
        ("SCR_FILE_BUF_SIZE", "4MB", "checkpoint.copy_buffer", "4MiB"),
        ("SCR_CHECKPOINT_PATTERN", "0-N:state_[0-9]+", "checkpoint.interpose.files", "0-N:state_[0-9]+"),
        ("SCR_MPI_BUF_SIZE", "64KB", "checkpoint.piece_size", "64KiB"),
    ];
    let directory = with_spec("  source: scr\n");
    for (name, text, key, value) in set {
        let ran = explained(directory.path(), &[(name, text)]);
        assert_eq!(setting(&ran, key), format!("{value} {name}"), "{name}");
        // The virtual nodes of this spec have no end.
        let warning = if name == "SCR_HALT_SECONDS" { "warning: `before_end` has no effect: " } else { "" };
        assert!(ran.err.starts_with(warning) && ran.err.is_empty() == warning.is_empty(), "{name}: {}", ran.err);
    }
    // Each parameter whose effect is described by a key is in this list, with that key.
    for declaration in declared().iter().filter(|declaration| declaration.source != AllowedSource::SystemFile) {
        let Effect::Acts(text) = &declaration.effect else { continue };
        if text.starts_with("key `") {
            let expected = |key: &str| text.contains(&format!("`{}`", key.replace("[0]", "[*]"))) || text.contains(key);
            let (_, _, key, _) = set.iter().find(|(name, ..)| *name == declaration.name).unwrap();
            assert!(expected(key), "{}: {text}", declaration.name);
        }
    }
}

#[test]
fn explanation_names_the_parameter_that_set_the_attempts() {
    let directory = with_spec("  source: scr\n");
    for (variables, attempts, warning) in [
        (&[("SCR_RUNS", "4")][..], "3 SCR_RUNS", ""),
        (&[("SCR_RETRIES", "4")], "4 SCR_RETRIES", ""),
        (
            &[("SCR_RETRIES", "9"), ("SCR_RUNS", "4")],
            "3 SCR_RUNS",
            "warning: SCR_RETRIES (environment) has no effect: SCR_RUNS takes precedence\n",
        ),
        (&[("SCR_RETRIES", "9"), ("SCR_RUNS", "")], "9 SCR_RETRIES", ""),
        (&[], "5 default", ""),
    ] {
        let ran = explained(directory.path(), variables);
        assert_eq!((setting(&ran, "relaunch.attempts").as_str(), ran.err.as_str()), (attempts, warning));
    }
}

/// A value that is not the default.
fn other_value(declaration: &Declaration) -> &'static str {
    match &*declaration.default {
        "" => "n1",
        "1" => "0",
        _ => "1",
    }
}

#[test]
fn parameter_without_effect_is_warned_about() {
    let directory = with_spec("  source: scr\n");
    let conf = directory.path().join("user.conf");
    let mut warned = 0;
    for declaration in &declared() {
        let Effect::Warned(reason) = declaration.effect else { continue };
        let (name, value) = (declaration.name, other_value(declaration));
        let ran = explained(directory.path(), &[(name, value)]);
        assert_eq!(ran.err, format!("warning: {name} (environment) has no effect: {reason}\n"));
        assert_eq!(ran.code, 0);
        fs::write(&conf, format!("\n{name}={value}\n")).unwrap();
        let ran = explained(directory.path(), &[("SCR_CONF_FILE", conf.to_str().unwrap())]);
        let place = format!("(user file {}:2)", conf.display());
        let expected = match declaration.source {
            AllowedSource::Environment => format!("warning: {name} {place} is ignored: it is looked for in the"),
            _ => format!("warning: {name} {place} has no effect: {reason}"),
        };
        assert!(ran.err.starts_with(&expected), "{expected}\n{}", ran.err);
        // The default is in force.
        if !declaration.default.is_empty() {
            assert_eq!(explained(directory.path(), &[(name, &*declaration.default)]).err, "");
        }
        warned += 1;
    }
    assert!(warned > 5, "{warned}");
}

#[test]
fn parameter_that_deletes_checkpoints_is_refused() {
    let directory = with_spec("  source: scr\n");
    explained(directory.path(), &[("SCR_PREFIX_PURGE", "1")])
        .with_code(78)
        .complains(&["SCR_PREFIX_PURGE is \"1\" (environment)", "holdfast index prune"]);
    let conf = directory.path().join("user.conf");
    fs::write(&conf, "SCR_PREFIX_PURGE=1\n").unwrap();
    explained(directory.path(), &[("SCR_CONF_FILE", conf.to_str().unwrap())]).with_code(78).complains(&["user.conf:1"]);
    assert_eq!(explained(directory.path(), &[("SCR_PREFIX_PURGE", "0")]).code, 0);
}

#[test]
fn restart_from_prefix_needs_a_source_whose_ranks_open_files_and_no_container() {
    let warning =
        |why: &str| format!("warning: SCR_GLOBAL_RESTART has no effect {why}: ranks restart from files in cache\n");
    for (checkpoint, expected) in [
        ("  source: scr\n", String::new()),
        ("  source: variables\n", warning("with `source: variables`")),
        ("  flush: {container: {kind: sion}}\n", warning("with `flush: {container: …}`")),
    ] {
        let directory = with_spec(checkpoint);
        let ran = explained(directory.path(), &[("SCR_GLOBAL_RESTART", "1")]);
        assert_eq!((ran.code, ran.err), (0, expected), "{checkpoint}");
    }
    for checkpoint in ["  source: variables\n", "  flush: {container: {kind: sion}}\n"] {
        let directory = with_spec(&format!("{checkpoint}  restart: {{from_prefix: true}}\n"));
        explained(directory.path(), &[]).with_code(78).complains(&["checkpoint.restart.from_prefix: `"]);
    }
}

#[test]
fn tables_of_a_file_set_lists_and_capacities() {
    let directory = with_spec("  source: scr\n");
    let conf = directory.path().join("user.conf");
    let file = "CACHEDESC=0 BASE=/ssd SIZE=3\nCACHEDESC=1 BASE=/tmp SIZE=1\n\
                CNTLDIR=/tmp BYTES=10MB\nCACHEDIR=/ssd BYTES=2g\nCACHEDIR=/elsewhere BYTES=1g\n\
                SCR_COPY_TYPE=FILE\nSCR_SET_SIZE=6\n\
                CKPTDESC=0 BASE=/tmp TYPE=PARTNER\nCKPTDESC=1 ENABLED=0 INTERVAL=1 BASE=/tmp\n\
                CKPTDESC=2 INTERVAL=4 BASE=/ssd TYPE=XOR HOP_DISTANCE=2 INDEX=7\n";
    fs::write(&conf, file).unwrap();
    let ran = explained(directory.path(), &[("SCR_CONF_FILE", conf.to_str().unwrap())]);
    let place = |line| format!("({}:{line})", conf.display());
    for (key, value, parameter, line) in [
        ("cache[0].base", "/ssd", "CACHEDESC", 1),
        ("cache[1].keep", "1", "CACHEDESC", 2),
        ("control.bytes", "10MiB", "CNTLDIR", 3),
        ("cache[0].bytes", "2GiB", "CACHEDIR", 4),
        ("redundancy[0].scheme", "partner", "CKPTDESC", 8),
        ("redundancy[0].enabled", "true", "CKPTDESC", 8),
        ("redundancy[1].enabled", "false", "CKPTDESC", 9),
        ("redundancy[2].every", "4", "CKPTDESC", 10),
        ("redundancy[2].set_size", "6", "CKPTDESC", 10),
        ("redundancy[2].hop_distance", "2", "CKPTDESC", 10),
    ] {
        let expected = format!("{value} {parameter} {}", place(line));
        assert_eq!(setting(&ran, &format!("checkpoint.{key}")), expected, "{key}");
    }
    assert!(setting(&ran, "checkpoint.cache[1].bytes").starts_with("none"), "{}", ran.out);
    let unused = format!("warning: CACHEDIR=/elsewhere from CACHEDIR {} has no effect: ", place(5));
    assert!(ran.err.contains(&unused), "{}", ran.err);
    let index = format!("warning: INDEX (user file {}:10) is ignored", conf.display());
    assert!(ran.err.contains(&index), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 2, "{}", ran.err);
}

const TWO_DESCRIPTORS: &str = "  redundancy:\n  - {scheme: partner, hop_distance: 2}\n  \
                               - {scheme: xor, set_size: 4, hop_distance: 3, every: 5}\n";

#[test]
fn copy_type_of_the_environment_keeps_set_size_and_hop_distance_of_the_spec() {
    let directory = with_spec(TWO_DESCRIPTORS);
    let ran = explained(directory.path(), &[("SCR_COPY_TYPE", "XOR")]);
    for (key, value) in [
        ("scheme", "xor SCR_COPY_TYPE"),
        ("set_size", "4 line 6"),
        ("hop_distance", "3 line 6"),
        ("every", "1 SCR_COPY_TYPE"),
    ] {
        assert_eq!(setting(&ran, &format!("checkpoint.redundancy[0].{key}")), value);
    }
    assert!(!ran.out.contains("redundancy[1]"), "{}", ran.out);
    // SCR 3's name.
    let ran = explained(directory.path(), &[("SCR_COPY_TYPE", "SINGLE")]);
    assert_eq!(setting(&ran, "checkpoint.redundancy[0].scheme"), "local SCR_COPY_TYPE");
    // No descriptor of this scheme: the first one.
    let ran = explained(directory.path(), &[("SCR_COPY_TYPE", "LOCAL")]);
    assert_eq!(setting(&ran, "checkpoint.redundancy[0].hop_distance"), "2 line 5");
}

#[test]
fn set_size_and_hop_distance_apply_to_every_descriptor() {
    let directory = with_spec(TWO_DESCRIPTORS);
    let ran = explained(directory.path(), &[("SCR_SET_SIZE", "6"), ("SCR_HOP_DISTANCE", "1")]);
    for at in 0..2 {
        assert_eq!(setting(&ran, &format!("checkpoint.redundancy[{at}].set_size")), "6 SCR_SET_SIZE");
        assert_eq!(setting(&ran, &format!("checkpoint.redundancy[{at}].hop_distance")), "1 SCR_HOP_DISTANCE");
    }
}

#[test]
fn prefix_of_the_environment_instead_of_that_of_the_spec_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for name in ["of-spec", "other"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::write(path("job.yaml"), "job: heat\nprefix: of-spec\nrun: {command: [/bin/true]}\n").unwrap();
    let with = |words: &[&str], prefix: &str| {
        run(command(words).current_dir(directory.path()).env("SCR_PREFIX", path(prefix)))
    };
    let expected = format!(
        "warning: SCR_PREFIX takes precedence over `prefix: of-spec` (line 2): the prefix directory is {}\n",
        path("other")
    );
    for words in [["drain", "job.yaml"], ["check", "job.yaml"], ["status", "job.yaml"]] {
        let ran = with(&words, "other");
        assert!(ran.err.starts_with(&expected), "{words:?}: {}", ran.err);
    }
    assert_eq!(with(&["check", "job.yaml"], "of-spec").err, "");
    // Without a spec it is the directory that the command uses.
    with(&["status"], "other").with_code(69).complains(&[&path("other")]);
}

/// An installation of the program with this site file; returns the program.
fn installed(directory: &TempDir, site: &str) -> (PathBuf, String) {
    let (programs, etc) = (directory.path().join("bin"), directory.path().join("etc/holdfast"));
    fs::create_dir(&programs).unwrap();
    fs::create_dir_all(&etc).unwrap();
    let program = programs.join("holdfast");
    let built = env!("CARGO_BIN_EXE_holdfast");
    if fs::hard_link(built, &program).is_err() {
        fs::copy(built, &program).unwrap();
    }
    let file = etc.join("scr.conf");
    fs::write(&file, site).unwrap();
    (program, file.canonicalize().unwrap().to_str().unwrap().to_owned())
}

/// Runs an installed program on a spec with these lines below `checkpoint:`.
fn run_installed(program: &Path, spec: &Path, checkpoint: &str, words: &[&str], variables: &[(&str, &str)]) -> Ran {
    fs::write(spec, format!("run: {{nodes: 4, command: [/bin/true]}}\ncheckpoint:\n{checkpoint}")).unwrap();
    let mut command = without_parameters(Command::new(program));
    run(command.args(words).arg(spec).envs(variables.iter().copied()))
}

#[test]
fn data_without_protection_needs_the_permission_of_the_site() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (program, file) = installed(&directory, "");
    let (spec, user) = (directory.path().join("job.yaml"), directory.path().join("user.conf"));
    fs::write(&user, "HOLDFAST_PLAIN_DATA=1\n").unwrap();
    let refusal = "checkpoint.data_plane: `plain` is not allowed here: the site's file has no `HOLDFAST_PLAIN_DATA=1`";
    let with = |data_plane: &str, words: &[&str], variables: &[(&str, &str)]| {
        run_installed(&program, &spec, &format!("  data_plane: {data_plane}\n"), words, variables)
    };
    let no_permission = [("SCR_CONF_FILE", user.to_str().unwrap()), ("HOLDFAST_PLAIN_DATA", "1")];
    for words in [["check"], ["run"]] {
        with("plain", &words, &no_permission).with_code(78).complains(&[refusal]);
    }
    let ran = with("plain", &["check"], &no_permission[..1]);
    assert!(ran.err.contains("HOLDFAST_PLAIN_DATA") && ran.err.contains("user.conf:1"), "{}", ran.err);
    for data_plane in ["encrypted", "authenticated"] {
        assert_eq!(with(data_plane, &["check"], &[]).code, 0);
    }
    fs::write(file, "HOLDFAST_PLAIN_DATA=1\n").unwrap();
    let ran = with("plain", &["check", "--explain"], &[]);
    assert_eq!(setting(&ran, "checkpoint.data_plane"), "plain line 3");
    assert!(ran.out.contains("can be read and changed on the network"), "{}", ran.out);
}

#[test]
fn site_file_fixes_settings_against_spec_and_environment() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let site = "SCR_CNTL_BASE=/var/run FIXED=1\nCACHEDESC=0 BASE=/ssd SIZE=2 FIXED=1\n\
                SCR_FLUSH_ASYNC_BW=1MB FIXED=1\nSCR_FLUSH=7\n";
    let (program, file) = installed(&directory, site);
    let spec = directory.path().join("job.yaml");
    let run_with = |checkpoint: &str, words: &[&str], variables: &[(&str, &str)]| {
        run_installed(&program, &spec, checkpoint, words, variables)
    };
    let ran = run_with("  flush: {every: 3}\n", &["check", "--explain"], &[]);
    for (key, value) in [
        ("control.base", format!("/var/run SCR_CNTL_BASE ({file}:1)")),
        ("cache[0].base", format!("/ssd CACHEDESC ({file}:2)")),
        ("flush.bandwidth", format!("1MiB/s SCR_FLUSH_ASYNC_BW ({file}:3)")),
        ("flush.every", "3 line 3".to_owned()),
    ] {
        assert_eq!(setting(&ran, &format!("checkpoint.{key}")), value);
    }
    // A spec that repeats the values is accepted.
    let same = "  control: {base: /var/run}\n  cache: [{base: /ssd, keep: 2}]\n  \
                flush: {mode: async, bandwidth: 1MiB/s}\n";
    run_with(same, &["check"], &[]).with_code(0).err_is("");
    for (checkpoint, place, message) in [
        (
            "  control: {base: /mine}\n",
            "3:19",
            "control.base: the value is fixed to `/var/run` by SCR_CNTL_BASE (FILE:1)",
        ),
        ("  cache: [{base: /mine}]\n", "3:18", "cache[0].base: the value is fixed to `/ssd` by CACHEDESC (FILE:2)"),
        ("  cache: [{base: /ssd}, {base: /tmp}]\n", "3:3", "cache: the list is fixed by CACHEDESC (FILE:2)"),
        (
            "  flush: {mode: async, bandwidth: 2MiB/s}\n",
            "3:35",
            "flush.bandwidth: the value is fixed to `1MiB/s` by SCR_FLUSH_ASYNC_BW (FILE:3)",
        ),
    ] {
        for subcommand in ["check", "run"] {
            let ran = run_with(checkpoint, &[subcommand], &[]);
            let message = message.replace("FILE", &file);
            let expected = format!("{}:{place}: checkpoint.{message}", spec.display());
            assert!(ran.code == 78 && ran.err.contains(&expected), "{expected}\n{} {}", ran.code, ran.err);
            assert!(ran.err.contains("users cannot change this setting"), "{}", ran.err);
        }
    }
    let variables = [("SCR_FLUSH_ASYNC_BW", "1g"), ("SCR_CACHE_BASE", "/x")];
    let ran = run_with("  source: scr\n", &["check", "--explain"], &variables);
    assert!(setting(&ran, "checkpoint.flush.bandwidth").starts_with("1MiB/s"), "{}", ran.out);
    assert!(setting(&ran, "checkpoint.cache[0].base").starts_with("/ssd"), "{}", ran.out);
    let warnings = format!(
        "warning: SCR_CACHE_BASE (environment) is ignored: {file}:2 fixes it\n\
         warning: SCR_FLUSH_ASYNC_BW (environment) is ignored: {file}:3 fixes it\n"
    );
    assert_eq!(ran.err, warnings);
}

/// The names in the table of parameters of the fixtures' description, in its order. `SCR_A_B, _C` means SCR_A_B_C or
/// SCR_A_C, whichever is declared.
fn documented() -> Vec<String> {
    let declared = declared();
    let text = fs::read_to_string(fixtures("scr").join("FORMATS.md")).unwrap();
    let (_, table) = text.split_once("| parameter | default | |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut names = Vec::new();
    for row in rows {
        let cell = row.split('|').nth(1).unwrap();
        let mut first = String::new();
        for item in cell.split(',') {
            let name = item.trim().split(['=', ' ']).next().unwrap();
            if !name.starts_with('_') {
                first = name.to_owned();
                names.push(first.clone());
                continue;
            }
            let stems = first.match_indices('_').map(|(at, _)| &first[..at]).chain([first.as_str()]);
            let candidates = stems.map(|stem| format!("{stem}{name}"));
            let found: Vec<String> =
                candidates.filter(|name| declared.iter().any(|known| known.name == name)).collect();
            assert!(!found.is_empty(), "{name} of {cell} is not declared");
            names.extend(found);
        }
    }
    names
}

#[test]
fn every_parameter_of_scr_is_declared_and_no_other() {
    let known: BTreeSet<String> = declared().iter().map(|declaration| declaration.name.to_owned()).collect();
    // One that names a file, and is in the text above the table; and one of Holdfast's own.
    let others = ["SCR_CONF_FILE", "HOLDFAST_PLAIN_DATA"].map(str::to_owned);
    let documented = documented().into_iter().chain(others);
    let documented = documented.chain(SCR_3.split_whitespace().map(str::to_owned)).collect();
    assert_eq!(known, documented);
    assert!(known.len() > 45, "{known:?}");
}

/// Those that SCR 3.1 reads and version 1.1-8 does not.
const SCR_3: &str = "SCR_AXL_MKDIR SCR_CACHE_BYPASS SCR_CACHE_PURGE SCR_COPY_METADATA SCR_CURRENT \
                     SCR_DROP_AFTER_CURRENT SCR_FETCH_BYPASS SCR_FLUSH_ASYNC_USLEEP SCR_FLUSH_POSTSTAGE \
                     SCR_FLUSH_TYPE SCR_GROUP SCR_HALT_EXIT SCR_LOG_DB_DEBUG SCR_LOG_DB_ENABLE SCR_LOG_DB_HOST \
                     SCR_LOG_DB_NAME SCR_LOG_DB_PASS SCR_LOG_DB_USER SCR_LOG_SYSLOG_ENABLE SCR_LOG_TXT_ENABLE \
                     SCR_PREFIX_PURGE SCR_PREFIX_SIZE SCR_SET_FAILURES SCR_WATCHDOG SCR_WATCHDOG_TIMEOUT \
                     SCR_WATCHDOG_TIMEOUT_PFS";

/// The parameters whose names stand also where they take effect, beside their declaration.
const WITH_OWN_EFFECT: &[&str] = &[
    "SCR_ENABLE",
    "SCR_DEBUG",
    "SCR_LOG_ENABLE",
    "SCR_USER_NAME",
    "SCR_JOB_ID",
    "SCR_JOB_NAME",
    "SCR_PREFIX",
    "SCR_NODELIST",
    "SCR_CONF_FILE",
    "SCR_EXCLUDE_NODES",
    "SCR_CNTL_BASE",
    "SCR_CACHE_BASE",
    "SCR_CACHE_SIZE",
    "SCR_COPY_TYPE",
    "SCR_CRC_ON_FLUSH",
    "SCR_FILE_BUF_SIZE",
    "SCR_HALT_SECONDS",
    "SCR_RUNS",
    "SCR_RETRIES",
    "CACHEDESC",
    "CKPTDESC",
    "CNTLDIR",
    "CACHEDIR",
];

#[test]
fn parameter_stands_in_one_table_line() {
    let mut lines = BTreeMap::<&str, usize>::new();
    let all = declared();
    let mut read = 0;
    for room in ["orchestrator/src", "agents/core/src", "agents/node/src", "agents/wire/src", "agents/model/src"] {
        for path in rust_files(&root().join(room)) {
            let text = fs::read_to_string(&path).unwrap();
            read += 1;
            for line in
                text.split("#[cfg(test)]").next().unwrap().lines().filter(|line| !line.trim_start().starts_with("//"))
            {
                let named = all.iter().filter(|known| line.contains(&format!("\"{}\"", known.name)));
                named.for_each(|known| *lines.entry(known.name).or_default() += 1);
            }
        }
    }
    assert!(read > 300, "{read}");
    for declaration in &all {
        let found = lines.get(declaration.name).copied().unwrap_or_default();
        let is_right = if WITH_OWN_EFFECT.contains(&declaration.name) { found >= 1 } else { found == 1 };
        assert!(is_right, "{} stands in {found} lines", declaration.name);
    }
}

/// The sources below a directory.
fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { rust_files(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect()
}

#[test]
fn each_parameter_has_a_test_that_exists() {
    for declaration in &declared() {
        let (file, name) = shown_by(declaration).split_once("::").unwrap();
        let path = root().join("tests").join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let is_test = |attribute: &str| text.contains(&format!("{attribute}\nfn {name}("));
        assert!(is_test("#[test]") || is_test("#[test(unchecked)]"), "there is no test {name} in {file}");
    }
}

/// The declarations in the order of the fixtures' description; it has SCR_CONF_FILE in the text above the table.
fn in_order() -> Vec<Declaration> {
    let order = documented();
    let place = |name: &str| order.iter().position(|known| known == name);
    let mut all = declared();
    let before_database = place("SCR_DB_ENABLE").map(|at| at.saturating_sub(1));
    all.sort_by_key(|declaration| match declaration.name {
        "SCR_CONF_FILE" => before_database,
        name => place(name).or(Some(usize::MAX)),
    });
    all
}

/// The page, from the declarations.
fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str("\n## What becomes of each\n\n| parameter | default | result | shown by |\n|---|---|---|---|\n");
    for declaration in &in_order() {
        let result = match declaration.effect {
            Effect::Acts(_) => "acts",
            Effect::Warned(_) => "warning",
            Effect::Refused(_) => "error",
        };
        let (_, test) = shown_by(declaration).split_once("::").unwrap();
        let Declaration { name, default, .. } = declaration;
        writeln!(text, "| `{name}` | {default} | {result} | `{test}` |").unwrap();
    }
    text.push_str("\n## How\n\n");
    for Declaration { name, source, effect, .. } in &in_order() {
        let what = match effect {
            Effect::Acts(what) => what,
            Effect::Warned(what) | Effect::Refused(what) => *what,
        };
        let source = match source {
            AllowedSource::Any => "",
            AllowedSource::Files => " (lines of a file)",
            AllowedSource::SystemFile => " (site's file only)",
            AllowedSource::Environment => " (environment only)",
        };
        let mut line = String::new();
        for word in format!("* `{name}`{source}: {what}.").split(' ') {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > 118 {
                text.push_str(&line);
                text.push('\n');
                line = " ".to_owned();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

const INTRODUCTION: &str = "\
# SCR's parameters

A parameter that differs from its default acts, or has no effect, which a warning on standard error reports with its
place and the reason. So does a name that is none of these, also in the environment: `SCR_FLUHS`. One that would delete
checkpoints is an error (exit code 78). The parameters of SCR 1.1-8 come first, then those of SCR 3.1 only;
`HOLDFAST_PLAIN_DATA` is of neither.

```bash
SCR_FLUSH=5 holdfast check --explain job.yaml     # the value of each key, and what set it
```

**Order.** The environment; the user's file, which `SCR_CONF_FILE` names; the job spec; the site's file; the default.
The keys are those of `configs/reference.yaml`. `SCR_SET_SIZE` and `SCR_HOP_DISTANCE` apply to every descriptor of the
spec, and to every `CKPTDESC` line without a value of its own. `SCR_COPY_TYPE` selects the descriptor of the spec that
has this scheme, else its first one: its other keys stay, except that every checkpoint uses it.

**The site's file** is `/etc/holdfast/scr.conf`. If it does not exist, `etc/holdfast/scr.conf` in the directory above
that of the program counts: `/opt/holdfast/etc/holdfast/scr.conf` for `/opt/holdfast/bin/holdfast`. It sets defaults.
With `FIXED=1` behind a pair, users cannot change what the line sets:

```
SCR_CNTL_BASE=/var/run/holdfast FIXED=1
CACHEDESC=0 BASE=/ssd SIZE=2 FIXED=1
SCR_FLUSH_ASYNC_BW=20GB FIXED=1
```

A key of a spec with another value is then an error (exit code 78) that names the file and the line. A variable of the
environment, or a line of the user's file, is ignored with a warning. One `CACHEDESC` line with `FIXED=1` fixes the
entire list of caches.
";

#[test]
fn page_lists_the_parameters_that_are_declared() {
    let (path, expected) = (root().join(PAGE), page());
    if fs::read_to_string(&path).unwrap_or_default() != expected {
        let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scr-parameters.md");
        fs::write(&new, expected).unwrap();
        panic!("{PAGE} does not match the declarations; the expected text is in {}", new.display());
    }
}
