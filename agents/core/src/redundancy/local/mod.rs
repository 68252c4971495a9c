//! The LOCAL scheme: the files of a rank exist once, in the cache of its node (`SCR manual §7.1`).

use holdfast_model::{Level, RankDescriptor, Scheme};

use super::groups::{ForcedLocal, GroupRules, Groups, InconsistentDescriptors, Site};
use super::scheme::RedundancyScheme;

pub const NAME: Scheme = Scheme::new("LOCAL");

#[derive(Debug)]
pub struct Local;

impl RedundancyScheme for Local {
    fn name(&self) -> Scheme {
        NAME
    }

    fn protects(&self) -> bool {
        false
    }

    fn limit(&self) -> &'static str {
        "LOCAL keeps no second copy"
    }

    /// At level 4 the files are also copied to the prefix directory.
    fn levels(&self) -> &'static [Level] {
        &[Level::Local, Level::Prefix]
    }

    fn form(&self, sites: &[Site], _: GroupRules<'_>) -> Result<Groups, ForcedLocal> {
        Ok(Groups::alone(NAME, sites.len()))
    }

    fn regroup(&self, sites: &[Site], _: &mut [RankDescriptor]) -> Result<Groups, InconsistentDescriptors> {
        Ok(Groups::alone(NAME, sites.len()))
    }
}
