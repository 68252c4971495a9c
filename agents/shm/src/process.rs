//! Which process is meant by a process id.

use std::fs;

/// The time at which the process was started, in clock ticks since the machine was booted (field 22 of
/// `/proc/<pid>/stat`). Together with the process id it names one process, also after the id is used again. `None`:
/// there is no such process.
pub fn start_time(pid: u32) -> Option<u64> {
    // The name of the process is in brackets, and may contain any character.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let behind_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(stat.get(behind_name..)?).ok()?;
    // The first field behind the name is field 3.
    fields.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_has_one_start_time_until_it_is_gone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let started = start_time(child.id()).unwrap();
        assert!(started >= start_time(1).unwrap());
        assert_eq!(start_time(child.id()), Some(started));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(start_time(child.id()), None);
    }
}
