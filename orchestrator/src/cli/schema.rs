//! `holdfast schema`: JSON Schemas of what Holdfast reads and prints.

use serde_json::{Value, json};

use super::failure::Failure;
use super::output::{Style, report};
use crate::exit;
use crate::launch::registry::registered;
use crate::spec::schema;

/// Print the JSON Schema of job specs, event logs, or what commands print
///
/// An editor that knows that of specs completes and checks the keys of a spec. For editors with the YAML language
/// server, write `# yaml-language-server: $schema=PATH` as the first line of the spec. That of events describes each
/// line of a job's `events.jsonl`; the others what `holdfast status --json` prints, and any command with `--json` that
/// fails.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast schema >spec.schema.json       for `# yaml-language-server: $schema=spec.schema.json`
  holdfast schema events >event.schema.json

What only several keys together show is found by `holdfast check` alone. A log may have events of a later version of \
Holdfast, which the schema of this one does not know: docs/events.md.

Exit codes:
   0  printed

JSON: {version, schema}: the schema is of draft 7")]
pub struct SchemaArgs {
    /// Of what
    #[arg(value_enum, value_name = "WHAT", default_value = "spec")]
    pub what: Described,
}

/// What a schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Described {
    /// A job spec
    Spec,
    /// A line of the event log
    Events,
    /// The document of `holdfast status`
    Status,
    /// The document of a command that fails
    Error,
}

pub(super) fn run(args: &SchemaArgs, style: Style) -> Result<u8, Failure> {
    let document = match args.what {
        Described::Spec => schema::document(&registered()),
        Described::Events => crate::events::schema::document(),
        Described::Status => written(include_str!("schemas/status.json"))?,
        Described::Error => written(include_str!("schemas/error.json"))?,
    };
    style.result(&report(json!({"schema": &document}), |to| writeln!(to, "{document:#}")))?;
    Ok(exit::FINISHED)
}

/// A schema that is written by hand.
fn written(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::of(exit::INTERNAL, &error))
}
