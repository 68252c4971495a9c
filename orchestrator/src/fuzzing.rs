//! The parsers of this crate as targets of mutation tests and fuzzing, with what must hold for any input.

#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_core::state_directory::StateDirectory;
use holdfast_core::store::{DatasetStore as _, PosixStore};
use holdfast_model::CheckpointId;
use holdfast_testkit::fast_directory;
use holdfast_testkit::fuzz::{FuzzTarget, fixture_files, texts};
use holdfast_wire::run::{AgentReady, AgentStart};

use crate::allocation::fuzzing as allocation;
use crate::allocation::ssh::on_node::{HostFacts, NodeCommand, SurveyRequest};
use crate::events::reader::Reader;
use crate::job::journal::{self, JournalFile};
use crate::job::state::{JobState, Progress, Stage, StateChanges, StateError};
use crate::job::state_file;
use crate::launch::{fuzzing as launch, registry};
use crate::params::conf::{self, ConfError, ConfLineError, FileOwner};
use crate::params::source::Sources;
use crate::params::{Parameters, value};
use crate::spec::quantity::{
    format_bytes, format_duration, format_time, parse_bandwidth, parse_bytes, parse_duration, parse_time,
};
use crate::spec::{Environment, JobSpec, declared_parameters};
use crate::{cli, drain};

pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "job_spec", corpus: job_specs, words: SPEC_WORDS, check: job_spec },
    FuzzTarget { name: "quantities", corpus: quantities, words: UNITS, check: quantity },
    FuzzTarget { name: "event_log", corpus: event_logs, words: EVENT_WORDS, check: event_log },
    FuzzTarget { name: "job_state", corpus: job_states, words: STATE_WORDS, check: job_state },
    FuzzTarget { name: "drain_record", corpus: drain_records, words: &["\"directory\":", "../"], check: drain_record },
    allocation::SQUEUE,
    allocation::SINFO,
    allocation::SLURM_ENVIRONMENT,
    allocation::QSTAT,
    allocation::PBS_MESSAGES,
    allocation::PBS_TASK,
    allocation::PBS_ENVIRONMENT,
    allocation::FLUX_RESOURCES,
    allocation::FLUX_MESSAGES,
    allocation::FLUX_ENVIRONMENT,
    FuzzTarget { name: "node_messages", corpus: node_messages, words: &["\"", "{", "[", "\\u"], check: node_message },
    FuzzTarget { name: "fti_config", corpus: fti_configs, words: &["node_size", "=", "head", "\n"], check: fti_config },
    FuzzTarget { name: "conf_file", corpus: conf_files, words: PARAMETER_WORDS, check: conf_file },
    FuzzTarget { name: "parameters", corpus: parameter_lines, words: PARAMETER_WORDS, check: parameters },
    launch::LAUNCHER_OUTPUT,
    launch::STEP_EVENTS,
    launch::STEP_PLAN,
    #[cfg(feature = "ssh")]
    FuzzTarget { name: "known_hosts", corpus: known_hosts, words: &["|1|", "@revoked", "*", "!"], check: known_host },
];

const PARAMETER_WORDS: &[&str] = &[
    "SCR_COPY_TYPE=",
    "SCR_CACHE_BASE=",
    "CKPTDESC=",
    "CACHEDESC=",
    "CACHEDIR=",
    "INTERVAL=",
    "FIXED=1",
    "XOR",
    "PARTNER",
    "KB",
    "=",
    "#",
];

const SPEC_WORDS: &[&str] = &[
    "run:\n",
    "  command: ",
    "allocation:\n",
    "  nodes: ",
    "  hosts: [",
    "checkpoint:\n",
    "  redundancy: ",
    "relaunch:\n",
    "health:\n",
    "halt:\n",
    "steps:\n",
    "- name: ",
    "&a ",
    "*a",
    "[",
    "{",
    "!!str ",
    "|\n",
    "---\n",
    "<<: ",
    "? ",
    "  ",
    ": ",
];

fn conf_files() -> Vec<Vec<u8>> {
    fixture_files(&["scr"], &[".conf"])
}

