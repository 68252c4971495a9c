//! Whose line it is, where one stream carries the lines of all ranks: each launcher has its own way to say it.

use std::borrow::Cow;

use holdfast_model::Rank;
use serde::{Deserialize, Serialize};

use super::mpirun::{hydra, openmpi};

/// How a launcher labels the lines of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Labels {
    /// `12: text`
    #[default]
    Srun,
    /// `[1,12]<stdout>:text`
    OpenMpi,
    /// `[12] text`
    Hydra,
}

impl Labels {
    /// The rank and what it said; `None` for a launcher's own word.
    pub fn read<'a>(self, line: &'a [u8]) -> Option<(Rank, Cow<'a, [u8]>)> {
        match self {
            Labels::Srun => srun(line).map(|(rank, text)| (rank, text.into())),
            Labels::Hydra => hydra::labelled(line).map(|(rank, text)| (rank, text.into())),
            Labels::OpenMpi => {
                let (rank, text) = openmpi::labelled(line)?;
                Some((rank, without(text, openmpi::label(line, text))))
            }
        }
    }
}

/// `12: text`. Blanks make the numbers of equal width.
fn srun(line: &[u8]) -> Option<(Rank, &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let rank = std::str::from_utf8(&line[..colon]).ok()?.trim_start_matches(' ').parse().ok()?;
    let text = &line[colon + 1..];
    Some((Rank(rank), text.strip_prefix(b" ").unwrap_or(text)))
}

/// A text without a label that was put into it again.
fn without<'a>(text: &'a [u8], label: &[u8]) -> Cow<'a, [u8]> {
    let at = |text: &[u8]| text.windows(label.len().max(1)).position(|window| window == label);
    let Some(mut found) = at(text) else { return text.into() };
    let (mut kept, mut rest) = (Vec::with_capacity(text.len()), text);
    loop {
        kept.extend_from_slice(&rest[..found]);
        rest = &rest[found + label.len()..];
        match at(rest) {
            Some(next) => found = next,
            None => break,
        }
    }
    kept.extend_from_slice(rest);
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_comes_again_within_a_line_is_no_text() {
        let line = b"[1,2]<stderr>:[n5] [1,2]<stderr>:[ 0] [1,2]<stderr>:/lib/libc.so";
        let (rank, text) = Labels::OpenMpi.read(line).unwrap();
        assert_eq!((rank, text.as_ref()), (Rank(2), b"[n5] [ 0] /lib/libc.so".as_slice()));
        // That of another rank is text.
        let (_, text) = Labels::OpenMpi.read(b"[1,2]<stdout>:[1,3]<stdout>:x").unwrap();
        assert_eq!(text.as_ref(), b"[1,3]<stdout>:x");
    }

    #[test]
    fn each_launcher_s_label_is_read_and_no_other_s() {
        assert_eq!(Labels::Srun.read(b" 2: one: two").map(|(rank, _)| rank), Some(Rank(2)));
        assert_eq!(Labels::Hydra.read(b"[2] 3: text").map(|(rank, _)| rank), Some(Rank(2)));
        assert_eq!(Labels::Hydra.read(b"3: text"), None);
        assert_eq!(Labels::OpenMpi.read(b"5: text"), None);
    }
}
