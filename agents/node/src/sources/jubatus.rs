//! Jubatus servers: their rank processes have them save and load models, at the intervals of the job spec. On the nodes
//! their files are treated as those of every program for which a rank process makes the calls.

use super::{SourceEntry, command};

pub const ENTRY: SourceEntry = SourceEntry { name: "jubatus", reports_progress: true, open: command::open };