fn conf_file(bytes: &[u8]) {
    let (user, system) =
        (conf::parse(bytes, "user.conf", FileOwner::User), conf::parse(bytes, "scr.conf", FileOwner::System));
    // Only the system file gives FIXED a meaning.
    let is_fixed = |error: &ConfError| matches!(error, ConfError::Line { what: ConfLineError::Fixed(_), .. });
    assert!(user.is_ok() == system.is_ok() || system.as_ref().is_err_and(is_fixed));
    let (Ok(user), Ok(system)) = (user, system) else { return };
    for line in &user {
        let pairs = line.pairs.iter().map(|(key, value)| (key, value)).chain([(&line.key, &line.value)]);
        for text in pairs.flat_map(|(key, value)| [key, value]) {
            assert!(!text.is_empty() && !text.contains(['=', '\0', '\n', ' ']), "{text:?}");
        }
    }
    let _ =
        Parameters::resolve(&declared_parameters(), &Sources::default().with_user_file(user).with_system_file(system));
}

fn parameter_lines() -> Vec<Vec<u8>> {
    let all = declared_parameters().into_iter().map(|parameter| format!("{}={}\n", parameter.name, parameter.default));
    texts(&[
        &all.collect::<String>(),
        "SCR_COPY_TYPE=XOR\nSCR_SET_SIZE=4\nSCR_CACHE_BASE=/tmp/cache\nSCR_CNTL_BASE=/tmp",
        "SCR_FLUSH_ASYNC=1\nSCR_FLUSH_ASYNC_PERCENT=12.5\nSCR_FLUSH=10\nSCR_FETCH=0",
        "SCR_CHECKPOINT_INTERVAL=3\nSCR_CHECKPOINT_SECONDS=600\nSCR_CHECKPOINT_OVERHEAD=2.5\nSCR_HALT_SECONDS=60",
        "SCR_RUNS=-1\nSCR_MIN_NODES=3\nSCR_PREFIX=/p\nSCR_JOB_NAME=job\nSCR_USER_NAME=user1\nSCR_JOB_ID=17",
    ])
}

fn parameters(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let sources = Sources::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    if let Ok(parameters) = Parameters::resolve(&declared_parameters(), &sources) {
        drop(parameters);
    }
    for text in text.lines() {
        let _ = (value::switch(text), value::counting(text), value::signed(text), value::buffer(text));
        assert!(value::percent(text).is_none_or(|percent| (0.0..=100.0).contains(&percent)));
        assert!(value::directory(text).is_none_or(|path| path.starts_with('/') && !path.contains("/../")));
    }
}

fn job_specs() -> Vec<Vec<u8>> {
    let mut specs = texts(&[
        include_str!("../../configs/quickstart.yaml"),
        include_str!("../../configs/slurm/job.yaml"),
        "run: {command: [./app, --x]}\n",
        "a: &a [x]\nb: [*a, *a]\n",
        "job: heat\nprefix: /p\nsteps:\n- name: one\n  run: {command: [a]}\n- name: two\n  run: {command: [b]}\n",
        "allocation:\n  manager: ssh\n  hosts: [n1, 'u@n[2-3]:22', '[::1]:22']\nrun: {command: [a]}\n",
    ]);
    // Every key. It is long, so that a part of it is changed more often.
    let reference = include_str!("../../configs/reference.yaml");
    let keys = reference.lines().filter(|line| !line.trim_start().starts_with('#') && !line.is_empty());
    specs.push(keys.map(|line| format!("{line}\n")).collect::<String>().into_bytes());
    specs
}

fn job_spec(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match JobSpec::parse(text, "job.yaml", &Environment::empty(registry::registered())) {
        Ok(spec) => {
            assert!(!spec.steps.is_empty() || spec.replicated.is_some());
            for name in spec.steps.iter().map(|step| &step.name).chain([&spec.job]) {
                assert!(!name.is_empty() && !name.contains('/') && name != ".." && name != ".", "{name:?}");
            }
        }
        Err(mistakes) => {
            let shown = mistakes.to_string();
            // Each mistake quotes a line.
            assert!(shown.len() < (1 << 20) + 100 * text.len(), "{} bytes", shown.len());
        }
    }
}

const UNITS: &[&str] = &["ms", "min", "h", "d", "KiB", "TB", "/s", ".", "T", "Z", "+23:59", "9999-12-31"];

