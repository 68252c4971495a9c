//! The judgement of a scanned checkpoint: complete, rebuildable, or what is lost (`SCR manual §11.10.8`).
//!
//! Pure: from a [`Scan`] to an [`Inspection`]. Every set is judged separately, so that a set that cannot be rebuilt
//! does not prevent the rebuild of the others.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::scan::{DamagedFile, RankScan, RedundancySet, Scan};
use super::summary::{RankFiles, Summary, SummaryFile};
use crate::control::meta::FileKind;
use crate::redundancy::files::SetId;
use holdfast_model::{Rank, Scheme};

/// The lost members of one redundancy set, which can be computed from the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRebuild {
    pub set: SetId,
    /// The members to compute, counted from 0, ascending.
    pub missing: Vec<u32>,
    pub ranks: Vec<Rank>,
}

impl fmt::Display for SetRebuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SetId { group_id, members, .. } = self.set;
        for (at, (rank, member)) in self.ranks.iter().zip(&self.missing).enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}rank {rank}, member {} of {members} in set {group_id}", member + 1)?;
        }
        Ok(())
    }
}

/// Why something is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// Ranks of which nothing is there.
    #[error("nothing of {} is there", range(*first, *last))]
    RanksMissing {
        /// The first of a row of ranks.
        first: Rank,
        /// The last of it.
        last: Rank,
    },
    #[error("rank {rank} lacks {}", names.join(", "))]
    FilesMissing { rank: Rank, names: Vec<String> },
    /// A rank has another number of files than it should.
    #[error("rank {rank} has {found} of {expected} files")]
    FileCount { rank: Rank, expected: u32, found: u64 },
    /// It is unknown which files a rank should have.
    #[error("the filemap of rank {rank} is lost, and no other file records how many files it wrote")]
    ExpectationUnknown { rank: Rank },
    /// A set lost more than its scheme can compute again.
    #[error("set {group_id} of {members} members lost {lost}, and {scheme} can compute {tolerance} again")]
    SetLost {
        scheme: Scheme,
        /// World rank of member 0.
        group_id: u32,
        members: u32,
        /// How many of them are not complete.
        lost: u32,
        /// How many could be computed again.
        tolerance: u32,
    },
    /// Members are missing, and no readable header of the set lists the members.
    #[error("set {group_id} of {members} members lost {lost}, and none of its headers can be used")]
    SetUnknown {
        /// World rank of member 0.
        group_id: u32,
        members: u32,
        /// How many of them are not complete.
        lost: u32,
    },
}

