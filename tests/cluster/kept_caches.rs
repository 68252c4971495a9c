//! Several runs in one allocation: another run of a job continues in the caches that the one before it left; other jobs
//! do not use its directories.

use holdfast_testkit::cluster::{Cluster, Job, NODES, heat, heat_of, until};

/// Ends after the fourth checkpoint; continues when the file `go-on` exists.
pub const HOLDS: [&str; 6] = ["--steps", "120", "--hold-at", "40", "--until", "go-on"];

/// The source of the checkpoint of each restart of the job in `heat-run`.
fn sources(job: &Job<'_>) -> Vec<String> {
    let events = job.events().into_iter().filter(|event| event["event"] == "restarted");
    let sources = events.filter_map(|event| event["source"].as_str().map(str::to_owned));
    sources.filter(|source| source != "fresh").collect()
}

/// The first of two runs is halted at its fourth checkpoint.
fn halt_first_run(job: &Job<'_>) {
    job.wait_for("checkpoint 4 protected");
    job.run("holdfast halt set --immediate job.yaml");
    job.wait_for("first ended with 75");
}

/// Writes the spec of another job, `other.yaml`: the same with another prefix directory.
const OTHER: &str = "sed 's/heat-run/other-run/; s/job: heat/job: other/' job.yaml >other.yaml";
const TWICE: &str = "holdfast run job.yaml; echo \"first ended with $?\"; touch go-on; holdfast run job.yaml";

#[test(crate::cluster)]
fn second_run_in_the_batch_script_restarts_from_the_caches(cluster: &Cluster) {
    let job = cluster.submit("second-run", &heat_of(&HOLDS, ""), "--nodes=5 --time=10", TWICE);
    halt_first_run(&job);
    let output = job.finish_well();
    assert!(output.contains("continues after generation 1 with the caches"), "{output}");
    assert_eq!(sources(&job), ["cache"], "{output}");
    assert!(output.contains("generation 2 launched") && !output.contains("is down"), "{output}");
    job.assert_nothing_left_on(&NODES);
}

#[test(crate::cluster)]
fn second_run_restores_checkpoint_of_node_lost_between_the_runs(cluster: &Cluster) {
    let work = "holdfast run job.yaml; echo \"first ended with $?\"; touch go-on
until [ -e lost ]; do sleep 0.1; done; holdfast run job.yaml";
    let job = cluster.submit("second-run-lost", &heat_of(&HOLDS, ""), "--nodes=6 --time=10", work);
    halt_first_run(&job);
    cluster.docker("kill", "n3");
    job.run("touch lost");
    let output = job.finish_well();
    assert!(output.contains("n3 is down") && output.contains("rebuilt: rank"), "{output}");
    assert_eq!(sources(&job), ["rebuilt"], "{output}");
}

#[test(crate::cluster)]
fn two_jobs_with_own_prefixes_run_one_after_the_other_in_an_allocation(cluster: &Cluster) {
    let work = format!(
        "{OTHER}
holdfast run job.yaml; echo \"first ended with $?\"; holdfast run other.yaml"
    );
    let job = cluster.submit("two-prefixes", &heat(""), "--nodes=5 --time=10", &work);
    let output = job.finish_well();
    assert!(output.contains("first ended with 0"), "{output}");
    assert!(!output.contains("is down") && sources(&job).is_empty(), "{output}");
    let events = job.run("cat other-run/.holdfast/events.jsonl");
    assert!(!events.contains("\"source\":\"cache\"") && events.contains("\"finished\""), "{events}");
}

#[test(crate::cluster)]
fn job_with_another_prefix_removes_drained_caches_of_the_job_before_it(cluster: &Cluster) {
    let work = format!(
        "{OTHER}
holdfast run job.yaml; echo \"first ended with $?\"; touch go-on
holdfast run other.yaml; echo \"other ended with $?\"
holdfast run job.yaml"
    );
    let job = cluster.submit("other-prefix", &heat_of(&HOLDS, ""), "--nodes=5 --time=10", &work);
    halt_first_run(&job);
    let output = job.finish_well();
    assert!(output.contains("other ended with 0") && !output.contains("is down"), "{output}");
    // The first job finds nothing of its own in the caches, and nothing of the other one.
    assert_eq!(sources(&job), ["fetched"], "{output}");
    assert!(!job.run("cat other-run/.holdfast/events.jsonl").contains("\"source\":\"cache\""), "{output}");
}

#[test(crate::cluster)]
fn job_is_refused_while_another_one_runs_in_the_same_directories(cluster: &Cluster) {
    let work = format!(
        "{OTHER}
holdfast run job.yaml & first=$!
until [ -e other ]; do sleep 0.1; done
holdfast run other.yaml; echo \"other ended with $?\"
touch go-on; wait $first"
    );
    let job = cluster.submit("simultaneous", &heat_of(&HOLDS, ""), "--nodes=5 --time=10", &work);
    job.wait_for("checkpoint 4 protected");
    job.run("touch other");
    let output = job.finish_well();
    assert!(output.contains("other ended with 69"), "{output}");
    assert!(output.contains("which runs in the same allocation; run one job after the other"), "{output}");
    let lost = |event: &&serde_json::Value| event["event"] == "agent_lost";
    assert_eq!(job.events().iter().filter(lost).count(), 0, "{output}");
}

#[test(crate::cluster)]
fn jobs_with_directories_of_their_own_run_at_the_same_time_in_an_allocation(cluster: &Cluster) {
    let own = "checkpoint: {control: {base: /tmp/one}, cache: [{base: /dev/shm/one, keep: 1}]}";
    let work = format!(
        "{OTHER}
sed -i 's#/one#/two#g; s/go-on/go-other/' other.yaml
holdfast run other.yaml & other=$!
holdfast run job.yaml; echo \"first ended with $?\"
wait $other"
    );
    let job = cluster.submit("own-directories", &heat_of(&HOLDS, own), "--nodes=5 --time=10", &work);
    until("both jobs", || {
        let other = job.run("cat other-run/.holdfast/events.jsonl");
        other.matches("\"checkpoint_complete\"").count() >= 4 && job.output().contains("checkpoint 4 complete")
    });
    // The end of one job leaves processes and files of the other one alone.
    job.run("touch go-on");
    job.wait_for("first ended with 0");
    job.run("touch go-other");
    let output = job.finish_well();
    assert!(!output.contains("generation 2") && !output.contains("is down"), "{output}");
    assert_eq!(output.matches("(exit code 0): the job is finished").count(), 2, "{output}");
}
