//! What a rank should have, when its filemap is lost or none was ever written: from the headers of redundancy files,
//! which describe several members, and from a summary that was written before.

use super::rank_filemap::RankFilemap;
use super::scan::{CheckpointIdentity, DamagedFile, ExpectationSource, ExpectedFiles, FileDamage, RedundancySet, Scan};
use super::summary;
use crate::redundancy::files::{MemberFiles, SetFile};
use crate::redundancy::scheme::SetHeader;
use crate::redundancy::{RedundancyScheme, registry};
use holdfast_model::Rank;

impl Scan {
    /// Reads the headers of those sets that have a hole or a rank without a filemap: who the members are, and what
    /// they should have. Sets that lost nothing cost nothing here.
    pub(super) fn read_headers(&mut self, identity: CheckpointIdentity) {
        let mut sets = std::mem::take(&mut self.sets);
        for set in &mut sets {
            let holes = (set.present.len() as u64) < u64::from(set.id.members);
            let unknown = |rank: &Rank| self.ranks.get(rank).is_none_or(|known| known.expected.is_none());
            if holes || set.tolerance.is_none() || set.present.values().any(unknown) {
                self.read_set_headers(set, identity);
            }
        }
        self.sets = sets;
    }

    fn read_set_headers(&mut self, set: &mut RedundancySet, identity: CheckpointIdentity) {
        let Some(scheme) = registry::get(set.id.scheme) else { return };
        for (member, rank) in set.present.clone() {
            let file = SetFile { set: set.id, member };
            let header = match scheme.read_header(&*self.files, &file) {
                Ok(header) if fits(&header, member, rank, identity) => header,
                Ok(_) => {
                    let problem = "its header is about another set or checkpoint".to_owned();
                    self.damage_member(scheme, set, member, rank, problem);
                    continue;
                }
                Err(error) => {
                    self.damage_member(scheme, set, member, rank, error.to_string());
                    continue;
                }
            };
            // A header describes its own member and others: one survivor of these is enough.
            for (member, files) in &header.files {
                self.expect_from_header(scheme.file_names(set.id, *member), files);
            }
            set.ranks = (0..).zip(header.members).collect();
            set.tolerance = Some(header.tolerance);
        }
    }

    fn damage_member(
        &mut self,
        scheme: &dyn RedundancyScheme,
        set: &mut RedundancySet,
        member: u32,
        rank: Rank,
        problem: String,
    ) {
        set.present.remove(&member);
        for name in scheme.file_names(set.id, member) {
            if let Some(known) = self.ranks.get_mut(&rank) {
                known.present.remove(&name);
            }
            let damage = FileDamage::Unreadable(problem.clone());
            self.damaged.push(DamagedFile { name, rank: Some(rank), damage });
        }
    }

    fn expect_from_header(&mut self, redundancy: Vec<String>, files: &MemberFiles) {
        let known = self.ranks.entry(files.rank).or_default();
        if known.expected.is_none() {
            let mut names = redundancy;
            names.extend(files.files.iter().map(|meta| meta.file.clone()));
            let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
            known.expected = Some(ExpectedFiles { count, names, source: ExpectationSource::Header });
        }
    }

    /// Reads an earlier summary for ranks that no other file describes: a flush by the library writes no filemaps. A
    /// summary that cannot be read, or is of another checkpoint, is ignored.
    pub(super) fn read_summary(&mut self, identity: CheckpointIdentity) {
        let described = u64::try_from(self.ranks.values().filter(|rank| rank.expected.is_some()).count()).unwrap_or(0);
        if described == u64::from(identity.ranks) {
            return;
        }
        let Ok(summary) = summary::read(&*self.files) else { return };
        if (summary.id, summary.ranks) != (identity.id, identity.ranks) {
            return;
        }
        for (rank, files) in summary.by_rank {
            let known = self.ranks.entry(rank).or_default();
            // An incomplete summary without a count omits what was missing: it is ignored.
            let listed = summary.complete.then(|| u32::try_from(files.files.len()).unwrap_or(u32::MAX));
            if known.expected.is_none()
                && let Some(count) = files.expected.or(listed)
            {
                let names = files.files.into_iter().map(|file| file.name).collect();
                known.expected = Some(ExpectedFiles { count, names, source: ExpectationSource::Summary });
            }
        }
    }

    /// The ranks whose filemap is lost although what belongs into it is known: [`rebuild`](super::rebuild) writes them.
    pub fn lost_filemaps(&self) -> Vec<RankFilemap> {
        let Some(identity) = self.identity else { return Vec::new() };
        self.ranks
            .iter()
            .filter_map(|(rank, known)| {
                let expected = known.expected.as_ref().filter(|it| it.source == ExpectationSource::Header)?;
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

/// A header must agree with the checkpoint and with the meta file of the file that it is in.
fn fits(header: &SetHeader, member: u32, rank: Rank, identity: CheckpointIdentity) -> bool {
    let at = usize::try_from(member).ok().and_then(|member| header.members.get(member)).copied();
    header.checkpoint == identity.id
        && header.ranks == identity.ranks
        && header.members.iter().all(|rank| rank.0 < identity.ranks)
        && at == Some(rank)
}
