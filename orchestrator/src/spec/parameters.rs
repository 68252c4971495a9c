//! The table of SCR's parameters: those of the keys, from the declarations of the keys, and those without a key.

use super::environment::PLAIN_DATA;
use super::job::JobSpec;
use super::keys::{self, Keys as _, ParameterKey};
use super::value_kinds::ParameterValue;
use crate::params::declaration::{AllowedSource, Declaration, Effect};

const NO_DATABASE: &str = "events are written to the event log only, not to a database";

/// Every parameter: those without a key behind the others.
pub fn declared() -> Vec<Declaration> {
    let of_keys = keys::parameters(&JobSpec::declared());
    of_keys.into_iter().map(of_key).chain(without_key()).chain(of_scr_3()).collect()
}

fn of_key(key: ParameterKey) -> Declaration {
    let (parameter, path) = (key.parameter, key.path);
    let value = parameter.value.unwrap_or(ParameterValue::Text);
    let in_scr = |text: &str| match (value, parameter.spelling) {
        (ParameterValue::Bytes | ParameterValue::Buffer, _) => text.trim_end_matches("/s").replace("iB", "B"),
        (_, Some(spelling)) => (spelling.of_key)(text),
        (_, None) => text.to_uppercase(),
    };
    let of_key = || key.default.as_deref().map(in_scr).unwrap_or_default();
    let default = parameter.default.map_or_else(of_key, str::to_owned);
    // The lines of a table are for directories, not for elements of the list.
    let path = if parameter.source == AllowedSource::Files { path.replace("[*]", "[n]") } else { path };
    let effect = Effect::Acts(parameter.effect.replace("{key}", &format!("`{path}`")));
    Declaration { name: parameter.name, default, source: parameter.source, value, effect }
}

fn declaration(
    name: &'static str,
    default: &str,
    source: AllowedSource,
    value: ParameterValue,
    effect: Effect,
) -> Declaration {
    Declaration { name, default: default.to_owned(), source, value, effect }
}

fn acts(text: &str) -> Effect {
    Effect::Acts(text.to_owned())
}

/// The parameters that no key has: they concern the process or several keys, or have no effect.
fn without_key() -> [Declaration; 16] {
    use AllowedSource::{Any, Environment, Files, SystemFile};
    use ParameterValue::{Counting, PathName, Signed, Switch, Text, Whole};
    let no_flush_poll = "agents receive flush orders at once; a transfer file of LLNL's library is read every 50 ms";
    let debug = "level of the internal log on standard error, without HOLDFAST_LOG: 1 = info, 2 = debug, 3 = trace";
    let enable = "0: the application is launched once, without agents and checkpoints; its exit code";
    let job_id = "job id in directory names; Slurm's own id stays, with a warning";
    [
        declaration("SCR_ENABLE", "1", Any, Switch, acts(enable)),
        declaration("SCR_DEBUG", "0", Any, Whole, acts(debug)),
        declaration("SCR_USER_NAME", "", Any, PathName, acts("user in the names of control and cache directories")),
        declaration("SCR_JOB_ID", "", Any, PathName, acts(job_id)),
        declaration("CACHEDESC", "", Files, Text, acts("keys `base` and `keep` of `checkpoint.cache[n]`")),
        declaration("CKPTDESC", "", Files, Text, acts("keys of `checkpoint.redundancy[n]`")),
        declaration("SCR_TRANSFER_SECS", "60", Any, Counting, Effect::Warned(no_flush_poll)),
        declaration("SCR_RUNS", "", Environment, Signed, acts("key `relaunch.attempts`: one less")),
        declaration(PLAIN_DATA, "0", SystemFile, Switch, acts("1: `checkpoint.data_plane: plain` is allowed")),
        declaration("SCR_CONF_FILE", "", Environment, Text, acts("path of the user's file")),
        declaration("SCR_DB_ENABLE", "0", Any, Text, Effect::Warned(NO_DATABASE)),
        declaration("SCR_DB_DEBUG", "0", Any, Text, Effect::Warned(NO_DATABASE)),
        declaration("SCR_DB_HOST", "", Any, Text, Effect::Warned(NO_DATABASE)),
        declaration("SCR_DB_USER", "", Any, Text, Effect::Warned(NO_DATABASE)),
        declaration("SCR_DB_PASS", "", Any, Text, Effect::Warned(NO_DATABASE)),
        declaration("SCR_DB_NAME", "", Any, Text, Effect::Warned(NO_DATABASE)),
    ]
}

