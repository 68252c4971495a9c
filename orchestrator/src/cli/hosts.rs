//! `holdfast hosts`.

use super::failure::Failure;
use super::output::Output;
use crate::exit;

/// Hosts
#[derive(Debug, clap::Args)]
pub struct HostsArgs {}

pub(super) fn run(_args: HostsArgs, _output: &dyn Output) -> Result<u8, Failure> {
    Err(Failure::new(exit::INTERNAL, "not wired"))
}
