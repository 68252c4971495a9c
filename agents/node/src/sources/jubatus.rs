//! Jubatus servers: their rank processes have them save and load models, at the intervals of the job spec. On the nodes
//! their files are treated as those of every program for which a rank process makes the calls.

use holdfast_wire::rank::Interface;

use super::command;
use super::source::SourceEntry;

pub static ENTRY: SourceEntry = SourceEntry {
    name: "jubatus",
    is_library: false,
    has_rank_processes: true,
    interface: Interface::Files,
    reports_progress: true,
    refuses_calls: None,
    policy: command::policy,
};
