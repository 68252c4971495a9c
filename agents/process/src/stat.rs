//! What `/proc` tells of a process.

use std::fs;

/// The fields of `/proc/<pid>/stat` and `/proc/<pid>/task/<tid>/stat` that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// At most 15 bytes.
    pub name: String,
    /// `R`, `S`, `D`, `T` and so on.
    pub state: u8,
    pub parent: i32,
    /// Its process group; 0 if the group is not of the namespace of this process.
    pub group: i32,
    /// In clock ticks since the machine was booted.
    pub start_time: u64,
}

impl ProcessStat {
    /// `None` if there is no such process.
    pub fn of(pid: u32) -> Option<ProcessStat> {
        parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// True if it has ended. It remains until its parent has waited for it.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// The threads of a process.
pub fn threads(pid: u32) -> Vec<ProcessStat> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| parse(&fs::read(task.path().join("stat")).ok()?)).collect()
}

/// The numbers of all processes.
pub fn all_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parse(stat: &[u8]) -> Option<ProcessStat> {
    // The name is in brackets, and may contain any character.
    let begin = stat.iter().position(|byte| *byte == b'(')? + 1;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let name = String::from_utf8_lossy(stat.get(begin..end)?).into_owned();
    // The first field behind the name is field 3.
    let mut fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(ProcessStat { name, state, parent, group, start_time: fields.nth(22 - 6)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_may_contain_brackets_and_blanks() {
        let fields = "7 (a) R (b) S 1 7 7 0 -1 4194560 10 20 30 40 50 60 70 80 20 0 1 0 4711 90\n";
        let expected = ProcessStat { name: "a) R (b".to_owned(), state: b'S', parent: 1, group: 7, start_time: 4711 };
        assert_eq!(parse(fields.as_bytes()), Some(expected));
        assert_eq!(parse(b"7 (a) S 1"), None);
    }

    #[test]
    fn a_process_has_one_start_time_until_it_was_waited_for() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let stat = || ProcessStat::of(child.id());
        let started = stat().unwrap();
        assert!(started.start_time >= ProcessStat::of(1).unwrap().start_time);
        assert_eq!(started.parent.unsigned_abs(), std::process::id());
        assert!(!started.has_ended());
        let pid = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ProcessStat::of(pid), None);
    }
}
