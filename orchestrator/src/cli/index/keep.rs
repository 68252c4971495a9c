//! `holdfast index keep` and `release`.

use holdfast_core::prefix::index;
use serde_json::json;

use super::{ChangedEntry, removal};
use crate::cli::failure::Failure;
use crate::cli::output::{Style, printable, report};
use crate::exit;

/// Sets the user's mark, or removes it. Again, it changes nothing.
pub(super) fn set(args: &ChangedEntry, kept: bool, output: Style) -> Result<u8, Failure> {
    let store = &*args.prefix.open(args.dry_run, output)?;
    let (directory, entry) = args.find(store)?;
    let changed = entry.marks.kept != kept;
    if changed && !args.dry_run {
        index::update(store, |index| index.set_kept(&directory, kept))?
            .ok_or_else(|| removal::not_indexed(store, &directory))?;
    }
    let fields = json!({"directory": directory.as_str(), "kept": kept, "changed": changed, "dry_run": args.dry_run});
    output.result(&report(fields, |to| {
        let now = match (changed, args.dry_run) {
            (false, _) => "was already",
            (true, true) => "would be",
            (true, false) => "is now",
        };
        let what = match kept {
            true => "kept: neither `checkpoint.flush.keep` nor `holdfast index prune` deletes it",
            false => "not kept: `checkpoint.flush.keep` and `holdfast index prune` may delete it",
        };
        writeln!(to, "{}: {now} {what}", printable(directory.as_str()))
    }))?;
    Ok(exit::FINISHED)
}
