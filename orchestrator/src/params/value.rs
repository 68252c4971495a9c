//! Numbers, sizes and switches as text: stricter than C's `atoi`, to which every misspelling was a zero.

use holdfast_core::control::node_path;
use holdfast_core::hostlist;
use holdfast_core::redundancy::{local, registry};
use holdfast_model::Scheme;

/// What the value of a parameter must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    Switch,
    Whole,
    Counting,
    Signed,
    Percent,
    Bytes,
    /// A number of bytes of at least 1.
    Buffer,
    Directory,
    PathName,
    Hosts,
    /// The name of a redundancy scheme.
    Scheme,
    Text,
}

impl ValueKind {
    pub(super) fn accepts(self, text: &str) -> bool {
        match self {
            ValueKind::Switch => switch(text).is_some(),
            ValueKind::Whole => whole::<u32>(text).is_some(),
            ValueKind::Counting => counting(text).is_some(),
            ValueKind::Signed => signed(text).is_some(),
            ValueKind::Percent => percent(text).is_some(),
            ValueKind::Bytes => bytes(text).is_some(),
            ValueKind::Buffer => buffer(text).is_some(),
            ValueKind::Directory => directory(text).is_some(),
            ValueKind::PathName => node_path::base_name(text).is_ok(),
            ValueKind::Hosts => hostlist::expand(text).is_ok(),
            ValueKind::Scheme => scheme(text).is_some(),
            ValueKind::Text => true,
        }
    }

    /// Completes "expected is …".
    pub(super) fn expected(self) -> &'static str {
        match self {
            ValueKind::Switch => "0 or 1",
            ValueKind::Whole => "a whole number, 0 or more",
            ValueKind::Counting => "a whole number, 1 or more",
            ValueKind::Signed => "a whole number",
            ValueKind::Percent => "a percentage, 0 to 100",
            ValueKind::Bytes | ValueKind::Buffer => "a number of bytes like 4096, 128KB, 1MB or 2g",
            ValueKind::Directory => "an absolute path without `..`",
            ValueKind::PathName => "a name without slashes",
            ValueKind::Hosts => "a host list like node[1-4,7]",
            ValueKind::Scheme => "the name of a redundancy scheme",
            ValueKind::Text => "text",
        }
    }
}

/// A redundancy scheme by its name. SCR 3 has another name for LOCAL.
pub fn scheme(text: &str) -> Option<Scheme> {
    let name = text.trim();
    if name.eq_ignore_ascii_case("SINGLE") { Some(local::NAME) } else { registry::named(name) }
}

/// A switch: 0 is off, 1 is on.
pub fn switch(text: &str) -> Option<bool> {
    match text.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// A whole number that is not negative.
pub fn whole<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let text = text.trim();
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse::<u64>().ok()).flatten().and_then(|number| T::try_from(number).ok())
}

/// A whole number of at least 1.
pub fn counting(text: &str) -> Option<u32> {
    whole(text).filter(|number| *number > 0)
}

/// A whole number of either sign.
pub fn signed(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

pub fn percent(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|percent| (0.0..=100.0).contains(percent))
}

/// A number of bytes: digits and, if wanted, k, m or g, and b behind it (`128KB`, `1m`), in steps of 1024.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A number of bytes of at least 1, for buffers.
pub fn buffer(text: &str) -> Option<u64> {
    bytes(text).filter(|bytes| *bytes > 0)
}

/// A directory as the nodes see it: an absolute path without `..`, without the slash at its end.
pub fn directory(text: &str) -> Option<String> {
    node_path::real_path(std::path::Path::new("/"), text).ok()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_in_steps_of_1024() {
        for (text, size) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("128KB", Some(128 << 10)),
            ("1m", Some(1 << 20)),
            (" 2 Gb ", Some(2 << 30)),
            ("17179869183g", Some(17_179_869_183 << 30)),
            ("17179869184g", None),
            ("", None),
            ("k", None),
            ("-1", None),
            ("1.5m", None),
            ("1tb", None),
            ("1kk", None),
        ] {
            assert_eq!(bytes(text), size, "{text:?}");
        }
        assert_eq!(buffer("0k"), None);
    }

    #[test]
    fn misspelt_numbers_are_none_and_not_zero() {
        assert_eq!(whole::<u32>("10"), Some(10));
        assert_eq!([whole::<u32>(""), whole("ten"), whole("-1"), whole("+1"), whole("4294967296")], [None; 5]);
        assert_eq!((counting("0"), signed("-1"), switch("yes"), switch("1")), (None, Some(-1), None, Some(true)));
        assert_eq!((percent("nan"), percent("100.1"), percent("2.5")), (None, None, Some(2.5)));
        assert_eq!((directory("/tmp/"), directory("tmp"), directory("/a/../b")), (Some("/tmp".to_owned()), None, None));
    }
}
