//! `scr_param`: SCR's parameters, for scripts (`SCR manual §11.1.2`). In SCR it is a perl module, which here calls this
//! command.

use clap::Parser;
use holdfast_core::kvtree::{Tree, print};

use super::arguments::parse;
use super::directories;
use super::result::{ExitResult, NO, YES, failed, print as print_line};
use crate::params::Parameters;
use crate::params::declaration::AllowedSource;
use crate::params::descriptors::CacheDescriptor;
use crate::spec::{Environment, declared_parameters};

/// The functions of scr_param
#[derive(Parser)]
#[command(name = "scr_param", no_binary_name = true)]
enum ParamArgs {
    /// Print the value of a parameter
    Get { name: String },
    /// Print the values of a parameter, or the lines of a table, each with the further pairs of its line
    #[command(name = "get_hash")]
    GetHash { name: String },
}

pub(super) fn param(words: &[String]) -> ExitResult {
    let args = parse(words)?;
    let sources = Environment::sources_of_process().map_err(|error| failed(&error))?;
    let declared = declared_parameters();
    let parameters = Parameters::resolve(&declared, &sources).map_err(|error| failed(&error))?;
    let found = |name: &str| {
        let known = declared.iter().find(|known| known.name == name);
        let tree = sources.tree(name, known.map_or(AllowedSource::Any, |known| known.source));
        if tree.is_empty() { by_default(name, &parameters) } else { tree }
    };
    match args {
        ParamArgs::Get { name } => {
            // Of a name that is no parameter, or of a table, the first value.
            let tree = found(&name);
            let Some(value) = parameters.text(&name).or_else(|| tree.keys().next()) else { return Ok(NO) };
            print_line(value)?;
        }
        ParamArgs::GetHash { name } => {
            let tree = found(&name);
            if tree.is_empty() {
                return Ok(NO);
            }
            print_line(print::text(&tree).trim_end_matches('\n'))?;
        }
    }
    Ok(YES)
}

/// What no source sets.
fn by_default(name: &str, parameters: &Parameters) -> Tree {
    let mut tree = Tree::new();
    let values = match name {
        "CACHEDESC" => {
            for (at, CacheDescriptor { base, size, .. }) in parameters.descriptors.cache.iter().enumerate() {
                let descriptor = tree.entry(at.to_string());
                descriptor.put("BASE", base);
                descriptor.put("SIZE", size);
            }
            return tree;
        }
        "CNTLDIR" => vec![directories::control_base(parameters)],
        "CACHEDIR" => directories::cache_bases(parameters),
        _ => parameters.text(name).into_iter().map(str::to_owned).collect(),
    };
    values.into_iter().for_each(|value| tree.set(value, Tree::new()));
    tree
}
