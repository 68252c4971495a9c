//! What a rank should have, when its filemap is lost or none was ever written: from the headers of XOR files, which tell
//! of their own member and of its left neighbour, and from a summary that was written before.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use super::rank_filemap::RankFilemap;
use super::scan::{Damage, DamagedFile, Expected, Identity, Scan, Source, XorSet};
use super::summary;
use crate::kvtree::file;
use crate::redundancy::xor::header::{Header, MemberFiles};
use holdfast_model::Rank;

impl Scan {
    /// Reads the headers of those sets that have a hole or a rank without a filemap: who the members are, and what
    /// they should have. Sets that lost nothing cost nothing here.
    pub(super) fn read_headers(&mut self, identity: Identity) {
        let mut sets = std::mem::take(&mut self.sets);
        for set in &mut sets {
            let holes = (set.present.len() as u64) < u64::from(set.members);
            let unknown = |rank: &Rank| self.ranks.get(rank).is_none_or(|known| known.expected.is_none());
            if holes || set.present.values().any(unknown) {
                self.read_set_headers(set, identity);
            }
        }
        self.sets = sets;
    }

    fn read_set_headers(&mut self, set: &mut XorSet, identity: Identity) {
        for (member, rank) in set.present.clone() {
            let name = set.file_name(member);
            let header = match read_header(&self.directory.join(&name)) {
                Ok(header) if fits(&header, set, member, rank, identity) => header,
                Ok(_) => {
                    let problem = "its header is about another set or checkpoint".to_owned();
                    self.damage_member(set, member, rank, &name, problem);
                    continue;
                }
                Err(problem) => {
                    self.damage_member(set, member, rank, &name, problem);
                    continue;
                }
            };
            // A member's header tells of itself and of its left neighbour: one survivor on either side is enough.
            let left = if member == 0 { set.members - 1 } else { member - 1 };
            for (member, files) in [(member, &header.current), (left, &header.partner)] {
                self.expect_from_header(set, member, files);
            }
            set.ranks = (0..).zip(header.members).collect();
        }
    }

    fn damage_member(&mut self, set: &mut XorSet, member: u32, rank: Rank, name: &str, problem: String) {
        set.present.remove(&member);
        if let Some(known) = self.ranks.get_mut(&rank) {
            known.present.remove(name);
        }
        self.damaged.push(DamagedFile { name: name.to_owned(), rank: Some(rank), damage: Damage::Unreadable(problem) });
    }

    fn expect_from_header(&mut self, set: &XorSet, member: u32, files: &MemberFiles) {
        let known = self.ranks.entry(files.rank).or_default();
        if known.expected.is_none() {
            let mut names = vec![set.file_name(member)];
            names.extend(files.files.iter().map(|meta| meta.file.clone()));
            let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
            known.expected = Some(Expected { count, names, source: Source::XorHeader });
        }
    }

    /// Asks a summary that was written before for ranks of which nothing else tells: a flush by the library writes no
    /// filemaps. A summary that cannot be read, or is of another checkpoint, tells nothing.
    pub(super) fn read_summary(&mut self, identity: Identity) {
        let told = u64::try_from(self.ranks.values().filter(|rank| rank.expected.is_some()).count()).unwrap_or(0);
        if told == u64::from(identity.ranks) {
            return;
        }
        let Ok(summary) = summary::read(&self.directory) else { return };
        if (summary.id, summary.ranks) != (identity.id, identity.ranks) {
            return;
        }
        for (rank, files) in summary.by_rank {
            let known = self.ranks.entry(rank).or_default();
            // An incomplete summary without a count leaves out what was missing: it tells nothing.
            let listed = summary.complete.then(|| u32::try_from(files.files.len()).unwrap_or(u32::MAX));
            if known.expected.is_none()
                && let Some(count) = files.expected.or(listed)
            {
                let names = files.files.into_iter().map(|file| file.name).collect();
                known.expected = Some(Expected { count, names, source: Source::Summary });
            }
        }
    }

    /// The ranks whose filemap is lost although what belongs into it is known: [`rebuild`](super::rebuild) writes them.
    pub fn lost_filemaps(&self) -> Vec<RankFilemap> {
        let Some(identity) = self.identity else { return Vec::new() };
        self.ranks
            .iter()
            .filter_map(|(rank, known)| {
                let expected = known.expected.as_ref().filter(|it| it.source == Source::XorHeader)?;
                let all_there = expected.names.iter().all(|name| known.present.contains_key(name));
                all_there.then(|| RankFilemap {
                    rank: *rank,
                    id: identity.id,
                    files: expected.names.clone(),
                    expected: expected.count,
                })
            })
            .collect()
    }
}

fn read_header(path: &Path) -> Result<Header, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let (tree, _) = file::decode_prefix(&mut BufReader::new(file)).map_err(|error| error.to_string())?;
    Header::from_tree(&tree, &path.display().to_string()).map_err(|error| error.to_string())
}

/// A header must tell the same as the name and the meta file of the file it stands in.
fn fits(header: &Header, set: &XorSet, member: u32, rank: Rank, identity: Identity) -> bool {
    let left = if member == 0 { set.members - 1 } else { member - 1 };
    let at = |member: u32| usize::try_from(member).ok().and_then(|member| header.members.get(member)).copied();
    header.checkpoint == identity.id
        && header.ranks == identity.ranks
        && header.members.len() as u64 == u64::from(set.members)
        && header.members.iter().all(|rank| rank.0 < identity.ranks)
        && at(member) == Some(rank)
        && header.current.rank == rank
        && at(left) == Some(header.partner.rank)
}
