//! SCR_* parameters: environment, user file, system file, default (`SCR manual §10`).
//!
//! A job spec has its place between the two files; its reader combines the parameters with its keys, and has the table
//! of all parameters (`spec::parameters`).
//!
//! * [`declaration`]: what is declared for each parameter;
//! * [`conf`]: the text format of the user and system files;
//! * [`source`]: where values come from and in which order, and what has no effect;
//! * [`value`]: numbers, sizes and switches as text;
//! * [`descriptors`]: the redundancy and cache descriptors that they ask for.
//!
//! Nothing here reads the environment: it is passed in, so that a test, or the agent of another user, has its own.

pub mod conf;
pub mod declaration;
pub mod descriptors;
mod origin;
mod setting;
pub mod source;
pub mod value;

pub use descriptors::CopyType;
pub use origin::{FileLine, Origin};
pub use setting::{ParamError, ParamWarning, ParamWarningKind, Setting};

use declaration::Declaration;
use descriptors::{Descriptors, DirectoryCheck};
use source::{Resolver, Sources};

/// The values in force of all parameters, each with where it came from.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Every parameter but tables, in the order of the declarations. The value is empty for "none".
    pub settings: Vec<Setting>,
    /// `SCR_USER_NAME`, else `USER`.
    pub user: Option<String>,
    pub descriptors: Descriptors,
    /// `CNTLDIR`: what the control directories need.
    pub control_checks: Vec<DirectoryCheck>,
    /// `CACHEDIR`: what the cache directories need.
    pub cache_checks: Vec<DirectoryCheck>,
    /// What in the sources had no effect.
    pub warnings: Vec<ParamWarning>,
}

impl Parameters {
    /// The values of the declared parameters, from their sources in their order.
    ///
    /// # Errors
    /// The first one that is not what it must be: name, value, place, and what is expected.
    pub fn resolve(declared: &[Declaration], sources: &Sources) -> Result<Parameters, ParamError> {
        let resolver = Resolver::new(declared, sources)?;
        let mut warnings = resolver.warnings();
        let control_checks = descriptors::directory_checks(&resolver, "CNTLDIR", &mut warnings)?;
        let cache_checks = descriptors::directory_checks(&resolver, "CACHEDIR", &mut warnings)?;
        let descriptors = descriptors::requested(&resolver, &mut warnings)?;
        let user = resolver.user()?;
        Ok(Parameters { settings: resolver.settings, user, descriptors, control_checks, cache_checks, warnings })
    }

    /// The parameter of this name; `None` if it has no value, not even by default.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        setting::of(&self.settings, name)
    }

    /// The value of a parameter, read by the function of its kind.
    pub fn read<T>(&self, name: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.get(name).and_then(|setting| setting.read(read))
    }

    /// The value of a parameter as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).map(|setting| setting.value.as_str())
    }
}
