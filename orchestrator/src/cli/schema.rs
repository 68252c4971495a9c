//! `holdfast schema`: JSON Schemas of what Holdfast reads and prints.

use serde_json::json;

use super::failure::Failure;
use super::output::{Style, report};
use crate::exit;
use crate::launch::registry::registered;
use crate::spec::schema;

/// Print the JSON Schema of job specs
///
/// An editor that knows it completes and checks the keys of a spec. For editors with the YAML language server, write
/// `# yaml-language-server: $schema=PATH` as the first line of the spec.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast schema >spec.schema.json       for `# yaml-language-server: $schema=spec.schema.json`

What only several keys together show is found by `holdfast check` alone.

Exit codes:
   0  printed

JSON: {version, schema}: the schema is of draft 7")]
pub struct SchemaArgs {}

pub(super) fn run(_: &SchemaArgs, style: Style) -> Result<u8, Failure> {
    let document = schema::document(&registered());
    style.result(&report(json!({"schema": &document}), |to| writeln!(to, "{document:#}")))?;
    Ok(exit::FINISHED)
}
