//! The stacks of ranks as text: the kernel's data of every thread, and the output of a debugger if there is one on the
//! node. The ranks continue undisturbed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::agent::{StackReply, StackRequest};
use procfs::process::{Process, Task};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::ranks::Ranks;

/// The time limit. A debugger takes long to read a program with many libraries on a busy node.
const LIMIT: Duration = Duration::from_secs(30);
/// The debugger's time limit; its output until then is used.
const DEBUGGER_LIMIT: Duration = Duration::from_secs(28);
/// The most ranks with a debugger, which takes memory and time. Of the others only the kernel's data is shown.
const DEBUGGED_RANKS: usize = 8;
/// The most processes of one rank: for instance a script and its program.
const PROCESSES: usize = 4;
/// The debugger's priority, a `nice` value.
const LOWEST_PRIORITY: i32 = 19;
const THREADS: usize = 64;
/// The most bytes of one file of `/proc`, of a debugger's output, and of its error messages.
const FILE_BYTES: u64 = 4 << 10;
const DEBUGGER_BYTES: u64 = 96 << 10;
const ERROR_BYTES: u64 = 2 << 10;

/// The stacks of the ranks of the run that are on this node and have a process.
pub async fn stacks(ranks: &Arc<Ranks>, node: &NodeName, request: &StackRequest) -> StackReply {
    let generation = request.generation;
    let found = {
        let ranks = ranks.clone();
        tokio::task::spawn_blocking(move || super::processes::processes(&ranks, generation))
    };
    let mut found: BTreeMap<Rank, BTreeSet<u32>> =
        tokio::time::timeout(LIMIT, found).await.ok().and_then(Result::ok).unwrap_or_default();
    let debugger = Debugger::find().map(Arc::new);
    let mut reading = JoinSet::new();
    for (at, rank) in request.ranks.iter().enumerate() {
        let Some(pids) = found.remove(rank) else { continue };
        let mut pids: Vec<u32> = pids.into_iter().collect();
        // The connected process, the rank's own program, before scripts that started it.
        let own = ranks.connected(generation).into_iter().find(|(other, _)| other == rank);
        pids.sort_by_key(|pid| own.is_none_or(|(_, own)| own != *pid));
        pids.truncate(PROCESSES);
        let debugger = if at < DEBUGGED_RANKS { debugger.clone() } else { None };
        let (rank, node) = (*rank, node.to_string());
        reading.spawn(async move { (rank, describe(rank, generation, &node, pids, debugger.as_deref()).await) });
    }
    let mut stacks = BTreeMap::new();
    let all = async {
        while let Some(described) = reading.join_next().await {
            stacks.extend(described.ok());
        }
    };
    let _ = tokio::time::timeout(LIMIT, all).await;
    StackReply { stacks }
}

async fn describe(
    rank: Rank,
    generation: Generation,
    node: &str,
    pids: Vec<u32>,
    debugger: Option<&Debugger>,
) -> String {
    let mut text = format!("rank {rank} of generation {generation} on {node}\n");
    for pid in &pids {
        let pid = *pid;
        let threads = tokio::task::spawn_blocking(move || threads(pid)).await.unwrap_or_default();
        text.push_str(&threads);
    }
    let Some(debugger) = debugger else {
        text.push_str("\nno debugger: gdb, eu-stack or pstack on the node would show the stacks\n");
        return text;
    };
    let mut reading = JoinSet::new();
    for pid in pids {
        let debugger = debugger.clone();
        reading.spawn(async move { (pid, debugger.stacks(pid).await) });
    }
    let stacks: BTreeMap<u32, String> = reading.join_all().await.into_iter().collect();
    for (pid, stack) in stacks {
        // Writing to a string cannot fail.
        let _ = write!(text, "\nprocess {pid}, {}:\n{stack}\n", debugger.name);
    }
    text
}

/// The kernel's data of a process and its threads. Blocks.
fn threads(pid: u32) -> String {
    let Ok(process) = i32::try_from(pid).map_err(drop).and_then(|pid| Process::new(pid).map_err(drop)) else {
        return format!("\nprocess {pid}: it has ended\n");
    };
    let command = process.cmdline().unwrap_or_default().join(" ");
    let mut text = format!("\nprocess {pid}: {command}\n");
    let mut threads: Vec<Task> = process.tasks().into_iter().flatten().flatten().collect();
    threads.sort_unstable_by_key(|thread| thread.tid);
    let left_out = threads.len().saturating_sub(THREADS);
    for thread in threads.into_iter().take(THREADS) {
        let (name, state) =
            thread.status().map_or(("?".to_owned(), "?".to_owned()), |status| (status.name, status.state));
        let _ = writeln!(text, "  thread {} {name}: {state}", thread.tid);
        // Not parsed: shown as the kernel writes it.
        for file in ["wchan", "syscall", "stack"] {
            let content = read(&process, &format!("task/{}/{file}", thread.tid));
            let mut lines = content.lines().filter(|line| !line.is_empty());
            if let Some(first) = lines.next() {
                let _ = writeln!(text, "    {file}: {first}");
            }
            for line in lines {
                let _ = writeln!(text, "      {line}");
            }
        }
    }
    if left_out > 0 {
        let _ = writeln!(text, "  and {left_out} more threads");
    }
    text
}

