//! What the commands of resource managers write, the environments of their jobs, and the tasks of PBS, as targets of
//! mutation tests and fuzzing.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use holdfast_core::hostlist::MAX_HOSTS;
use holdfast_model::NodeName;
use holdfast_testkit::fast_directory;
use holdfast_testkit::fuzz::{FuzzTarget, texts};

use super::agents::shared_step::StepMessages;
use super::pbs::task_file::{Stream, TOKEN, Task, authenticated};
use super::{flux, pbs, slurm};
use crate::spec::nodes_in_file;
use crate::spec::quantity::format_time;

/// The nodes of the job for which an output is read.
fn nodes() -> Vec<NodeName> {
    ["n1", "n2", "n3"].map(NodeName::from).to_vec()
}

/// The nodes that are reported down are nodes of the job, each once.
fn assert_known(down: &[(NodeName, String)]) {
    let nodes = nodes();
    assert!(down.len() <= nodes.len() && down.iter().all(|(node, _)| nodes.contains(node)), "{down:?}");
}

/// The variables in lines `NAME=VALUE`.
fn variable_in(text: &str) -> impl Fn(&str) -> Option<String> {
    |name| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

pub(crate) const SQUEUE: FuzzTarget = FuzzTarget {
    name: "squeue",
    corpus: || texts(&["RUNNING|user1|1795177430\n", "PENDING|user1|NONE", "slurm_load_jobs error: Invalid job id"]),
    words: &["|", "NONE", "RUNNING"],
    check: |bytes| {
        if let Some(job) = slurm::query::read_job(&String::from_utf8_lossy(bytes)) {
            let _ = job.end.map(format_time);
        }
    },
};

pub(crate) const SINFO: FuzzTarget = FuzzTarget {
    name: "sinfo",
    corpus: || texts(&["n[2-3]|down*|Not responding\nn2|down|again\nn9|down|other\nn1|fail|\nbroken\n"]),
    words: &["|", "down*", "n[", "]", "-"],
    check: |bytes| assert_known(&slurm::query::read_down(&String::from_utf8_lossy(bytes), &nodes())),
};

pub(crate) const SLURM_ENVIRONMENT: FuzzTarget = FuzzTarget {
    name: "slurm_environment",
    corpus: || texts(&["SLURM_JOB_ID=17\nSLURM_JOB_NODELIST=n[1-2,4]\nSLURM_JOB_USER=user1\nSLURMD_NODENAME=n1\n"]),
    words: &["SLURM_", "\n", "["],
    check: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(environment) = slurm::environment::Environment::read(variable_in(&text)) {
            assert!(environment.nodes.len() <= MAX_HOSTS);
        }
    },
};

pub(crate) const QSTAT: FuzzTarget = FuzzTarget {
    name: "qstat",
    corpus: || {
        texts(&[
            include_str!("../../../tests/fixtures/pbs/qstat.json"),
            include_str!("../../../tests/fixtures/pbs/pbsnodes-lost.json"),
        ])
    },
    words: &["\"", "{", ":", "+("],
    check: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Some(job) = pbs::query::read_job(&text) {
            let _ = job.end.map(format_time);
        }
        let nodes = ["n1.site", "n2.site", "n3.site"].map(NodeName::from);
        let down = pbs::query::read_down(&text, &nodes).unwrap_or_default();
        assert!(down.len() <= nodes.len(), "{down:?}");
    },
};

pub(crate) const PBS_MESSAGES: FuzzTarget = FuzzTarget {
    name: "pbs_messages",
    corpus: || {
        texts(&["pbs_tmrsh: tm_poll(spawn): host \"n3\" err not connected (17002)\npbs-task: ended: n3: exit 255\n"])
    },
    words: &["pbs-task: ended: ", "pbs_tmrsh: ", "not connected", "\"n3\"", ": ", "\n"],
    check: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let messages = pbs::agents::read_messages(&text);
        assert_bounded(&messages, &text);
        let lost = nodes().iter().filter(|node| pbs::agents::is_lost(&text, node)).count();
        assert!(lost == 0 || text.contains('"'));
    },
};

/// Not more nodes than lines.
fn assert_bounded(messages: &StepMessages, text: &str) {
    assert!(messages.ended.len() <= text.lines().count(), "{messages:?}");
}

pub(crate) const PBS_TASK: FuzzTarget = FuzzTarget {
    name: "pbs_task",
    corpus: || texts(&[AGENT_TASK, COMMAND_TASK, &"0123456789abcdef".repeat(4)]),
    words: &["\"secret\":", "\"words\":[", "\"surroundings\":{", "\"environment\":{", "null", "\\u0000"],
    check: pbs_task,
};

const AGENT_TASK: &str = r#"{"secret":"00ff","words":["/opt/holdfast","agent"],"surroundings":null,"input":"{}\n"}"#;
const COMMAND_TASK: &str = r#"{"secret":"00ff","words":["sh","-c","true"],"surroundings":{"directory":"/home/user1",
    "environment":{"PATH":"/usr/bin"}},"input":""}"#;

