//! Standard output and standard error block for some time, as files on a file system that hangs: the job
//! continues, and the lines follow in order.

use std::fs;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

use crate::job::Job;
use crate::world::{Running, World};

/// A full pipe.
struct FullPipe {
    reader: PipeReader,
    writer: PipeWriter,
    filled: usize,
}

impl FullPipe {
    fn new() -> Self {
        let (reader, mut writer) = pipe().unwrap();
        let flags = fcntl_getfl(&writer).unwrap();
        fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
        let mut filled = 0;
        while let Ok(written) = writer.write(&[b' '; 4096]) {
            filled += written;
        }
        fcntl_setfl(&writer, flags).unwrap();
        FullPipe { reader, writer, filled }
    }

    /// The bytes written to it, until all writers have closed it.
    fn read(self) -> String {
        let FullPipe { mut reader, writer, filled } = self;
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text.split_off(filled)
    }
}

/// The output of the rank in a generation.
fn printed(world: &World, generation: u64, rank: u32) -> String {
    let directory = world.prefix().join(format!(".holdfast/generations/{generation}"));
    fs::read_to_string(directory.join(format!("rank_{rank}.out"))).unwrap()
}

#[track_caller]
fn assert_in_order(text: &str, parts: &[&str]) {
    let mut from = 0;
    for part in parts {
        let found =
            text[from..].find(part).unwrap_or_else(|| panic!("{part:?} is missing, or out of order, in:\n{text}"));
        from += found + part.len();
    }
}

#[test]
fn job_relaunches_and_finishes_while_output_is_blocked(world: &World) {
    let job = Job::new(world, 1).holding_after(4).faults("{node: 1, after_checkpoint: 4}");
    let pipe = FullPipe::new();
    let (out, err) = (pipe.writer.try_clone().unwrap(), pipe.writer.try_clone().unwrap());
    let mut running = world.start_to(job.command_line(), out, err);
    running.sees_event("node_down");
    job.go_on();
    running.sees_event("finished");
    world.wait("the end of everything but the orchestrator", || (world.processes().len() == 1).then_some(()));
    assert!(running.is_running(), "it ended before its output was accepted");
    let text = pipe.read();
    running.ends_with(0);
    job.assert_result();
    let first = printed(world, 1, 0);
    let second = printed(world, 2, 0);
    let expected: Vec<&str> = first.lines().chain(second.lines()).collect();
    assert!(expected.len() > 2, "{expected:?}");
    assert_in_order(&text, &expected);
    assert_in_order(
        &text,
        &["generation 1 launched", "node1 is down", "generation 2 launched", "the job is finished", "exit code 0"],
    );
}

#[test(unchecked)]
fn blocked_output_does_not_delay_ranks_and_loses_no_line(world: &World) {
    let spec = format!(
        "job: much\nprefix: {:?}\nallocation: {{manager: local, nodes: 1}}\n\
         run: {{nodes: 1, ranks_per_node: 1, command: [seq, \"4000000\"]}}\n",
        world.prefix()
    );
    let spec = world.write("much.yaml", &spec);
    let pipe = FullPipe::new();
    let (out, err) = (pipe.writer.try_clone().unwrap(), pipe.writer.try_clone().unwrap());
    let mut running = world.start_to(world.holdfast(["run".as_ref(), spec.as_os_str()]), out, err);
    running.sees_event("finished");
    assert!(running.is_running(), "it ended before its output was accepted");
    let text = pipe.read();
    running.ends_with(0);
    let numbers: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(numbers.iter().copied().eq(1..=4_000_000), "{} numbers", numbers.len());
}

/// A signal ends the wait for the output.
#[track_caller]
fn ends_after_signal(world: &World, mut running: Running<'_>) {
    world.wait("the end after a signal", || {
        running.signal(Signal::INT);
        (!running.is_running()).then_some(())
    });
    running.ends_with(0);
}

#[test(unchecked)]
fn signal_ends_wait_for_blocked_output(world: &World) {
    let job = Job::new(world, 0);
    let pipe = FullPipe::new();
    let (out, err) = (pipe.writer.try_clone().unwrap(), pipe.writer.try_clone().unwrap());
    let mut running = world.start_to(job.command_line(), out, err);
    running.sees_event("finished");
    ends_after_signal(world, running);
    job.assert_result();
}