fn quantities() -> Vec<Vec<u8>> {
    texts(&["1h30m", "1.5s", "2 d", "0", "200MB/s", "64k", "1GiB", "2026-11-20T18:00:00+01:00", "2026-11-20 18:00"])
}

fn quantity(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(duration) = parse_duration(text) {
        assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
    }
    if let Some(size) = parse_bytes(text) {
        assert_eq!(parse_bytes(&format_bytes(size)), Some(size));
    }
    let _ = parse_bandwidth(text);
    if let Some(time) = parse_time(text) {
        let _ = format_time(time);
    }
}

const EVENT_WORDS: &[&str] = &["\"v\":\"1.0\"", "\"event\":\"", "\"rank\":", "\"end\":{\"code\":", "null", "\n"];

fn event_logs() -> Vec<Vec<u8>> {
    let line =
        |event: &str| format!("{{\"v\":\"1.0\",\"time\":\"2026-11-20T10:21:52.000Z\",\"job\":\"heat\",{event}}}\n");
    let events = [
        r#""event":"job_started","prefix":"/p","nodes":4,"job_id":"17""#,
        r#""event":"checkpoint_completed","generation":1,"checkpoint":3,"seconds":0.5"#,
        r#""event":"unknown","x":[1,2]"#,
    ];
    let log: String = events.iter().map(|event| line(event)).collect();
    texts(&[&log, "{\"v\":\"2.0\"}\n", "cut off"])
}

fn event_log(bytes: &[u8]) {
    let directory = fast_directory();
    fs::write(directory.path().join(crate::events::log::FILE), bytes).unwrap();
    let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
    if let Ok(Some(reader)) = Reader::open(directory.path()) {
        // An error does not end the iterator.
        let records = reader.take(lines + 1).count();
        assert!(records <= lines, "{records} of {lines} lines");
    }
}

const STATE_WORDS: &[&str] = &["\"stage\":\"running\"", "\"finished\"", "\"entries\":", "\"version\":", "null", "[["];

/// The state and the journal are separated by this in the input.
const BEFORE_JOURNAL: u8 = 0xff;

fn job_states() -> Vec<Vec<u8>> {
    let base = fast_directory();
    let mut state: serde_json::Value = serde_json::from_str(JOB_STATE).unwrap();
    state["version"] = crate::job::state::VERSION.into();
    let state: JobState = serde_json::from_value(state).unwrap();
    make_directory(StateDirectory::below(base.path()).path());
    state.write(base.path()).unwrap();
    let mut journal = JournalFile::begin(base.path(), &state).unwrap();
    for (number, stage) in
        [Stage::Running, Stage::Undrained { reason: "no node".to_owned(), ended: None }].into_iter().enumerate()
    {
        let progress = Progress {
            stage,
            halt_set: true,
            allocation_end: Some(1),
            keeps_data: true,
            first_launch_ms: Some(7),
            faults_injected: [1].into(),
            pairs: None,
        };
        let changes = StateChanges { progress: Some(progress), ..StateChanges::default() };
        journal.append(number as u64 + 1, changes).unwrap();
    }
    let contents = STATE_FILES.map(|path| fs::read(path(base.path())).unwrap());
    vec![contents.join(&BEFORE_JOURNAL), contents[0].clone()]
}

const JOB_STATE: &str = r#"{"version":0,"job":"heat","orchestrator":7,"stage":{"stage":"running"},
    "allocation":{"manager":"local","job_id":"17","user":"user1","nodes":["node0","node1"],
        "details":{"workspace":"/w","roots":"/w/nodes","end":null}},
    "agents":{"job":"heat","job_id":"17","user":"user1","prefixes":[],"control_base":"/tmp","control_bytes":null,
        "cache_bases":{"/tmp":null},"disk_timeout":30000},
    "running":{},"halt_set":false,"crc":true,"copy_bytes":1048576,"requests_at_once":64,"snapshot":null,
    "keeps_data":false,"first_launch_ms":null,"finished":0}"#;

/// The key of the job, without which the state of a running job is not read.
const JOB_SECRET: &str = r#"{"job_id":"17","trust":{"certificate":"AAAA","key":"AAAA","token":"AAAA"}}"#;

const STATE_FILES: [fn(&Path) -> PathBuf; 2] = [state_file::path, journal::file::path];

fn make_directory(path: &Path) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
}