/// The file of a task, and what arrives on a connection to its starter.
fn pbs_task(bytes: &[u8]) {
    if let Ok(task) = Task::parse(bytes) {
        let tokens: Vec<String> = task.streams().iter().map(|stream| task.token("n1", *stream)).collect();
        assert!(tokens.iter().all(|token| token.len() == TOKEN));
        assert!(tokens.len() == 1 || tokens[0] != tokens[1]);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let connected = runtime.block_on(authenticated(bytes, Duration::from_secs(60)));
    let Some((token, rest)) = connected else {
        let is_text = bytes.get(..TOKEN).is_some_and(|token| std::str::from_utf8(token).is_ok());
        return assert!(!is_text, "a token was not read");
    };
    assert_eq!(rest.len(), bytes.len() - TOKEN, "what follows is output");
    let known = Task::parse(COMMAND_TASK.as_bytes()).unwrap();
    let expected = BTreeMap::from([Stream::Output, Stream::Errors].map(|stream| (known.token("n1", stream), stream)));
    assert!(!expected.contains_key(&token), "without the secret");
}

pub(crate) const PBS_ENVIRONMENT: FuzzTarget = FuzzTarget {
    name: "pbs_environment",
    corpus: || {
        let variables = "PBS_JOBID=17[4].head\nPBS_NODEFILE=nodes\nPBS_NODENUM=1\nUSER=user1\nPBS_JOBCOOKIE=2093C6\n";
        texts(&[&format!("{variables}\0n1.site\nn1.site\nn2.site\n")])
    },
    words: &["PBS_", "\n", "PBS_NODENUM=", "[", "]"],
    check: |bytes| {
        let mut parts = bytes.splitn(2, |byte| *byte == 0);
        let variables = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
        let directory = fast_directory();
        let file = directory.path().join("nodes");
        fs::write(&file, parts.next().unwrap_or_default()).unwrap();
        let nodes = |_: &Path| nodes_in_file(&file);
        if let Ok(environment) = pbs::environment::Environment::read(variable_in(&variables), nodes) {
            let mut sorted = environment.nodes.clone();
            sorted.sort();
            sorted.dedup();
            assert!(!sorted.is_empty() && sorted.len() == environment.nodes.len(), "{environment:?}");
        }
    },
};

pub(crate) const FLUX_RESOURCES: FuzzTarget = FuzzTarget {
    name: "flux_resources",
    corpus: || {
        texts(&[
            r#"{"version":1,"execution":{"R_lite":[],"starttime":1796036946.299,"expiration":1796037246.0}}"#,
            r#"{"version":1,"execution":{"starttime":0.0,"expiration":0.0,"nodelist":["n1"]}}"#,
            "avail|n[1-2]|\navail*|n3|\ndrained|n1|bad disk\ndraining|n2|later\nbroken\ndrained|n9|other\n",
            "tcp://[::ffff:10.0.0.1]:45379\n",
        ])
    },
    words: &["|", "drained", "avail*", "n[", "]", "-", "\"expiration\":", "\"version\":1", "1e300", "tcp://"],
    check: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Some(term) = flux::query::read_term(&text) {
            let _ = term.end.map(format_time);
        }
        assert_known(&flux::query::read_down(&text, &nodes()));
        let _ = flux::query::read_endpoint(&text);
    },
};

pub(crate) const FLUX_MESSAGES: FuzzTarget = FuzzTarget {
    name: "flux_messages",
    corpus: || {
        texts(&[
            "flux-exec: Error: rank 2: holdfast: No route to host\n1: Exit 3\n0,2-3: Killed\n",
            "flux-exec: One or more invalid --ranks specified: 9\n[0-1]: Exit 1\n",
            // Many ranks in few bytes.
            "0-1048575,0-1048575,0-1048575,0-1048575: Killed\n",
        ])
    },
    words: &["flux-exec: ", "flux-exec: Error: rank ", ": Exit ", "0-1048575", ",", "-", "[", "]", "\n"],
    check: |bytes| {
        let nodes = nodes();
        let messages = flux::exec::read_messages(&nodes, &String::from_utf8_lossy(bytes));
        assert!(messages.ended.len() <= nodes.len(), "{messages:?}");
    },
};

pub(crate) const FLUX_ENVIRONMENT: FuzzTarget = FuzzTarget {
    name: "flux_environment",
    corpus: || texts(&["FLUX_ENCLOSING_ID=ƒA1b2\nFLUX_URI=local:///tmp/flux/local-0\nUSER=user1\n"]),
    words: &["FLUX_", "ƒ", "FLUX_JOB_ID=", "\n"],
    check: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(environment) = flux::environment::Environment::read(variable_in(&text)) {
            assert!(!environment.job_id.is_empty() && !environment.user.is_empty());
        }
    },
};
