//! The settings of a job as its event log keeps them. Members of a group may read the log, but not the spec.

use crate::events::{LogEvent, SettingInForce};
use crate::spec::{JobSpec, NOT_SET, Setting, Step};

/// In the place of what may be secret.
const LEFT_OUT: &str = "(not logged)";

/// The event with the settings of a job, without those of its other steps.
pub(super) fn event(spec: &JobSpec, step: Option<&Step>) -> LogEvent {
    let others = || spec.steps.iter().filter(|other| step.is_some_and(|step| other.key_path != step.key_path));
    let is_of_other = |setting: &Setting| others().any(|other| setting.key.starts_with(&other.key_path));
    let settings = spec.settings_in_force().filter(|setting| !is_of_other(setting)).map(logged);
    LogEvent::SettingsInForce { version: env!("CARGO_PKG_VERSION").to_owned(), settings: settings.collect() }
}

fn logged(setting: Setting) -> SettingInForce {
    let Setting { key, value, origin, .. } = setting;
    // The address of a webhook may have a token in its path.
    let may_be_secret = key.contains(".env.") || (key.ends_with(".webhook") && value != NOT_SET);
    let value = if may_be_secret { LEFT_OUT.to_owned() } else { value };
    SettingInForce { key, value, origin: origin.to_string() }
}
