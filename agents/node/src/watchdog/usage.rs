//! What processes use, from `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// The kernel tells processor time in hundredths of a second, on every architecture that we run on (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// What a rank's processes have used so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, that of children that have ended included.
    pub cpu: Duration,
    /// Bytes read and written, from and to anything.
    pub bytes: u64,
    /// One of them is running, or would be if a processor were free.
    pub runs: bool,
    /// Which processes.
    pub processes: BTreeSet<u32>,
}

/// What these processes, as far as they live, have used.
pub fn of(pids: impl IntoIterator<Item = u32>) -> Usage {
    let mut usage = Usage::default();
    for pid in pids {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let Some((state, ticks)) = stat.as_deref().and_then(parse_stat).filter(|(state, _)| !"ZX".contains(*state))
        else {
            continue;
        };
        usage.processes.insert(pid);
        usage.runs |= state == 'R';
        usage.cpu = usage.cpu.saturating_add(TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX)));
        // Not readable for a program that hides from debuggers.
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        usage.bytes = usage.bytes.saturating_add(parse_io(&io));
    }
    usage
}

/// State, and user and system time with that of ended children, in ticks (proc(5): fields 3 and 14 to 17).
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    // The name, field 2, may hold anything, also brackets and blanks.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let ticks = fields.skip(10).take(4).map(|field| field.parse::<u64>().ok());
    let ticks: Option<Vec<u64>> = ticks.collect();
    let ticks = ticks.filter(|ticks| ticks.len() == 4)?;
    Some((state, ticks.into_iter().fold(0, u64::saturating_add)))
}

fn parse_io(io: &str) -> u64 {
    let value = |line: &str| {
        let bytes = line.strip_prefix("rchar:").or_else(|| line.strip_prefix("wchar:"))?;
        bytes.trim().parse::<u64>().ok()
    };
    io.lines().filter_map(value).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_and_state_are_found_behind_the_strangest_name() {
        let stat = "4711 (a) b ( 7) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1 0";
        assert_eq!(parse_stat(stat), Some(('S', 127)));
        assert_eq!(parse_stat("4711 (a) R 1 2 3"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn bytes_are_those_of_all_calls() {
        assert_eq!(parse_io("rchar: 10\nwchar: 5\nsyscr: 900\nread_bytes: 4096\n"), 15);
        assert_eq!(parse_io(""), 0);
    }

    #[test]
    fn a_process_that_lives_is_counted_and_one_that_ended_is_not() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let own = std::process::id();
        let both = of([own, child.id()]);
        assert_eq!(both.processes, [own, child.id()].into());
        assert!(both.runs || both.bytes > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(of([child.id()]), Usage::default());
    }
}
