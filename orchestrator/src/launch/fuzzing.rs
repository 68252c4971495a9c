//! What launchers and step supervisors write, as targets of mutation tests and fuzzing.

#![allow(clippy::unwrap_used)]

use std::fs;

use holdfast_model::{Rank, RankEnd};
use holdfast_testkit::fuzz::{FuzzTarget, texts};

use super::command::fixtures::Watched;
use super::command::rank_ends::LauncherMessages;
use super::follow::Follower;
use super::mpirun::messages::MpirunMessages;
use super::srun::messages::SrunMessages;
use super::{StepEvent, StepPlan, mpirun::Dialect};

pub(crate) const LAUNCHER_OUTPUT: FuzzTarget = FuzzTarget {
    name: "launcher_output",
    corpus: || {
        texts(&[
            "srun: error: n[1-2]: tasks 0-1,3: Exited with exit code 3\nsrun: error: n1: task 2: Killed\n",
            "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n0: text\n 2: one: two\n",
            "srun: error: Unable to create step for job 1: Requested nodes are busy\n",
            "2: MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n2: with errorcode 5.\n",
            "[0] @holdfast-rank 0 begins\n[2] @holdfast-rank 2 code 3\n[1] @holdfast-rank 1 signal 15\n",
            "[0] @holdfast-rank 0 refused cannot run ./app on n3: No such file\n",
            "[1] Abort(5) on node 1 (rank 1 in comm 0): application called\n",
            "[1,2]<stderr>:[n5] [1,2]<stderr>:[ 0] [prterun-n1-77@1,1]<stdout>: text\n",
        ])
    },
    words: &[
        "srun: error: ",
        ": tasks ",
        "Exited with exit code ",
        "@holdfast-rank ",
        "signal ",
        "code ",
        "[1,0]<stderr>:",
        "Abort(",
        "rank ",
        "\n",
    ],
    check: launcher_output,
};

fn launcher_output(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    watch(SrunMessages::default(), &text);
    for dialect in [Dialect::Hydra, Dialect::OpenMpi, Dialect::Prrte] {
        watch(MpirunMessages::new(dialect), &text);
    }
}

fn watch(messages: impl LauncherMessages, text: &str) {
    // Has the ranks 0, 1 and 2.
    let mut watched = Watched::new(messages, text);
    let mut events = watched.poll();
    let _ = watched.retry(RankEnd::Code(1));
    events.extend(watched.finish(RankEnd::Code(1)));
    let mut ended = Vec::new();
    for event in &events {
        if let StepEvent::Exited { rank, .. } | StepEvent::Refused { rank, .. } = event {
            assert!(*rank < Rank(3), "{event:?}: the command has no such rank");
        }
        if let StepEvent::Exited { rank, .. } = event {
            assert!(!ended.contains(rank), "{rank} ended twice: {events:?}");
            ended.push(*rank);
        }
    }
}

pub(crate) const STEP_EVENTS: FuzzTarget = FuzzTarget {
    name: "step_events",
    corpus: || {
        texts(&[
            "{\"event\":\"supervisor\",\"pid\":7}\n{\"event\":\"exited\",\"rank\":1,\"end\":{\"code\":3}}\n",
            "{\"event\":\"refused\",\"rank\":0,\"reason\":\"no program\"}\n{\"event\":\"done\"}\n",
        ])
    },
    words: &["{\"event\":\"exited\"", "\"end\":{\"signal\":9}", "\n"],
    check: |bytes| {
        let directory = holdfast_testkit::fast_directory();
        fs::write(StepPlan::events_in(directory.path()), bytes).unwrap();
        let mut follower = Follower::new(directory.path(), false);
        let _ = follower.poll().and_then(|_| follower.poll());
    },
};

pub(crate) const STEP_PLAN: FuzzTarget = FuzzTarget {
    name: "step_plan",
    corpus: || texts(&[PLAN]),
    words: &["\"version\":", "[", "{"],
    check: |bytes| {
        let directory = holdfast_testkit::fast_directory();
        let path = StepPlan::path_in(directory.path());
        fs::write(&path, bytes).unwrap();
        if let Ok(plan) = StepPlan::read(&path) {
            let _ = super::registry::supervision(&plan);
        }
    },
};

const PLAN: &str = r#"{"version":5,"launcher":"local","job_id":"17","generation":1,"program":"/bin/app",
    "working_directory":"/","details":{}}"#;
