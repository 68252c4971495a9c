//! `notify`: what the recipients get, compared with the events of the job.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::job::Job;
use crate::world::World;

/// Time limit for a request.
const WITHIN: Duration = Duration::from_secs(60);

/// A request: its lines, and its body.
pub struct Request {
    pub head: Vec<String>,
    pub body: Value,
}

impl Request {
    fn read(from: &mut impl Read) -> Self {
        let mut from = BufReader::new(from);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            from.read_line(&mut line).unwrap();
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_lowercase()),
            }
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap();
        let mut body = vec![0; length];
        from.read_exact(&mut body).unwrap();
        Request { head, body: serde_json::from_slice(&body).unwrap() }
    }
}

/// Listens, with TLS if there is a configuration, and answers the requests with these status codes, then with 204.
pub fn receiver(tls: Option<Arc<ServerConfig>>, codes: &'static [u16]) -> (SocketAddr, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (requests, received) = mpsc::channel();
    std::thread::spawn(move || {
        let mut codes = codes.iter();
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let code = codes.next().unwrap_or(&204);
            let answer = format!("HTTP/1.1 {code} Status\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let request = match &tls {
                None => {
                    let request = Request::read(&mut connection);
                    connection.write_all(answer.as_bytes()).unwrap();
                    request
                }
                Some(config) => {
                    let session = ServerConnection::new(Arc::clone(config)).unwrap();
                    let mut stream = StreamOwned::new(session, connection);
                    let request = Request::read(&mut stream);
                    stream.write_all(answer.as_bytes()).unwrap();
                    stream.conn.send_close_notify();
                    stream.flush().unwrap();
                    request
                }
            };
            if requests.send(request).is_err() {
                return;
            }
        }
    });
    (address, received)
}

/// The event of the log with this name, as a recipient gets it.
fn logged(world: &World, wanted: impl Fn(&Value) -> bool) -> Value {
    let found = world.events().into_iter().find(wanted).unwrap();
    // The log and the recipients each have their own time.
    without_time(found)
}

fn without_time(mut event: Value) -> Value {
    event.as_object_mut().unwrap().remove("time");
    event
}

#[test(unchecked)]
fn webhook_gets_the_chosen_events_with_the_secret_and_again_after_an_error(world: &World) {
    let (address, requests) = receiver(None, &[503, 429]);
    world.write("secret", "a-secret\n");
    let entry =
        format!("{{webhook: \"http://{address}/hook?a=b\", secret_file: secret, events: [node_down, finished]}}");
    let job = Job::new(world, 1).faults("{node: 1, after_checkpoint: 2}").top(&format!("notify: [{entry}]"));
    job.run(0);
    let next = || requests.recv_timeout(WITHIN).unwrap();
    let [refused, later, down, finished] = [next(), next(), next(), next()];
    assert_eq!((&refused.body, &later.body), (&down.body, &down.body));
    for request in [&refused, &later, &down, &finished] {
        assert_eq!(request.head[0], "post /hook?a=b http/1.1");
        for header in ["authorization: bearer a-secret", "content-type: application/json"] {
            assert!(request.head.iter().any(|line| line == header), "{:?}", request.head);
        }
        assert_eq!(request.body["version"], 1);
        assert_eq!(request.body["prefix"], json!(world.prefix()));
    }
    assert_eq!(down.body["notification"], "node_down");
    assert!(down.body["text"].as_str().unwrap().starts_with("node1 is down: "), "{}", down.body);
    let event = without_time(down.body["event"].clone());
    assert_eq!(event, logged(world, |event| event["event"] == "node_down"));
    assert_eq!(finished.body["notification"], "finished");
    assert_eq!(finished.body["event"]["exit_code"], 0);
    assert!(requests.try_recv().is_err());
}

#[test(unchecked)]
fn webhook_with_a_certificate_of_the_system_is_trusted_and_another_one_is_not(world: &World) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (address, requests) = receiver(Some(Arc::new(config)), &[]);
    world.write("authority.pem", &made.cert.pem());
    let entry = format!("{{webhook: \"https://localhost:{}\", events: [finished]}}", address.port());
    let job = Job::new(world, 0).top(&format!("notify: [{entry}]"));
    world.run(job.command_line().env("SSL_CERT_FILE", world.path("authority.pem"))).with_code(0);
    assert_eq!(requests.recv_timeout(WITHIN).unwrap().body["event"]["exit_code"], 0);
}