#[test(unchecked)]
fn closed_output_pipe_keeps_exit_code(world: &World) {
    let job = Job::new(world, 0).heat("--exit-at 7 --exit-code 5").top("relaunch: {attempts: 0}");
    let FullPipe { reader, writer, .. } = FullPipe::new();
    drop(reader);
    let running = world.start_to(job.command_line(), writer.try_clone().unwrap(), writer);
    running.ends_with(90);
}

/// A job whose ranks, one on each node, run a shell command.
fn shell_job(world: &World, ranks: u32, command: &str) -> std::process::Command {
    let spec = format!(
        "job: much\nprefix: {:?}\nallocation: {{manager: local, nodes: {ranks}}}\n\
         run: {{nodes: {ranks}, ranks_per_node: 1, command: [/bin/sh, -c, {command:?}]}}\n",
        world.prefix()
    );
    let spec = world.write("much.yaml", &spec);
    world.holdfast(["run".as_ref(), spec.as_os_str()])
}

#[test(unchecked)]
fn all_output_of_fast_ranks_is_shown_in_the_order_of_each_rank(world: &World) {
    let lines = 2_000_000;
    let command = format!("seq -f \"rank $HOLDFAST_RANK line %.0f\" 1 {lines}");
    let text = world.run(shell_job(world, 2, &command)).with_code(0).out;
    for rank in 0..2 {
        let label = format!("rank {rank} line ");
        let numbers = text.lines().filter_map(|line| line.strip_prefix(&label)?.parse::<u32>().ok());
        assert!(numbers.eq(1..=lines), "rank {rank}");
    }
}

#[test(unchecked)]
fn line_of_a_megabyte_is_shown_as_one_line(world: &World) {
    let text = world.run(shell_job(world, 1, "head -c 1000000 /dev/zero | tr '\\0' x; echo .")).with_code(0).out;
    assert!(text.lines().any(|line| line.len() == 1_000_001), "{} lines", text.lines().count());
}

#[test(unchecked)]
fn end_reports_how_much_output_is_only_in_the_files(world: &World) {
    let pipe = FullPipe::new();
    let mut reader = pipe.reader.try_clone().unwrap();
    let err = fs::File::create(world.path("errors")).unwrap();
    let command = shell_job(world, 1, "seq 1 4000000");
    let mut running = world.start_to(command, pipe.writer.try_clone().unwrap(), err);
    // A part is read, and then nothing more.
    let mut read = vec![0; 3_000_001];
    reader.read_exact(&mut read).unwrap();
    running.sees_event("finished");
    ends_after_signal(world, running);
    let generation = world.prefix().join(".holdfast/generations/1");
    drop(pipe.writer);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    let shown = read.len() + rest.len() - pipe.filled;
    let missing = fs::metadata(generation.join("rank_0.out")).unwrap().len() - shown as u64;
    assert!(missing > 0);
    let errors = fs::read_to_string(world.path("errors")).unwrap();
    let expected =
        format!("{missing} bytes of the ranks' output are not shown; all of it is in {}", generation.display());
    assert!(errors.contains(&expected), "{expected:?} is not in:\n{errors}");
    let event = world.the("output_not_shown");
    assert_eq!((&event["bytes"], &event["directories"][0]), (&missing.into(), &generation.to_str().unwrap().into()));
}

#[test(unchecked)]
fn reports_blocked_standard_output_on_standard_error(world: &World) {
    let job = Job::new(world, 0);
    let pipe = FullPipe::new();
    let err = fs::File::create(world.path("errors")).unwrap();
    let mut running = world.start_to(job.command_line(), pipe.writer.try_clone().unwrap(), err);
    running.sees_event("finished");
    let errors = || fs::read_to_string(world.path("errors")).unwrap();
    world.wait("lines on the other stream", || errors().contains("the job is finished").then_some(()));
    ends_after_signal(world, running);
    assert!(errors().contains("cannot write to standard output"), "{}", errors());
}
