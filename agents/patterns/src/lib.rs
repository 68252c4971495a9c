//! The patterns of the files that `libscr_interpose` takes as checkpoint files: `SCR_CHECKPOINT_PATTERN`, the key
//! `checkpoint.interpose.files`.
//!
//! A list of regular expressions, separated by commas, each for the ranks of a range: `0-N:state_[0-9]+\.ckpt$`.
//! Without a range an expression is for all ranks. A comma inside of brackets does not separate.
//!
//! The job spec is checked with the same code by which the library compares names. A [`FileMatcher`] allocates no
//! memory and takes no lock when it compares a name, so that functions that a signal handler may call can use it.

#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

use regex_automata::Input;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

/// The variable with the patterns of a rank.
pub const CHECKPOINT_PATTERN: &str = "SCR_CHECKPOINT_PATTERN";

/// A larger automaton takes seconds to build, in every process of a rank.
const LARGEST_AUTOMATON_BYTES: usize = 1 << 20;

/// The expressions, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatterns(Vec<FilePattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct FilePattern {
    /// First and last rank; all, if there is no range.
    ranks: Option<(u32, LastRank)>,
    expression: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastRank {
    Number(u32),
    /// `N`: the last one of the run.
    OfRun,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("the list has an empty expression")]
    Empty,
    #[error("`{expression}` is not a regular expression for file names: {reason}")]
    Syntax { expression: String, reason: String },
    #[error("`{0}` is not a range of ranks: the last one is before the first")]
    Range(String),
}

impl FromStr for FilePatterns {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let patterns = split(text).into_iter().map(FilePattern::parse).collect::<Result<Vec<_>, _>>()?;
        for pattern in &patterns {
            compile(&pattern.expression)?;
        }
        Ok(FilePatterns(patterns))
    }
}

impl FilePatterns {
    /// The first rank of this many for which there is no expression.
    pub fn uncovered(&self, ranks: u32) -> Option<u32> {
        (0..ranks).find(|rank| !self.0.iter().any(|pattern| pattern.is_for(*rank, ranks)))
    }

    /// The expressions for a rank.
    ///
    /// # Errors
    /// None, for patterns that were parsed.
    pub fn matcher(&self, rank: u32, ranks: u32) -> Result<FileMatcher, PatternError> {
        let own = self.0.iter().filter(|pattern| pattern.is_for(rank, ranks));
        Ok(FileMatcher(own.map(|pattern| compile(&pattern.expression)).collect::<Result<_, _>>()?))
    }
}

impl FilePattern {
    fn parse(text: &str) -> Result<Self, PatternError> {
        let all = |expression: &str| match expression.is_empty() {
            true => Err(PatternError::Empty),
            false => Ok(FilePattern { ranks: None, expression: expression.to_owned() }),
        };
        let Some((range, expression)) = text.split_once(':') else { return all(text) };
        let Some((first, last)) = range.split_once('-') else { return all(text) };
        let last = if last == "N" { Some(LastRank::OfRun) } else { last.parse().ok().map(LastRank::Number) };
        let (Ok(first), Some(last)) = (first.parse::<u32>(), last) else { return all(text) };
        if matches!(last, LastRank::Number(last) if last < first) {
            return Err(PatternError::Range(range.to_owned()));
        }
        Ok(FilePattern { ranks: Some((first, last)), ..all(expression)? })
    }

    fn is_for(&self, rank: u32, ranks: u32) -> bool {
        match self.ranks {
            None => true,
            Some((first, LastRank::Number(last))) => (first..=last).contains(&rank),
            Some((first, LastRank::OfRun)) => (first..ranks).contains(&rank),
        }
    }
}

/// The parts between commas that are outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut is_escaped) = (Vec::new(), 0, false);
    // The closing brackets that are awaited.
    let mut open: Vec<char> = Vec::new();
    for (at, letter) in text.char_indices() {
        let in_class = open.last() == Some(&']');
        match letter {
            _ if is_escaped => {}
            ',' if open.is_empty() => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            // The first letter of a class is a member of it, also `]`.
            ']' if in_class && !is_class_start(&text[..at]) => drop(open.pop()),
            '[' if !in_class => open.push(']'),
            '(' if !in_class => open.push(')'),
            '{' if !in_class => open.push('}'),
            ')' | '}' if !in_class && open.last() == Some(&letter) => drop(open.pop()),
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    parts.push(&text[start..]);
    parts
}

fn is_class_start(before: &str) -> bool {
    before.ends_with('[') || before.ends_with("[^")
}

/// The automaton of an expression that may match anywhere in a name.
fn compile(expression: &str) -> Result<dense::DFA<Vec<u32>>, PatternError> {
    let limits = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .dfa_size_limit(Some(LARGEST_AUTOMATON_BYTES))
        .determinize_size_limit(Some(LARGEST_AUTOMATON_BYTES));
    dense::Builder::new()
        .configure(limits)
        // Names are bytes, in any encoding.
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(LARGEST_AUTOMATON_BYTES)))
        .build(expression)
        .map_err(|error| PatternError::Syntax { expression: expression.to_owned(), reason: reason_of(&error) })
}

