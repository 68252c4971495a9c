//! `holdfast node`: the host's end of a connection.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A connection that takes nothing for longer than the pipe of a rank that has ended may be empty.
#[test]
fn slow_connection_loses_no_output_of_rank_that_has_ended() {
    let mut node = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["node", "ranks"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Fills the pipe to us, the piece that is being sent, and the pipe of the rank: the rank ends at once.
    let script = "head -c 160000 /dev/zero";
    let command = serde_json::json!({"words": ["sh", "-c", script], "directory": "/", "environment": {}});
    let mut input = node.stdin.take().unwrap();
    writeln!(input, "{}", serde_json::json!({"command": command, "ranks": {"0": {}}})).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let mut output = Vec::new();
    node.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    drop(input);
    node.wait().unwrap();
    let bytes = output.iter().filter(|byte| **byte == 0).count();
    let messages: Vec<u8> = output.into_iter().filter(|byte| *byte != 0).collect();
    let messages = String::from_utf8_lossy(&messages);
    assert!(bytes == 160_000 && messages.ends_with("{\"kind\":\"done\"}\n"), "{bytes} bytes, {messages}");
}