/// The state of a prefix directory with these files.
fn read_state(bytes: &[u8]) -> Result<Option<JobState>, StateError> {
    let base = fast_directory();
    make_directory(StateDirectory::below(base.path()).path());
    let mut parts = bytes.splitn(2, |byte| *byte == BEFORE_JOURNAL);
    for path in STATE_FILES.map(|path| path(base.path())) {
        fs::write(&path, parts.next().unwrap_or_default()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    let secret = StateDirectory::below(base.path()).join(state_file::SECRET_FILE);
    fs::write(&secret, JOB_SECRET).unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    JobState::read(base.path())
}

fn job_state(bytes: &[u8]) {
    if let Ok(Some(state)) = read_state(bytes) {
        let _ = (state.allocation.is_available(), state.allocation.place());
    }
}

fn drain_records() -> Vec<Vec<u8>> {
    texts(&[r#"{"job_id":"17","checkpoint":3,"directory":"scr.2026-11-20_10:21:52.17.3"}"#])
}

fn drain_record(bytes: &[u8]) {
    let base = fast_directory();
    let prefix = PosixStore::open(base.path()).unwrap();
    let path = base.path().join(".holdfast/drain.json");
    fs::create_dir(base.path().join(".holdfast")).unwrap();
    fs::write(path, bytes).unwrap();
    if let Ok(Some(directory)) = drain::resume::directory_of(&prefix, "17", CheckpointId(3)) {
        assert_eq!(prefix.path_of(&directory).parent(), Some(base.path()));
    }
}

fn node_messages() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"directories":["/p"],"programs":["/bin/app"],"mark":["x","y"]}"#,
        r#"{"version":"0.1.0","wire":3,"clock":1795177430000,"host_name":"n1","boot_id":"b","problems":[["/p","no"]]}"#,
        r#"{"words":["a","b"],"directory":"/","environment":{"A":"b"}}"#,
    ])
}

fn node_message(bytes: &[u8]) {
    let _ = serde_json::from_slice::<SurveyRequest>(bytes);
    let _ = serde_json::from_slice::<HostFacts>(bytes);
    let _ = serde_json::from_slice::<NodeCommand>(bytes);
    let _ = serde_json::from_slice::<AgentReady>(bytes);
    let _ = serde_json::from_slice::<AgentStart>(bytes);
}

fn fti_configs() -> Vec<Vec<u8>> {
    texts(&["[basic]\nhead = 0\nnode_size = 2\n[advanced]\ngroup_size = 4\n"])
}

fn fti_config(bytes: &[u8]) {
    cli::fti::check_config(&String::from_utf8_lossy(bytes));
}

#[cfg(feature = "ssh")]
fn known_hosts() -> Vec<Vec<u8>> {
    texts(&[
        "n1,n2 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
        "@revoked [n1]:2222 ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAA\n# comment\n",
        "|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAA\n",
        "*.cluster,!bad?.cluster ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAA=\n",
    ])
}

#[cfg(feature = "ssh")]
fn known_host(bytes: &[u8]) {
    use crate::allocation::ssh::known_hosts::{HostKeyCheck, KnownHosts, kind_of};
    let directory = fast_directory();
    let path = directory.path().join("known_hosts");
    fs::write(&path, bytes).unwrap();
    let known = KnownHosts::named(&path).unwrap();
    for (host, port) in [("n1", 22), ("node.cluster", 2222)] {
        let _ = known.kinds(host, port);
        // No file has this key.
        let check = known.check(host, port, b"\0\0\0\x0bssh-ed25519?");
        assert!(!matches!(check, HostKeyCheck::Known | HostKeyCheck::Revoked(_)), "{check:?}");
    }
    let _ = kind_of(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_the_corpus_are_what_the_program_writes() {
        let states = job_states().iter().map(|state| read_state(state).unwrap().unwrap()).collect::<Vec<_>>();
        assert_eq!((states[0].entries, states[1].entries), (2, 0));
        let environment = Environment::empty(registry::registered());
        let specs = job_specs();
        let valid = specs
            .iter()
            .filter(|spec| JobSpec::parse(std::str::from_utf8(spec).unwrap(), "job.yaml", &environment).is_ok());
        assert!(valid.count() >= 4);
    }

    holdfast_testkit::mutation_test!(TARGETS, 6_000);
}
