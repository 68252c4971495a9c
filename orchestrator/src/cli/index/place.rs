//! `holdfast index place`.

use holdfast_core::prefix::outputs;
use holdfast_core::store::{DirectoryName, Occupied};
use serde_json::json;

use super::ChangedPrefix;
use crate::cli::failure::Failure;
use crate::cli::output::{Style, printable, report};
use crate::exit;

#[derive(Debug, clap::Args)]
pub struct PlaceArgs {
    /// The directory of the output below the prefix
    #[arg(value_name = "DIRECTORY")]
    directory: String,
    #[command(flatten)]
    prefix: ChangedPrefix,
    /// Replace files of yours that are at the paths
    #[arg(long)]
    replace: bool,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn place(args: &PlaceArgs, output: Style) -> Result<u8, Failure> {
    let store = &*args.prefix.open(args.dry_run, output)?;
    let directory = DirectoryName::given(&args.directory)?;
    let occupied = if args.replace { Occupied::Replace } else { Occupied::Keep };
    let (placed, unplaced) = match args.dry_run {
        true => (0, outputs::unplaced(store, &directory)?),
        false => outputs::place::place(store, &directory, occupied)?,
    };
    let fields = json!({
        "directory": directory.as_str(),
        "placed": placed,
        "unplaced": unplaced,
        "dry_run": args.dry_run,
    });
    output.result(&report(fields, |to| {
        let name = printable(directory.as_str());
        match (&unplaced, args.dry_run) {
            (None, true) => writeln!(to, "{name}: all files are at their paths"),
            (None, false) => writeln!(to, "{name}: all files are at their paths; {placed} were put there now"),
            (Some(unplaced), true) => {
                writeln!(to, "{name}: {} files are not at their paths, such as {}", unplaced.files, unplaced.path)
            }
            (Some(unplaced), false) => writeln!(to, "{}", printable(&unplaced.to_string())),
        }
    }))?;
    Ok(if unplaced.is_none() || args.dry_run { exit::FINISHED } else { exit::CANNOT_WRITE })
}
