//! Host lists: `node[1-4,7]`, expanded, compressed, subtracted, intersected.
//!
//! As the original's `scr_hostlist` (`docs/scr-files.md` §15), with what it lost kept: zero padding on every number
//! (`node[08-11]` is node08, node09, node10, node11, and node002 is not node2), several lists in one (`a[1-2],b3`),
//! text before digits that is not letters (`rack1-node[1-4]`), text behind them (`node[1-2].cluster`), and names
//! without a number.

use std::collections::{BTreeMap, HashSet};

use holdfast_model::NodeName;

/// Most names that one list may expand to: a hundred times the largest machine this is measured for.
pub const MAX_HOSTS: usize = 1_000_000;

/// Longest name, in bytes: DNS permits 253. Without a limit, a list of a few kilobytes could expand to gigabytes.
const MAX_NAME: usize = 255;

/// Digits of a number in a list; more would not fit, and no machine has such names.
const MAX_DIGITS: usize = 18;

/// What is wrong with a host list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostlistError {
    /// A bracket without its other half, or one inside of another.
    #[error("the host list {list:?} has a bracket without its other half; write it as node[1-4,7]")]
    Brackets { list: String },
    /// Something other than numbers and ranges between brackets.
    #[error("the host list {list:?} has {found:?} where a number or a range like 3-7 belongs")]
    Range { list: String, found: String },
    /// A character that no host name has.
    #[error("the host list {list:?} has the character {found:?}, which no host name has; separate names by commas")]
    Character { list: String, found: char },
    /// More names than any machine has nodes.
    #[error("the host list {list:?} expands to more than {MAX_HOSTS} hosts; check its ranges")]
    TooMany { list: String },
    #[error("the host list {list:?} has a name of more than {MAX_NAME} bytes; separate names by commas")]
    TooLong { list: String },
    /// There is no such name in the list.
    #[error("host index ({index}) is out of range for a list of {count} hosts; the first is 1, the last -1")]
    Index { index: i64, count: usize },
}

/// The names that a list expands to, in its order, duplicates kept. A range whose end is below its start is empty.
///
/// # Errors
/// When the list is misspelt, or expands to more than [`MAX_HOSTS`].
pub fn expand(list: &str) -> Result<Vec<NodeName>, HostlistError> {
    let mut names = Vec::new();
    for item in items(list)? {
        expand_item(item, list, &mut names)?;
    }
    Ok(names)
}

/// The shortest list of these names: names that differ in their number only are put together in the order of the
/// numbers, always with brackets (`atlas[3]`), duplicates kept; the groups are in the order of their first names.
pub fn compress<'a>(names: impl IntoIterator<Item = &'a NodeName>) -> String {
    let mut groups: Vec<((&str, &str), Vec<Number<'_>>)> = Vec::new();
    let mut position: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for name in names {
        let (around, number) = match split_name(name.as_str()) {
            Some((prefix, number, suffix)) => ((prefix, suffix), Some(number)),
            None => ((name.as_str(), ""), None),
        };
        match number {
            Some(number) => {
                let at = *position.entry(around).or_insert_with(|| {
                    groups.push((around, Vec::new()));
                    groups.len() - 1
                });
                groups[at].1.push(number);
            }
            // Without a number there is nothing to put together; the empty group is the name itself.
            None => groups.push((around, Vec::new())),
        }
    }
    let texts = groups.into_iter().map(|((prefix, suffix), numbers)| match numbers.is_empty() {
        true => prefix.to_owned(),
        false => format!("{prefix}[{}]{suffix}", ranges(numbers)),
    });
    texts.collect::<Vec<_>>().join(",")
}

/// The names of the first list that are not in the second, in the order of the first, without duplicates.
pub fn subtract(from: &[NodeName], what: &[NodeName]) -> Vec<NodeName> {
    // What is taken away counts as seen.
    let mut seen: HashSet<&NodeName> = what.iter().collect();
    from.iter().filter(|name| seen.insert(name)).cloned().collect()
}

/// The names of the first list that are in the second too, in the order of the first, without duplicates.
pub fn intersect(left: &[NodeName], right: &[NodeName]) -> Vec<NodeName> {
    let mut wanted: HashSet<&NodeName> = right.iter().collect();
    left.iter().filter(|name| wanted.remove(name)).cloned().collect()
}

/// The name at a place in a list: 1 is the first, -1 the last.
///
/// # Errors
/// When the list has no such place.
pub fn nth(names: &[NodeName], index: i64) -> Result<&NodeName, HostlistError> {
    let from_end = usize::try_from(index.unsigned_abs()).ok().and_then(|back| names.len().checked_sub(back));
    let at = match index {
        1.. => usize::try_from(index - 1).ok(),
        0 => None,
        _ => from_end,
    };
    at.and_then(|at| names.get(at)).ok_or(HostlistError::Index { index, count: names.len() })
}

/// The comma-separated parts of a list; commas in brackets do not separate.
fn items(list: &str) -> Result<Vec<&str>, HostlistError> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match character {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return Err(HostlistError::Brackets { list: list.to_owned() }),
            ',' if !inside => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(HostlistError::Brackets { list: list.to_owned() });
    }
    items.push(&list[start..]);
    Ok(items.into_iter().map(str::trim).filter(|item| !item.is_empty()).collect())
}

