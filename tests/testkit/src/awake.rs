//! Which copies of a pair were awake when, by their own records: each step of a copy that is awake is a line with the
//! time and the step, in a file of that copy. The clock is the same for all processes of a kernel, also in containers
//! and other namespaces.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Longer than two lines.
const TAIL: u64 = 256;

/// The time since the machine started.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// The name of the file of a copy that is woken now.
pub fn file_name(side: &str) -> String {
    format!("{side}.{}", now().as_nanos())
}

/// The line of a step that is done now.
pub fn line(step: i64) -> String {
    format!("{} {step}\n", now().as_nanos())
}

/// What one copy recorded: first and last time with their steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awake {
    pub side: String,
    pub begin: (Duration, i64),
    pub end: (Duration, i64),
}

/// The copies that were awake, in the order in which they were woken. `lines`: names of files and complete lines.
pub fn copies<'a>(lines: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Awake> {
    let mut found: BTreeMap<u128, Awake> = BTreeMap::new();
    for (file, line) in lines {
        let Some((side, begun)) = file.split_once('.') else { continue };
        let Some((at, step)) = line.split_once(' ') else { continue };
        let (Ok(begun), Ok(at), Ok(step)) = (begun.parse(), at.parse(), step.parse()) else { continue };
        let at = (Duration::from_nanos(at), step);
        let copy = Awake { side: side.to_owned(), begin: at, end: at };
        found.entry(begun).or_insert(copy).end = at;
    }
    found.into_values().collect()
}

/// The copies whose files are in a directory.
///
/// # Panics
/// When it cannot be read.
pub fn copies_in(directory: &Path) -> Vec<Awake> {
    let mut ends = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        // Only the first and the last step: a long test records many.
        let mut file = File::open(entry.path()).unwrap();
        let mut first = Vec::new();
        file.by_ref().take(TAIL).read_to_end(&mut first).unwrap();
        file.seek(SeekFrom::Start(file.metadata().unwrap().len().saturating_sub(TAIL))).unwrap();
        let mut last = Vec::new();
        file.take(TAIL).read_to_end(&mut last).unwrap();
        let [first, last] = [first, last].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        // The last line of a copy that is awake may be incomplete.
        let Some((first, _)) = first.split_once('\n') else { continue };
        let Some((last, _)) = last.rsplit_once('\n') else { continue };
        let last = last.rsplit_once('\n').map_or(last, |(_, last)| last);
        ends.push((name, first.to_owned(), last.to_owned()));
    }
    copies(ends.iter().flat_map(|(name, first, last)| [(&**name, &**first), (&**name, &**last)]))
}

/// The longest time for which two of the copies were awake together.
pub fn longest_together(copies: &[Awake]) -> Duration {
    let together =
        |one: &Awake, other: &Awake| one.end.0.min(other.end.0).saturating_sub(one.begin.0.max(other.begin.0));
    let pairs = copies.iter().enumerate().flat_map(|(at, one)| copies[..at].iter().map(move |other| (one, other)));
    pairs.map(|(one, other)| together(one, other)).max().unwrap_or_default()
}

/// The longest part of a period in which no copy was awake.
pub fn longest_without(copies: &[Awake], period: &Range<Duration>) -> Range<Duration> {
    let mut within: Vec<_> = copies.iter().map(|copy| copy.begin.0..copy.end.0).collect();
    within.push(period.end..period.end);
    within.sort_by_key(|awake| awake.start);
    let (mut longest, mut since) = (period.start..period.start, period.start);
    for awake in within {
        let until = awake.start.min(period.end);
        if until.saturating_sub(since) > longest.end - longest.start {
            longest = since..until;
        }
        since = since.max(awake.end);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn copy(side: &str, begin: u64, end: u64) -> Awake {
        Awake { side: side.to_owned(), begin: (at(begin), 1), end: (at(end), 9) }
    }

    #[test]
    fn first_and_last_complete_lines_are_read_in_the_order_of_the_copies() {
        let directory = tempfile::tempdir().unwrap();
        let many: String = (2..500).map(|step| format!("{}000000000 {step}\n", step + 60)).collect();
        fs::write(directory.path().join("replica.70"), format!("61000000000 1\n{many}61")).unwrap();
        fs::write(directory.path().join("main.5"), "5000000000 7\n").unwrap();
        fs::write(directory.path().join("main.700"), "5000").unwrap();
        fs::write(directory.path().join("finish"), "").unwrap();
        let replica = Awake { side: "replica".to_owned(), begin: (at(61), 1), end: (at(559), 499) };
        let main = Awake { side: "main".to_owned(), begin: (at(5), 7), end: (at(5), 7) };
        assert_eq!(copies_in(directory.path()), [main, replica]);
    }

    #[test]
    fn copies_are_together_while_both_are_awake() {
        let copies = [copy("main", 1, 5), copy("replica", 4, 9), copy("main", 10, 12)];
        assert_eq!(longest_together(&copies), at(1));
        assert_eq!(longest_together(&copies[1..]), at(0));
        assert_eq!(longest_together(&[copy("main", 1, 9), copy("replica", 2, 4)]), at(2));
    }

    #[test]
    fn time_without_a_copy_counts_within_the_period_only() {
        let copies = [copy("main", 10, 20), copy("replica", 12, 15), copy("main", 23, 30)];
        assert_eq!(longest_without(&copies, &(at(11)..at(30))), at(20)..at(23));
        assert_eq!(longest_without(&copies, &(at(2)..at(30))), at(2)..at(10));
        assert_eq!(longest_without(&copies, &(at(12)..at(19))), at(12)..at(12));
        assert_eq!(longest_without(&copies, &(at(29)..at(36))), at(30)..at(36));
        assert_eq!(longest_without(&copies, &(at(40)..at(44))), at(40)..at(44));
        assert_eq!(longest_without(&[], &(at(1)..at(4))), at(1)..at(4));
    }
}
