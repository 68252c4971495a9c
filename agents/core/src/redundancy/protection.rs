//! What protects the files of a rank: not what its descriptor asks for, but what was made of it.

use holdfast_model::{Protection, RankDescriptor};

use super::files::SetId;
use super::registry;

/// What protects files of which their node has these, by their base names. `complete`: all that were committed are
/// there. A scheme that keeps copies on other nodes makes them before the files are committed.
pub fn protection<'a>(
    descriptor: &RankDescriptor,
    complete: bool,
    files: impl IntoIterator<Item = &'a str>,
) -> Protection {
    let scheme = descriptor.descriptor.scheme;
    let Some(known) = registry::get(scheme).filter(|known| known.protects()) else { return Protection::Nothing };
    let set = SetId { scheme, group_id: descriptor.group_id, members: descriptor.group_size };
    let wanted = known.file_names(set, descriptor.group_rank);
    let made = files.into_iter().filter(|name| wanted.iter().any(|wanted| wanted == name)).count();
    match made {
        made if made == wanted.len() && complete => Protection::Scheme(scheme),
        0 => Protection::Nothing,
        _ => Protection::Partly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::{local, partner, xor};
    use holdfast_model::{Descriptor, Scheme};

    fn of(scheme: Scheme, complete: bool, files: &[&str]) -> Protection {
        let descriptor = Descriptor::new(0, scheme, "/tmp");
        let directory = "/tmp/u/scr.1/index.0".into();
        let descriptor = RankDescriptor { descriptor, directory, groups: 1, group_id: 0, group_size: 4, group_rank: 1 };
        protection(&descriptor, complete, files.iter().copied())
    }

    #[test]
    fn files_are_protected_when_their_redundancy_is_made_and_not_because_a_descriptor_asks_for_it() {
        assert_eq!(of(xor::NAME, true, &["a", "2_of_4_in_0.xor"]), Protection::Scheme(xor::NAME));
        assert_eq!(of(xor::NAME, true, &["a"]), Protection::Nothing);
        assert_eq!(of(xor::NAME, false, &["a", "2_of_4_in_0.xor"]), Protection::Partly);
        assert_eq!(of(xor::NAME, true, &["a", "1_of_4_in_0.xor"]), Protection::Nothing, "of another member");
        assert_eq!(of(partner::NAME, true, &["a"]), Protection::Scheme(partner::NAME));
        assert_eq!(of(partner::NAME, false, &["a"]), Protection::Nothing);
        assert_eq!(of(local::NAME, true, &["a"]), Protection::Nothing);
    }
}
