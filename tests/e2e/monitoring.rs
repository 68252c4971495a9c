//! What watches a job from outside: Prometheus, with the alert rules and the dashboard that are shipped.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::harness::ignore;
use serde_json::Value;

use crate::job::Job;
use crate::metrics::free_address;
use crate::world::World;

/// Time limit for what Prometheus is expected to know: it scrapes every second.
const WITHIN: Duration = Duration::from_secs(60);

/// A file that is shipped for monitoring.
fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/monitoring").join(name)
}

/// Runs promtool with this as its standard input; returns its exit code and what it printed.
fn promtool(arguments: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut started) = command.spawn() else { ignore("promtool is not installed") };
    started.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ran = started.wait_with_output().unwrap();
    let printed = [ran.stdout, ran.stderr].concat();
    (ran.status.code(), String::from_utf8_lossy(&printed).into_owned())
}

/// A Prometheus that scrapes one address, with the rules that are shipped. It is ended when it is dropped.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Prometheus {
    fn scraping(world: &World, target: SocketAddr, token_file: &Path) -> Prometheus {
        let (address, home) = (free_address(), world.path("prometheus"));
        fs::create_dir_all(&home).unwrap();
        let config = home.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{:?}]\nscrape_configs:\n\
             - job_name: holdfast\n  authorization: {{credentials_file: {token_file:?}}}\n  static_configs: \
             [{{targets: ['{target}']}}]\n",
            shipped("alerts.yaml")
        );
        fs::write(&config, text).unwrap();
        let log = fs::File::create(home.join("log")).unwrap();
        let started = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", home.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log)
            .spawn();
        let Ok(process) = started else { ignore("prometheus is not installed") };
        Prometheus { process, address }
    }

    /// The data of an answer of its API; `None` while it does not answer.
    fn api(&self, path: &str) -> Option<Value> {
        let mut connection = TcpStream::connect(self.address).ok()?;
        // With this version the body is not in chunks.
        write!(connection, "GET {path} HTTP/1.0\r\nHost: here\r\n\r\n").ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        if !head.contains(" 200 ") {
            return None;
        }
        let answer: Value = serde_json::from_str(body).unwrap();
        Some(answer["data"].clone())
    }

    /// The series that an expression selects.
    fn query(&self, expression: &str) -> Option<Vec<Value>> {
        let encoded = expression.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        Some(self.api(&format!("/api/v1/query?query={encoded}"))?["result"].as_array().unwrap().clone())
    }

    /// Waits until this has a value.
    fn until<T>(&self, what: &str, mut known: impl FnMut(&Self) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(value) = known(self) {
                return value;
            }
            assert!(begun.elapsed() < WITHIN, "Prometheus does not know {what}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The names of the alerts that fire.
    fn alerts(&self) -> Option<Vec<String>> {
        let data = self.api("/api/v1/alerts")?;
        let firing = data["alerts"].as_array().unwrap().iter().filter(|alert| alert["state"] == "firing");
        Some(firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test(unchecked)]
fn figures_follow_the_conventions_that_promtool_checks(world: &World) {
    let job = Job::new(world, 1).faults("{node: 1, after_checkpoint: 3}").top("metrics: {file: heat.prom}");
    job.run(0);
    let text = fs::read_to_string(job.spec().parent().unwrap().join("heat.prom")).unwrap();
    assert_eq!(promtool(&["check", "metrics"], &text), (Some(0), String::new()), "{text}");
}

#[test(unchecked)]
fn prometheus_scrapes_a_job_and_knows_every_figure_of_the_dashboard(world: &World) {
    let (target, token) = (free_address(), world.path("token"));
    fs::write(&token, "secret\n").unwrap();
    let section = format!("metrics: {{listen: \"{target}\", token_file: {}}}", token.display());
    let job = Job::new(world, 1).holding_at(30).faults("{node: 1, after_checkpoint: 3}").top(&section);
    let job = job.flush("{every: 2}");
    let running = job.start_to("generation_launched", "generation", 2);
    let prometheus = Prometheus::scraping(world, target, &token);
    let second = |known: Option<Vec<Value>>| known.filter(|series| series.iter().any(|one| one["value"][1] == "2"));
    prometheus.until("the second generation", |server| second(server.query("holdfast_generation")));
    let dashboard: Value = serde_json::from_slice(&fs::read(shipped("dashboard.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let expressions: Vec<String> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap().replace("$instance", ".*"))
        .collect();
    assert!(expressions.len() >= panels.len());
    for expression in &expressions {
        // A rate needs two scrapes.
        prometheus.until(expression, |server| server.query(expression).filter(|series| !series.is_empty()));
    }
    let firing = |server: &Prometheus| server.alerts().filter(|alerts| !alerts.is_empty());
    assert_eq!(prometheus.until("an alert", firing), ["HoldfastNodesDown"]);
    drop(prometheus);
    job.goes_on_to_its_end(running);
}

#[test(unchecked)]
fn alert_rules_fire_when_something_is_wrong_and_not_before(world: &World) {
    // A job that checkpoints every ten minutes until minute 60, loses a node in minute 30 and is relaunched often
    // from minute 200 on; its drain is incomplete at the end. Another one never has a protected checkpoint.
    let text = format!(
        r#"
rule_files: [{:?}]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - series: 'holdfast_job_running{{instance="a", job="h"}}'
    values: '1x400'
  - series: 'holdfast_job_start_time_seconds{{instance="a", job="h"}}'
    values: '0x400'
  - series: 'holdfast_checkpoints_total{{instance="a", job="h", result="complete"}}'
    values: '0x9 1x9 2x9 3x9 4x9 5x9 6x340'
  - series: 'holdfast_newest_checkpoint_time_seconds{{instance="a", job="h", state="protected"}}'
    values: '_x10 600x9 1200x9 1800x9 2400x9 3000x9 3600x340'
  - series: 'holdfast_nodes{{instance="a", job="h", state="down"}}'
    values: '0x29 1x370'
  - series: 'holdfast_relaunches_total{{instance="a", job="h"}}'
    values: '0x29 1x170 2x5 3x5 4x5 5x180'
  - series: 'holdfast_drain_incomplete{{instance="a", job="h"}}'
    values: '0x390 1x9'
  - series: 'holdfast_job_running{{instance="b", job="h"}}'
    values: '1x400'
  - series: 'holdfast_job_start_time_seconds{{instance="b", job="h"}}'
    values: '0x400'
  promql_expr_test:
{}
"#,
        shipped("alerts.yaml"),
        [
            (20, ""),
            (31, "HoldfastNodesDown"),
            // The other job has run for an hour.
            (62, "HoldfastNodesDown HoldfastNothingProtected"),
            // Six checkpoints within 100 minutes: every 17, and the newest is 40 minutes old.
            (100, "HoldfastNodesDown HoldfastNothingProtected HoldfastProtectionIsOld"),
            (190, "HoldfastNoProgress HoldfastNodesDown HoldfastNothingProtected HoldfastProtectionIsOld"),
            (
                225,
                "HoldfastNoProgress HoldfastNodesDown HoldfastNothingProtected HoldfastProtectionIsOld \
                 HoldfastRelaunchesOften",
            ),
            (
                395,
                "HoldfastDrainIncomplete HoldfastNoProgress HoldfastNodesDown HoldfastNothingProtected \
                 HoldfastProtectionIsOld",
            ),
        ]
        .map(|(minute, names)| {
            let samples =
                names.split_whitespace().map(|name| format!("{{labels: '{{alertname=\"{name}\"}}', value: 1}}"));
            format!(
                "  - expr: count by (alertname) (ALERTS{{alertstate=\"firing\"}})\n    eval_time: {minute}m\n    \
                 exp_samples: [{}]\n",
                samples.collect::<Vec<_>>().join(", ")
            )
        })
        .concat()
    );
    let tests = world.path("tests.yaml");
    fs::write(&tests, text).unwrap();
    let (code, printed) = promtool(&["test", "rules", tests.to_str().unwrap()], "");
    assert_eq!(code, Some(0), "{printed}");
}
