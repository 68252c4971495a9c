//! A program or a command line where a job spec is expected.

use std::env;
use std::path::Path;

use crate::host::program;

/// What a file without a spec in it is, for messages; `None` if it may be a spec. A spec may begin with a line that has
/// `holdfast` read it.
pub(super) fn kind(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"\x7fELF") {
        return Some("this is a program");
    }
    let first = bytes.split(|byte| *byte == b'\n').next()?;
    let is_ours = first.windows(b"holdfast".len()).any(|part| part == b"holdfast");
    (first.starts_with(b"#!") && !is_ours).then_some("this is a script")
}

/// What to write for this program and its arguments.
pub(super) fn help(command: &str) -> String {
    format!("run it without a spec: `holdfast run -- {command}`; or have one written: `holdfast init {command}`")
}

/// True if the first word of a name, for which there is no file, is a program.
pub(super) fn is_command(name: &str) -> bool {
    let here = env::current_dir().unwrap_or_default();
    let path = env::var_os("PATH");
    let first = name.split_whitespace().next();
    first.is_some_and(|first| program::find(first, Path::new(&here), path.as_deref()).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_programs_and_scripts_from_specs() {
        assert_eq!(kind(b"\x7fELF\x02\x01\xff"), Some("this is a program"));
        assert_eq!(kind(b"#!/bin/sh\necho\n"), Some("this is a script"));
        for spec in [&b"job: a\n"[..], b"# comment\njob: a\n", b"#!/usr/bin/env -S holdfast run\njob: a\n", b""] {
            assert_eq!(kind(spec), None);
        }
    }

    #[test]
    fn a_command_line_begins_with_a_program() {
        assert!(is_command("sh -c true"));
        assert!(is_command("sh"));
        assert!(!is_command("no-such-program 5"));
        assert!(!is_command(""));
    }
}