/// The parameters that SCR 3 has and version 1 has not.
fn of_scr_3() -> [Declaration; 24] {
    use AllowedSource::{Any, Environment};
    use ParameterValue::{Switch, Text};
    let set = |name, default: &str, reason| declaration(name, default, Any, Text, Effect::Warned(reason));
    let purge = "nothing is deleted at the start: `holdfast run --from-beginning` begins without the checkpoints";
    let prefix_purge = "checkpoints are not deleted at the start of a job: delete them with `holdfast index prune`, or \
                        begin without them with `holdfast run --from-beginning`";
    let watchdog = "set `health.hang_after` in the spec";
    let bypass = "libscr of the ranks: 1 = datasets are written to and read from the prefix directory";
    let halt_exit = "libscr of the ranks: 0 = the program is not ended when a halt condition holds";
    [
        declaration("SCR_CACHE_BYPASS", "0", Environment, Switch, acts(bypass)),
        declaration("SCR_HALT_EXIT", "1", Environment, Switch, acts(halt_exit)),
        set("SCR_CACHE_PURGE", "0", purge),
        declaration("SCR_PREFIX_PURGE", "0", Any, Text, Effect::Refused(prefix_purge)),
        set("SCR_CURRENT", "", "use `holdfast run --checkpoint NAME` or `holdfast index current`"),
        set("SCR_DROP_AFTER_CURRENT", "0", "newer checkpoints stay in the index"),
        set("SCR_FETCH_BYPASS", "0", "set SCR_GLOBAL_RESTART=1: the ranks then read from the prefix directory"),
        set("SCR_GROUP", "NODE", "a failure group is a node"),
        set("SCR_COPY_METADATA", "1", "meta data of a rank is always copied with its files"),
        set("SCR_FLUSH_TYPE", "SYNC", "the agents copy the files: set SCR_FLUSH_ASYNC=1 for flushes in the background"),
        set("SCR_FLUSH_POSTSTAGE", "0", "flushes end with the job; a drain then saves the newest checkpoint"),
        set("SCR_FLUSH_ASYNC_USLEEP", "1000", "set SCR_FLUSH_ASYNC_BW or SCR_FLUSH_ASYNC_PERCENT"),
        set("SCR_AXL_MKDIR", "0", "directories are always made"),
        set("SCR_WATCHDOG", "0", watchdog),
        set("SCR_WATCHDOG_TIMEOUT", "", watchdog),
        set("SCR_WATCHDOG_TIMEOUT_PFS", "", watchdog),
        set("SCR_LOG_TXT_ENABLE", "1", NO_DATABASE),
        set("SCR_LOG_SYSLOG_ENABLE", "0", NO_DATABASE),
        set("SCR_LOG_DB_ENABLE", "0", NO_DATABASE),
        set("SCR_LOG_DB_HOST", "", NO_DATABASE),
        set("SCR_LOG_DB_NAME", "", NO_DATABASE),
        set("SCR_LOG_DB_USER", "", NO_DATABASE),
        set("SCR_LOG_DB_PASS", "", NO_DATABASE),
        set("SCR_LOG_DB_DEBUG", "0", NO_DATABASE),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Parameters;
    use crate::params::source::Sources;

    #[test]
    fn each_parameter_is_declared_once() {
        let all = declared();
        for (at, declaration) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other.name != declaration.name), "{declaration:?}");
        }
    }

    #[test]
    fn parameter_needs_its_declaration_only() {
        let made_up = Declaration {
            name: "SCR_MADE_UP",
            default: "4KB".to_owned(),
            source: AllowedSource::Any,
            value: ParameterValue::Bytes,
            effect: Effect::Acts("nothing".to_owned()),
        };
        let all = [declared(), vec![made_up]].concat();
        let of = |value: &str| Parameters::resolve(&all, &Sources::new([("SCR_MADE_UP".to_owned(), value.to_owned())]));
        assert_eq!(of("2m").unwrap().text("SCR_MADE_UP"), Some("2m"));
        assert_eq!(of("").unwrap().text("SCR_MADE_UP"), Some("4KB"));
        let refused = of("many").unwrap_err().to_string();
        assert!(
            refused.starts_with("SCR_MADE_UP is \"many\" (environment), expected is a number of bytes"),
            "{refused}"
        );
    }

    #[test]
    fn defaults_are_values_of_their_kind() {
        // A variable with the default of its parameter is accepted.
        for declaration in declared().into_iter().filter(|declaration| !declaration.default.is_empty()) {
            let sources = Sources::new([(declaration.name.to_owned(), declaration.default.clone())]);
            Parameters::resolve(&declared(), &sources).unwrap();
        }
    }
}