/// The last sentence of an error and its sources: those before it only repeat the expression.
fn reason_of(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    let reason = text.lines().last().unwrap_or_default().trim();
    reason.strip_prefix("error: ").unwrap_or(reason).to_owned()
}

/// The expressions of one rank, ready to compare names.
pub struct FileMatcher(Vec<dense::DFA<Vec<u32>>>);

impl FileMatcher {
    /// The number of the first expression that matches a part of the name as the program passes it. Names that end in
    /// `.scr` are those of SCR's own files, and match nothing. Neither allocates nor locks.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let input = Input::new(name).earliest(true);
        let is_match = |automaton: &dense::DFA<Vec<u32>>| matches!(automaton.try_search_fwd(&input), Ok(Some(_)));
        self.0.iter().position(is_match).filter(|_| !name.ends_with(b".scr"))
    }

    /// The number of expressions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none for the rank.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for FileMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMatcher").field("expressions", &self.0.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(patterns: &str, rank: u32, name: &str) -> Option<usize> {
        patterns.parse::<FilePatterns>().unwrap().matcher(rank, 4).unwrap().find(name.as_bytes())
    }

    #[test]
    fn an_expression_matches_any_part_of_a_name_except_of_scr_files() {
        let pattern = "rank_[0-9]+.ckpt";
        for name in ["rank_0.ckpt", "run/rank_17.ckpt", "/scratch/rank_1.ckpt.tmp", "my_rank_3_ckpt"] {
            assert_eq!(found(pattern, 0, name), Some(0), "{name}");
        }
        for name in ["rank_.ckpt", "rank_0", "rank_0.ckpt.scr", ""] {
            assert_eq!(found(pattern, 0, name), None, "{name}");
        }
        assert_eq!(found("^state\\.[[:digit:]]{1,3}$", 0, "state.12"), Some(0));
        assert_eq!(found("^state\\.[[:digit:]]{1,3}$", 0, "old/state.12"), None);
    }

    #[test]
    fn names_are_bytes() {
        let patterns: FilePatterns = "a.b$".parse().unwrap();
        assert_eq!(patterns.matcher(0, 1).unwrap().find(b"a\xffb"), Some(0));
    }

    #[test]
    fn ranges_of_ranks_select_expressions() {
        let patterns = "0-0:latest$,1-N:part_[0-9],2-3:extra,grid";
        assert_eq!(found(patterns, 0, "latest"), Some(0));
        assert_eq!(found(patterns, 0, "part_0"), None);
        assert_eq!(found(patterns, 0, "grid"), Some(1));
        assert_eq!(found(patterns, 1, "extra"), None);
        assert_eq!(found(patterns, 3, "extra"), Some(1));
        assert_eq!(patterns.parse::<FilePatterns>().unwrap().uncovered(4), None);
        assert_eq!("0-0:a,2-N:b".parse::<FilePatterns>().unwrap().uncovered(4), Some(1));
        // No range: the colon belongs to the expression.
        assert_eq!(found("a-b:c", 2, "a-b:c"), Some(0));
    }

    #[test]
    fn commas_in_brackets_do_not_separate() {
        let expressions = |text: &str| split(text).into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(expressions("a{1,3},b[,]c,(d,e)"), ["a{1,3}", "b[,]c", "(d,e)"]);
        assert_eq!(expressions("[],],x"), ["[],]", "x"]);
        assert_eq!(expressions("[^],],x"), ["[^],]", "x"]);
        assert_eq!(expressions("a\\[,b"), ["a\\[", "b"]);
    }

    #[test]
    fn errors_name_expression_and_reason() {
        let error = |text: &str| text.parse::<FilePatterns>().unwrap_err().to_string();
        assert!(error("state_[0-9").contains("`state_[0-9`") && error("state_[0-9").contains("unclosed"));
        assert!(error("a,,b").contains("empty"));
        assert!(error("3-1:a").contains("3-1"));
        assert!(error("((a{50}){50}){50}").contains("((a{50}"), "{}", error("((a{50}){50}){50}"));
    }
}
