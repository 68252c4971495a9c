//! SCR's styles of options: GNU options whose names may be shortened, in perl scripts also in upper case.

use clap::Parser;
use clap::error::ErrorKind;

/// Arguments that a command does not take, or a request for help.
pub(super) struct Usage(clap::Error);

impl Usage {
    /// Help is a result, and goes to standard output.
    pub(super) fn print(&self) {
        let _ = self.0.print();
    }

    pub(super) fn is_help(&self) -> bool {
        self.0.kind() == ErrorKind::DisplayHelp
    }
}

/// The arguments of a command. `A` is declared with `no_binary_name` and `infer_long_args`.
pub(super) fn parse<A: Parser>(words: &[String]) -> Result<A, Usage> {
    A::try_parse_from(words.iter().map(|word| in_lower_case(word))).map_err(Usage)
}

/// The usage of a command whose arguments select nothing.
pub(super) fn usage<A: Parser>(missing: &str) -> Usage {
    Usage(A::command().error(ErrorKind::MissingRequiredArgument, missing))
}

/// A long option with its name in lower case; every other word as it is.
fn in_lower_case(word: &str) -> String {
    let Some(option) = word.strip_prefix("--") else { return word.to_owned() };
    match option.split_once('=') {
        Some((name, value)) => format!("--{}={value}", name.to_ascii_lowercase()),
        None => format!("--{}", option.to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_long_options_are_read_in_any_case_and_values_are_kept() {
        assert_eq!(in_lower_case("--Hosts=ATLAS[1-2]"), "--hosts=ATLAS[1-2]");
        assert_eq!(in_lower_case("--COUNT"), "--count");
        for kept in ["-C", "ATLAS", "--", "-"] {
            assert_eq!(in_lower_case(kept), kept);
        }
    }
}
