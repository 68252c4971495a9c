//! The second argument of `sion_open`: options, separated by commas, some with a value.

use holdfast_formats::sion::{ByteOrder, KeyValue, Padding};

use crate::error::{CallError, Result};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub write: bool,
    /// `posix`: without a `FILE`.
    pub descriptor: bool,
    /// `None` if it was not given: a file that is written has none, one that is read has its own.
    pub key_value: Option<KeyValue>,
    /// The declared byte order of the program's data; `None` for that of this machine.
    pub user_order: Option<ByteOrder>,
}

/// How a file is opened by the parallel functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParallelMode {
    pub mode: Mode,
    /// Of `collective` and `collsize`.
    pub padding: Padding,
}

impl ParallelMode {
    /// Parses a mode of the parallel functions. Unknown options have no effect, as in SIONlib.
    ///
    /// # Errors
    /// As for [`Mode::parse`], and for options of which the library would write or read another file than SIONlib.
    pub fn parse(text: &str) -> Result<ParallelMode> {
        let mode = Mode::parse(text)?;
        let (mut collective, mut tasks) = (false, None);
        for option in text.split(',') {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let refused = |remedy| Err(CallError::Mode { option: option.to_owned(), remedy });
            match name {
                "collective" => collective = true,
                "collsize" => tasks = value.trim().parse().ok().filter(|tasks| *tasks > 0),
                "buddy" => return refused("leave it out; the redundancy of the checkpoint covers the loss of nodes"),
                "cmerge" | "collectivemerge" if mode.write => {
                    return refused("leave it out; each task then keeps a stream of its own");
                }
                "collmsa" if mode.write => return refused("leave it out, or give collective"),
                _ => {}
            }
        }
        let padding = if collective { Padding::Groups { tasks } } else { Padding::Each };
        Ok(ParallelMode { mode, padding })
    }
}

impl Mode {
    /// Parses a mode. Options of SIONlib's parallel functions, and unknown ones, have no effect, as in SIONlib.
    ///
    /// # Errors
    /// A value is given that SIONlib does not carry out either.
    pub fn parse(text: &str) -> Result<Mode> {
        let mut mode = Mode { write: false, descriptor: false, key_value: None, user_order: None };
        for option in text.split(',') {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let refused = |remedy| Err(CallError::Mode { option: option.to_owned(), remedy });
            match (name, value) {
                ("w" | "wb" | "bw", _) => mode.write = true,
                ("posix", _) => mode.descriptor = true,
                ("ansi", _) => mode.descriptor = false,
                ("keyval", "" | "default" | "inline") => mode.key_value = Some(KeyValue::Inline),
                ("keyval", "none") => mode.key_value = Some(KeyValue::None),
                // To read whatever the file has.
                ("keyval", "unknown") => mode.key_value = None,
                ("keyval", _) => return refused("give keyval=inline, the only kind that SIONlib writes, too"),
                ("endianness", "big") => mode.user_order = Some(ByteOrder::Big),
                ("endianness", "little") => mode.user_order = Some(ByteOrder::Little),
                ("endianness", _) => return refused("give endianness=big or endianness=little"),
                _ => {}
            }
        }
        Ok(mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_any_order() {
        let plain = Mode { write: false, descriptor: false, key_value: None, user_order: None };
        assert_eq!(Mode::parse("rb").unwrap(), plain);
        assert_eq!(Mode::parse("br,buddy,collsize=3,unheard").unwrap(), plain);
        let mode = Mode::parse("posix,endianness=big,keyval,bw").unwrap();
        assert!(mode.write && mode.descriptor);
        assert_eq!((mode.key_value, mode.user_order), (Some(KeyValue::Inline), Some(ByteOrder::Big)));
        assert!(!Mode::parse("wb,posix,ansi").unwrap().descriptor);
    }

    #[test]
    fn groups_are_those_of_the_collective_mode() {
        let padding = |mode| ParallelMode::parse(mode).unwrap().padding;
        assert_eq!(padding("wb,collsize=3"), Padding::Each);
        assert_eq!(padding("wb,collective,collsize=3"), Padding::Groups { tasks: Some(3) });
        assert_eq!(padding("wb,collective,collsize=-1"), Padding::Groups { tasks: None });
        assert_eq!(padding("wb,collective"), Padding::Groups { tasks: None });
        assert_eq!(padding("rb,cmerge"), Padding::Each);
        for mode in ["wb,buddy", "rb,buddy=2", "wb,collective,cmerge", "wb,collmsa"] {
            let error = ParallelMode::parse(mode).unwrap_err().to_string();
            assert!(error.contains("leave it out"), "{error}");
        }
    }

    #[test]
    fn values_without_effect_are_refused() {
        for (mode, remedy) in [("wb,keyval=hash", "keyval=inline"), ("wb,endianness=middle", "endianness=big")] {
            let error = Mode::parse(mode).unwrap_err().to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }
}
