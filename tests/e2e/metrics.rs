//! `metrics:`: the figures in the file and over HTTP, compared with the events of the job.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::job::Job;
use crate::world::World;

/// The value of a figure.
fn figure(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// An address at which nothing listens.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The answer to a request with these further headers, head and body.
fn get(address: SocketAddr, headers: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

#[test(unchecked)]
fn file_has_the_figures_of_the_end(world: &World) {
    let job =
        Job::new(world, 1).holding_after(3).faults("{node: 1, after_checkpoint: 3}").top("metrics: {file: heat.prom}");
    job.goes_on_to_its_end(job.start_to("generation_launched", "generation", 2));
    let text = fs::read_to_string(job.spec().parent().unwrap().join("heat.prom")).unwrap();
    let expected = [
        ("holdfast_job_running", 0.0),
        ("holdfast_job_exit_code", 0.0),
        ("holdfast_nodes{state=\"down\"}", 1.0),
        ("holdfast_relaunches_total", 1.0),
        ("holdfast_failures_total", 1.0),
        ("holdfast_drain_incomplete", 0.0),
        ("holdfast_checkpoints_total{result=\"complete\"}", world.all("checkpoint_complete").len() as f64),
    ];
    for (name, value) in expected {
        assert_eq!(figure(&text, name), Some(value), "{name} in\n{text}");
    }
}

#[test(unchecked)]
fn address_serves_the_figures_to_requests_with_the_token(world: &World) {
    let address = free_address();
    fs::write(world.path("token"), "secret\n").unwrap();
    let token = world.path("token");
    let section = format!("metrics: {{listen: \"{address}\", token_file: {}}}", token.display());
    let job = Job::new(world, 0).holding_after(2).top(&section);
    let running = job.reaches(2);
    let answer = get(address, "Authorization: Bearer secret\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("text/plain; version=0.0.4"), "{answer}");
    assert_eq!(figure(&answer, "holdfast_job_running"), Some(1.0), "{answer}");
    assert!(figure(&answer, "holdfast_newest_checkpoint{state=\"protected\"}") >= Some(1.0), "{answer}");
    for wrong in ["", "Authorization: Bearer secre\r\n", "Authorization: Bearer secreT\r\n"] {
        assert!(get(address, wrong).starts_with("HTTP/1.1 401 "));
    }
    job.goes_on_to_its_end(running);
}

#[test(unchecked)]
fn connection_without_a_request_is_closed_and_others_are_answered_after_it(world: &World) {
    let address = free_address();
    let job = Job::new(world, 0).holding_after(2).top(&format!("metrics: {{listen: \"{address}\"}}"));
    let running = job.reaches(2);
    // More than are served at a time.
    let mut silent: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(get(address, "").starts_with("HTTP/1.1 200 "));
    for connection in &mut silent {
        let mut answer = Vec::new();
        connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        connection.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"");
    }
    job.goes_on_to_its_end(running);
}

#[test(unchecked)]
fn address_in_use_is_refused_before_anything_is_started(world: &World) {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let job = Job::new(world, 0).top(&format!("metrics: {{listen: \"{address}\"}}"));
    job.run(69).prints(&[&format!("cannot listen on {address} (metrics.listen)")]);
    assert!(world.all("generation_launched").is_empty());
}