#[test(unchecked)]
fn command_gets_the_document_and_a_recipient_that_is_not_reached_changes_nothing_else(world: &World) {
    let script = "cat >>all; echo >>all; echo \"$HOLDFAST_NOTIFICATION: $HOLDFAST_TEXT\" >>words";
    let fails = "{command: [sh, -c, \"echo no mail today >&2; exit 3\"], events: [finished]}";
    let hangs = "{command: [sleep, \"1000\"], events: [finished], time_limit: 1s}";
    let entries = format!("[{{command: [sh, -c, {script:?}]}}, {fails}, {hangs}]");
    let job = Job::new(world, 1).faults("{node: 1, after_checkpoint: 2}").top(&format!("notify: {entries}"));
    let job = job.holding_after(3);
    let ran = job.finishes(job.start_to_event("failure_explained"));
    let all = fs::read_to_string(world.path("all")).unwrap();
    let documents: Vec<Value> = all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = documents.iter().map(|document| document["notification"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["node_down", "relaunched", "failure_explained", "stopping", "finished"]);
    let words = fs::read_to_string(world.path("words")).unwrap();
    let expected = documents.iter().map(|document| {
        format!("{}: {}\n", document["notification"].as_str().unwrap(), document["text"].as_str().unwrap())
    });
    assert_eq!(words, expected.collect::<String>());
    assert!(documents.iter().all(|document| !document["text"].as_str().unwrap().is_empty()), "{documents:?}");
    let missing = ["notify: an event could not be delivered", "recipient=sh", "it failed: no mail today"];
    ran.prints(&missing);
    ran.prints(&["recipient=sleep", "did not answer within 1 s"]);
}

#[test(unchecked)]
fn incomplete_drain_is_reported(world: &World) {
    let command = "notify: [{command: [sh, -c, \"cat >>all\"], events: [drain_incomplete]}]";
    let job = Job::new(world, 0).redundancy("[{scheme: local}]").faults("{node: 1, after_checkpoint: 8}");
    let mut job = job.top("relaunch: {attempts: 1}").top(command).heat("--hold-at 40 --until never");
    job.steps = 41;
    let ran = job.start().end();
    assert!(!world.all("node_down").is_empty(), "{}", ran.err);
    let document: Value = serde_json::from_str(&fs::read_to_string(world.path("all")).unwrap()).unwrap();
    assert_eq!(document["notification"], "drain_incomplete");
    let text = document["text"].as_str().unwrap();
    assert!(text.starts_with("checkpoint 8 could not be completed in the prefix directory: "), "{text}");
    assert_eq!(document["event"]["event"], "drained");
}

#[test(unchecked)]
fn entries_that_cannot_work_are_refused_with_the_place(world: &World) {
    world.write("secret", "x");
    for (entry, parts) in [
        ("{events: [finished]}", ["notify[0].webhook", "nothing receives the events"]),
        ("{webhook: \"https://a.b\", command: [x]}", ["notify[0].command", "exclude each other"]),
        ("{webhook: \"ftp://a.b\"}", ["notify[0].webhook", "only `https` and `http`"]),
        ("{webhook: nowhere}", ["notify[0].webhook", "this is no address"]),
        ("{webhook: \"http://a.b\", secret_file: secret}", ["notify[0].webhook", "without encryption"]),
        ("{command: [x], secret_file: secret}", ["notify[0].secret_file", "no effect without `webhook`"]),
        ("{command: []}", ["notify[0].command", "the command is empty"]),
        ("{command: [x], events: [finnished]}", ["notify[0].events[0]", "did you mean `finished`?"]),
        ("{command: [x], events: []}", ["notify[0].events", "the list is empty"]),
    ] {
        Job::new(world, 0).top(&format!("notify: [{entry}]")).command(&["check"], 78).prints(&parts);
    }
    let job = Job::new(world, 0).top("notify: [{webhook: \"http://localhost:1\", secret_file: missing}]");
    job.run(69).prints(&["missing (notify.secret_file)"]);
    assert!(world.all("generation_launched").is_empty());
}
