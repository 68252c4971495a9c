//! How a program or command ended.

use std::fmt;

use holdfast_model::RankEnd;
use rustix::process::Signal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    Code(i32),
    Signal(i32),
}

impl ProgramEnd {
    pub const SUCCESS: ProgramEnd = ProgramEnd::Code(0);

    /// The end of a child of this process, which is known unless the system fails.
    pub(crate) fn of(end: RankEnd) -> ProgramEnd {
        match end {
            RankEnd::Code(code) => ProgramEnd::Code(code),
            RankEnd::Signal(signal) => ProgramEnd::Signal(signal),
            RankEnd::Unknown => ProgramEnd::Signal(Signal::KILL.as_raw()),
        }
    }
}

impl fmt::Display for ProgramEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramEnd::Code(code) => write!(f, "exit code {code}"),
            ProgramEnd::Signal(signal) => match signal_hook::low_level::signal_name(*signal) {
                Some(name) => write!(f, "signal {signal} ({name})"),
                None => write!(f, "signal {signal}"),
            },
        }
    }
}

/// Ends this process as a program has ended.
pub fn end_as(end: ProgramEnd) -> u8 {
    match end {
        ProgramEnd::Code(code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        ProgramEnd::Signal(signal) => {
            // The program has written its core, if any.
            let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
            let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            // Signals that do not end a process by default.
            u8::try_from(128 + signal).unwrap_or(u8::MAX)
        }
    }
}
