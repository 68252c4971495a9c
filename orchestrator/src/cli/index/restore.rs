//! `holdfast index restore`.

use holdfast_core::prefix::index;
use serde_json::json;

use super::ChangedEntry;
use crate::cli::failure::Failure;
use crate::cli::output::{Style, printable, report};
use crate::exit;

pub(super) fn restore(args: &ChangedEntry, output: Style) -> Result<u8, Failure> {
    let store = &*args.prefix.open(args.dry_run, output)?;
    let (directory, entry) = args.find(store)?;
    if !entry.has_failed {
        return Err(Failure::new(exit::UNAVAILABLE, "no restart from it has failed: there is nothing to take back")
            .at(store.path_of(&directory).display()));
    }
    if !args.dry_run {
        index::update(store, |index| index.restore(&directory))?;
    }
    let reasons: Vec<_> = entry.failed.iter().map(|attempt| attempt.reason.as_deref()).collect();
    let fields = json!({"restored": directory.as_str(), "reasons": reasons, "dry_run": args.dry_run});
    output.result(&report(fields, |to| {
        let verb = if args.dry_run { "would no longer be" } else { "is no longer" };
        writeln!(to, "{}: {verb} marked as failed; a run may restart from it", printable(directory.as_str()))
    }))?;
    Ok(exit::FINISHED)
}