fn range(first: Rank, last: Rank) -> String {
    if first == last { format!("rank {first}") } else { format!("ranks {first} to {last}") }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Completeness {
    /// Every file of every rank is there.
    Complete,
    /// Something is missing, and all of it can be computed.
    Rebuildable,
    /// Something is lost. Parts may still be rebuildable.
    Incomplete,
    /// No usable file: there is no checkpoint here.
    NothingUsable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    pub completeness: Completeness,
    /// What can be computed.
    pub rebuildable: Vec<SetRebuild>,
    pub reasons: Vec<LossReason>,
    /// The files that do not count, with their damage.
    pub damaged: Vec<DamagedFile>,
}

pub fn inspect(scan: &Scan) -> Inspection {
    let mut damaged = scan.damaged.clone();
    let Some(identity) = scan.identity else {
        damaged.extend(scan.leftovers.iter().cloned());
        return Inspection {
            completeness: Completeness::NothingUsable,
            rebuildable: Vec::new(),
            reasons: Vec::new(),
            damaged,
        };
    };
    let mut faulty: BTreeMap<Rank, LossReason> =
        scan.ranks.iter().filter_map(|(rank, known)| problem_of(*rank, known).map(|reason| (*rank, reason))).collect();
    let mut rebuildable = Vec::new();
    let mut reasons = Vec::new();
    for set in &scan.sets {
        match judge(set, &faulty) {
            SetCompleteness::Complete => {}
            SetCompleteness::Rebuildable(rebuild) => rebuildable.push(rebuild),
            SetCompleteness::Lost(reason) => reasons.push(reason),
        }
    }
    // A rank is reported as lost unless a set can rebuild it.
    let given_back: BTreeSet<Rank> = rebuildable.iter().flat_map(|rebuild| rebuild.ranks.iter().copied()).collect();
    faulty.retain(|rank, _| !given_back.contains(rank));
    reasons.extend(faulty.into_values());
    let known = scan.ranks.keys().copied().chain(given_back).collect::<BTreeSet<_>>();
    reasons.extend(gaps(&known, identity.ranks));
    let completeness = match (reasons.is_empty(), rebuildable.is_empty()) {
        (true, true) => Completeness::Complete,
        (true, false) => Completeness::Rebuildable,
        (false, _) => Completeness::Incomplete,
    };
    if completeness != Completeness::Complete {
        damaged.extend(scan.leftovers.iter().cloned());
    }
    Inspection { completeness, rebuildable, reasons, damaged }
}

/// What is wrong with a rank, if anything.
fn problem_of(rank: Rank, known: &RankScan) -> Option<LossReason> {
    let Some(expected) = &known.expected else { return Some(LossReason::ExpectationUnknown { rank }) };
    let names: Vec<String> = expected.names.iter().filter(|name| !known.present.contains_key(*name)).cloned().collect();
    if !names.is_empty() {
        return Some(LossReason::FilesMissing { rank, names });
    }
    // If all names are known, a file that is not among them is a leftover. If some are unknown, only the count shows
    // whether all are present.
    let all_named = expected.names.len() as u64 == u64::from(expected.count);
    let found = known.present.len() as u64;
    (!all_named && found != u64::from(expected.count)).then_some(LossReason::FileCount {
        rank,
        expected: expected.count,
        found,
    })
}

enum SetCompleteness {
    Complete,
    Rebuildable(SetRebuild),
    Lost(LossReason),
}

fn judge(set: &RedundancySet, faulty: &BTreeMap<Rank, LossReason>) -> SetCompleteness {
    let SetId { scheme, group_id, members } = set.id;
    let complete: BTreeSet<u32> =
        set.present.iter().filter(|(_, rank)| !faulty.contains_key(rank)).map(|(member, _)| *member).collect();
    // The number of members comes from a file name: count, and never walk over it, before it is known to be small.
    let lost = members.saturating_sub(u32::try_from(complete.len()).unwrap_or(u32::MAX));
    if lost == 0 {
        return SetCompleteness::Complete;
    }
    let Some(tolerance) = set.tolerance else {
        return SetCompleteness::Lost(LossReason::SetUnknown { group_id, members, lost });
    };
    if lost > tolerance {
        return SetCompleteness::Lost(LossReason::SetLost { scheme, group_id, members, lost, tolerance });
    }
    let missing: Vec<u32> = (0..members).filter(|member| !complete.contains(member)).collect();
    match missing.iter().map(|member| set.ranks.get(member).copied()).collect() {
        Some(ranks) => SetCompleteness::Rebuildable(SetRebuild { set: set.id, missing, ranks }),
        None => SetCompleteness::Lost(LossReason::SetUnknown { group_id, members, lost }),
    }
}

/// Rows of ranks below `ranks` that are not among `known`; rows, because a checkpoint may claim billions.
fn gaps(known: &BTreeSet<Rank>, ranks: u32) -> Vec<LossReason> {
    let mut gaps = Vec::new();
    let mut next = 0_u32;
    for rank in known {
        if rank.0 > next {
            gaps.push(LossReason::RanksMissing { first: Rank(next), last: Rank(rank.0 - 1) });
        }
        next = rank.0.saturating_add(1);
    }
    if next < ranks {
        gaps.push(LossReason::RanksMissing { first: Rank(next), last: Rank(ranks - 1) });
    }
    gaps
}

/// The summary of what is there: what counts, and nothing else. `None` if nothing does.
pub fn summary_of(scan: &Scan, inspection: &Inspection) -> Option<Summary> {
    let identity = scan.identity?;
    let by_rank = scan
        .ranks
        .iter()
        .filter(|(_, known)| inspection.completeness == Completeness::Complete || !known.present.is_empty())
        .map(|(rank, known)| (*rank, rank_files(known)))
        .collect();
    let complete = inspection.completeness == Completeness::Complete;
    Some(Summary { id: identity.id, ranks: identity.ranks, complete, by_rank })
}

fn rank_files(known: &RankScan) -> RankFiles {
    let expected = known.expected.as_ref();
    let all_named: Option<HashSet<&String>> =
        expected.filter(|it| it.names.len() as u64 == u64::from(it.count)).map(|it| it.names.iter().collect());
    let files = known
        .present
        .iter()
        .filter(|(name, _)| all_named.as_ref().is_none_or(|names| names.contains(name)))
        .map(|(name, file)| SummaryFile {
            name: name.clone(),
            size: Some(file.size),
            crc: file.crc,
            fetch: file.kind == FileKind::Full,
            failed: false,
            output_path: file.output_path.clone(),
        })
        .collect();
    RankFiles { expected: expected.map(|it| it.count), files }
}