/// Appends the names of one item: text and brackets in turn, every combination, the last bracket fastest. Nothing is
/// expanded before number and length of the names are known.
fn expand_item(item: &str, list: &str, names: &mut Vec<NodeName>) -> Result<(), HostlistError> {
    let room = MAX_HOSTS - names.len();
    let mut parts = Vec::new();
    let mut rest = item;
    let mut count = 1_usize;
    // Of the longest name.
    let mut width = 0;
    while let Some((text, bracket)) = rest.split_once('[') {
        let Some((inside, behind)) = bracket.split_once(']') else {
            return Err(HostlistError::Brackets { list: list.to_owned() });
        };
        check_text(text, list)?;
        let numbers = numbers(inside, list, room)?;
        width += text.len() + numbers.iter().map(String::len).max().unwrap_or(0);
        count = count.saturating_mul(numbers.len());
        parts.push((text, numbers));
        if width > MAX_NAME {
            break;
        }
        rest = behind;
    }
    check_text(rest, list)?;
    if width + rest.len() > MAX_NAME {
        return Err(HostlistError::TooLong { list: list.to_owned() });
    }
    if count > room {
        return Err(HostlistError::TooMany { list: list.to_owned() });
    }
    names.extend((0..count).map(|combination| {
        let mut name = String::with_capacity(width + rest.len());
        let mut block = count;
        for (text, numbers) in &parts {
            block /= numbers.len();
            name.push_str(text);
            name.push_str(&numbers[combination / block % numbers.len()]);
        }
        name.push_str(rest);
        NodeName::new(name)
    }));
    Ok(())
}

fn check_text(text: &str, list: &str) -> Result<(), HostlistError> {
    match text.chars().find(|character| character.is_whitespace() || character.is_control() || *character == '/') {
        Some(found) => Err(HostlistError::Character { list: list.to_owned(), found }),
        None => Ok(()),
    }
}

/// The numbers between two brackets, each as it is spelt in a name.
fn numbers(inside: &str, list: &str, room: usize) -> Result<Vec<String>, HostlistError> {
    let mut numbers = Vec::new();
    for part in inside.split(',').map(str::trim) {
        let wrong = || HostlistError::Range { list: list.to_owned(), found: part.to_owned() };
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let low = Number::parse(low).ok_or_else(wrong)?;
        let high = Number::parse(high).ok_or_else(wrong)?;
        if high.value < low.value {
            continue;
        }
        // Counted before one is made.
        if high.value - low.value >= (room - numbers.len().min(room)) as u64 {
            return Err(HostlistError::TooMany { list: list.to_owned() });
        }
        numbers.extend((low.value..=high.value).map(|value| low.spelt_alike(value)));
    }
    Ok(numbers)
}

/// A number with its spelling: 8, 08 and 008 are three names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Number<'a> {
    value: u64,
    text: &'a str,
}

impl<'a> Number<'a> {
    fn parse(text: &'a str) -> Option<Number<'a>> {
        let digits = (1..=MAX_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then_some(())?;
        Some(Number { value: text.parse().ok()?, text })
    }

    /// Another number in the spelling of this one: as wide, if this one is padded.
    fn spelt_alike(&self, value: u64) -> String {
        let width = if self.text.starts_with('0') { self.text.len() } else { 0 };
        format!("{value:0width$}")
    }
}

/// Text, number, text of a name: the number is what ends the name's part before the first dot. `None` for a name that
/// does not end so, or that would not be read back the same.
fn split_name(name: &str) -> Option<(&str, Number<'_>, &str)> {
    let short = name.find('.').map_or(name, |dot| &name[..dot]);
    let prefix = short.trim_end_matches(|character: char| character.is_ascii_digit());
    let number = Number::parse(&short[prefix.len()..])?;
    // An address is no name with a number.
    prefix.contains(|character: char| character.is_alphabetic()).then_some((prefix, number, &name[short.len()..]))
}

/// `1-3,7` of numbers in any order. A range holds numbers that are spelt alike and follow each other.
fn ranges(mut numbers: Vec<Number<'_>>) -> String {
    numbers.sort_unstable();
    let mut ranges: Vec<(Number<'_>, Number<'_>)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((low, high)) if number.value == high.value + 1 && low.spelt_alike(number.value) == number.text => {
                *high = number;
            }
            _ => ranges.push((number, number)),
        }
    }
    let text = |(low, high): &(Number<'_>, Number<'_>)| match low == high {
        true => low.text.to_owned(),
        false => format!("{}-{}", low.text, high.text),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}
