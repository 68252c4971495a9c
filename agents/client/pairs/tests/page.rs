//! The Rust program of the page on pairs.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_shm::{Layout, Registry, Side};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(120);

#[test]
fn rust_program_of_the_page_is_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../../docs/pairs.md")).unwrap();
    let (_, rest) = page.split_once("```rust\n").unwrap();
    let example = fs::read_to_string(root.join("examples/steps.rs")).unwrap();
    assert_eq!(rest.split_once("```").unwrap().0, example);
}

fn start(registry: &Registry, directory: &Path, side: Side) -> Child {
    // Built by `cargo test`, beside the tests.
    let program = std::env::current_exe().unwrap().parent().unwrap().with_file_name("examples").join("steps");
    registry.expect(0, side, 1);
    Command::new(program)
        .env("HOLDFAST_PAIRS", directory.join("registry"))
        .env("HOLDFAST_PAIR_NUMBER", "0")
        .env("HOLDFAST_PAIR_INDEX", "0")
        .env("HOLDFAST_PAIR_SIDE", side.to_string())
        .env("HOLDFAST_PAIR_INCARNATION", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn printed(output: Output) -> String {
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_replica_of_the_example_goes_on_for_a_main_that_was_killed() {
    let directory = TempDir::new().unwrap();
    let layout = Layout { pairs: 1, checkpoint_bytes: vec![400_000], ring: 10 };
    let registry = Registry::create(&directory.path().join("registry"), &layout, "job").unwrap();
    let mut main = start(&registry, directory.path(), Side::Main);
    let replica = start(&registry, directory.path(), Side::Replica);
    registry.wake(0, Side::Main, 1);
    let begun = Instant::now();
    while registry.checkpoint_counter(0) < 20 {
        assert!(begun.elapsed() < LONG && main.try_wait().unwrap().is_none(), "no checkpoint");
        thread::sleep(Duration::from_millis(2));
    }
    main.kill().unwrap();
    assert_eq!(printed(main.wait_with_output().unwrap()), "from step 0\n");
    registry.wake(0, Side::Replica, 1);
    let output = replica.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let printed = printed(output);
    let (from, sum) = printed.trim_end().strip_prefix("from step ").unwrap().split_once('\n').unwrap();
    assert!((20..300).contains(&from.parse::<u32>().unwrap()), "{printed}");
    assert_eq!(sum, "sum 15000000", "300 in each of 50,000 numbers");
}