/// The beginning of a file of the process; empty if it cannot be read.
fn read(process: &Process, file: &str) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = process.open_relative(file) {
        let _ = file.take(FILE_BYTES).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A program that shows the stacks of a process.
#[derive(Clone, Debug)]
struct Debugger {
    name: &'static str,
    program: PathBuf,
}

impl Debugger {
    fn find() -> Option<Debugger> {
        let path = std::env::var_os("PATH")?;
        ["gdb", "eu-stack", "pstack"].into_iter().find_map(|name| {
            let program = std::env::split_paths(&path).map(|directory| directory.join(name)).find(|it| it.is_file())?;
            Some(Debugger { name, program })
        })
    }

    fn command(&self, pid: u32) -> Command {
        let mut command = Command::new(&self.program);
        match self.name {
            // No initialisation files, and no scripts of the inspected program.
            "gdb" => command.args(["-nx", "-batch", "-iex", "set auto-load no", "-p"]).arg(pid.to_string()).args([
                "-ex",
                "set pagination off",
                "-ex",
                "thread apply all bt",
            ]),
            "eu-stack" => command.arg("-p").arg(pid.to_string()),
            _ => command.arg(pid.to_string()),
        };
        // No symbols from a server: that could take too long.
        command.env_remove("DEBUGINFOD_URLS");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        command
    }

    /// The debugger's output for a process, or its error.
    async fn stacks(&self, pid: u32) -> String {
        let mut child = match self.command(pid).spawn() {
            Ok(child) => child,
            Err(error) => return format!("could not be started: {error}"),
        };
        // It reads all symbols of a program, and must not slow down the agents on the machine.
        let own = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(own) = own {
            let _ = rustix::process::setpriority_process(Some(own), LOWEST_PRIORITY);
        }
        let _group = own.map(KilledGroup);
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let (out, err) = (child.stdout.take(), child.stderr.take());
        // The group is killed at the end, and the kernel detaches it from the process.
        let reading = async {
            tokio::join!(
                read_beginning(out, DEBUGGER_BYTES, &mut output),
                read_beginning(err, ERROR_BYTES, &mut errors)
            )
        };
        let late = tokio::time::timeout(DEBUGGER_LIMIT, reading).await.is_err();
        let mut text = String::from_utf8_lossy(&output).into_owned();
        if !text.contains('#') {
            text.push_str(&String::from_utf8_lossy(&errors));
        }
        if late {
            text.push_str("\n(cancelled: it took too long)");
        }
        text
    }
}

/// A process group that is killed when this is dropped. To be dropped before its leader is waited for. gdb starts and
/// stops processes of its own to learn what the kernel can do: without it, they would stay stopped for ever.
struct KilledGroup(Pid);

impl Drop for KilledGroup {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process_group(self.0, Signal::KILL);
    }
}

/// Reads the beginning of a stream.
async fn read_beginning(stream: Option<impl AsyncRead + Unpin>, limit: u64, into: &mut Vec<u8>) {
    if let Some(stream) = stream {
        let _ = stream.take(limit).read_to_end(into).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_stack_of_a_rank_names_it_and_its_threads_and_does_not_disturb_it() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        crate::watchdog::until_asleep(child.id());
        let debugger = Debugger::find();
        let text = describe(Rank(3), Generation(2), "node1", vec![child.id()], debugger.as_ref()).await;
        assert!(text.starts_with("rank 3 of generation 2 on node1\n"), "{text}");
        assert!(text.contains(&format!("process {}: sleep 600", child.id())), "{text}");
        assert!(text.contains(&format!("thread {} sleep: ", child.id())), "{text}");
        assert!(text.contains("debugger") == debugger.is_none(), "{text}");
        assert!(child.try_wait().unwrap().is_none(), "it continues");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn what_a_debugger_has_started_ends_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let (program, started) = (directory.path().join("pstack"), directory.path().join("started"));
        let script = format!("#!/bin/sh\nsleep 600 &\necho $! > {0}.new\nmv {0}.new {0}\nwait\n", started.display());
        // Written by another process: a program that is open for writing here could not be started.
        let write = r#"printf %s "$1" > "$2" && chmod 755 "$2""#;
        let written = std::process::Command::new("sh").args(["-c", write, "sh", &script]).arg(&program).status();
        assert!(written.unwrap().success());
        let debugger = Debugger { name: "pstack", program };
        let reading = tokio::spawn(async move { debugger.stacks(1).await });
        let pid = loop {
            match std::fs::read_to_string(&started) {
                Ok(pid) => break pid.trim().to_owned(),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        assert!(!reading.is_finished());
        reading.abort();
        assert!(reading.await.unwrap_err().is_cancelled());
        // Ended, or not yet waited for by its parent.
        let ended = || std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z"));
        while !ended() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn an_ended_process_is_described_as_such() {
        let text = describe(Rank(0), Generation(1), "node0", vec![u32::MAX], None).await;
        assert!(text.contains("no debugger"), "{text}");
    }
}
