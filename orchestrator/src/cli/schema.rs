//! `holdfast schema`: JSON Schemas of what Holdfast reads and prints.

use serde_json::json;

use super::documents::Documents;
use super::failure::Failure;
use super::output::{Style, report};
use crate::exit;
use crate::launch::registry::registered;
use crate::spec::schema;

/// Print the JSON Schema of job specs, event logs, or what commands print
///
/// An editor that knows that of specs completes and checks the keys of a spec. For editors with the YAML language
/// server, write `# yaml-language-server: $schema=PATH` as the first line of the spec. That of events describes each
/// line of a job's `events.jsonl`. With the words of a command, it is that of what the command prints with `--json`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast schema >spec.schema.json       for `# yaml-language-server: $schema=spec.schema.json`
  holdfast schema events >event.schema.json
  holdfast schema index list              of `holdfast index list --json`
  holdfast schema run dry-run             of `holdfast run --dry-run --json`
  holdfast schema error                   of any command that fails
  holdfast schema documents               of all commands, by their words

What only several keys together show is found by `holdfast check` alone. A log may have events of a later version of \
Holdfast, which the schema of this one does not know: docs/events.md.

Exit codes:
   0  printed
  64  there is no such document

The schemas are of draft 7.")]
pub struct SchemaArgs {
    /// `spec`, `events`, `documents`, `error`, or the words of a command
    #[arg(value_name = "WHAT", default_value = "spec", num_args = 0..)]
    pub what: Vec<String>,
}

pub(super) fn run(args: &SchemaArgs, style: Style) -> Result<u8, Failure> {
    let document = match args.what.join(" ").as_str() {
        "spec" => schema::document(&registered()),
        "events" => crate::events::schema::document(),
        "documents" => Documents::read()?.all(),
        words => {
            let documents = Documents::read()?;
            documents.schema(words).ok_or_else(|| unknown(words, &documents))?
        }
    };
    style.result(&report(json!({"schema": &document}), |to| writeln!(to, "{document:#}")))?;
    Ok(exit::FINISHED)
}

fn unknown(words: &str, documents: &Documents) -> Failure {
    let names: Vec<&str> = ["spec", "events", "documents"].into_iter().chain(documents.names()).collect();
    Failure::new(exit::USAGE, format!("there is no schema of `{words}`"))
        .remedy(format!("schemas: {}", names.join(", ")))
}
