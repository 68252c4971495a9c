//! The scheme's name, and the name of an XOR file: `<member + 1>_of_<members>_in_<group id>.xor`.

use std::fmt;

use holdfast_model::Scheme;

use super::PARITY;

pub const NAME: Scheme = Scheme::new("XOR");

/// The content of an XOR file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XorName {
    /// Group id: world rank of member 0.
    pub group_id: u32,
    pub members: u32,
    /// Index of the member whose file it is, from 0.
    pub index: u32,
}

impl XorName {
    /// Reads a base name; `None` if it is not the name of an XOR file.
    pub fn parse(name: &str) -> Option<XorName> {
        let file = PARITY.parse_file_name(name)?;
        Some(XorName { group_id: file.set.group_id, members: file.set.members, index: file.member })
    }
}

impl fmt::Display for XorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&PARITY.file_name(self.group_id, self.members, self.index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let name = XorName { group_id: 12, members: 8, index: 7 };
        assert_eq!(name.to_string(), "8_of_8_in_12.xor");
        assert_eq!(XorName::parse("8_of_8_in_12.xor"), Some(name));
    }

    #[test]
    fn other_names_are_not_taken_for_xor_files() {
        for name in [
            "rank_0.ckpt",
            "1_of_4_in_0.xor.scr",
            "0_of_4_in_0.xor",
            "5_of_4_in_0.xor",
            "1_of_1_in_0.xor",
            "+1_of_4_in_0.xor",
            "_of__in_.xor",
            "1_of_4_in_99999999999.xor",
            "a1_of_4_in_0.xor",
        ] {
            assert_eq!(XorName::parse(name), None, "{name}");
        }
    }
}
