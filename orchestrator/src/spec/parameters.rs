//! The table of SCR's parameters: those of the keys, from the declarations of the keys, and those without a key.

use super::job::JobSpec;
use super::keys::{self, Keys as _, ParameterKey};
use super::value_kinds::ParameterValue;
use crate::params::declaration::{AllowedSource, Declaration, Effect};

const NO_DATABASE: &str = "events are written to the event log only, not to a database";

/// Every parameter: those without a key behind the others.
pub fn declared() -> Vec<Declaration> {
    let of_keys = keys::parameters(&JobSpec::declared());
    of_keys.into_iter().map(of_key).chain(without_key()).collect()
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

/// The parameters that no key has: they concern the process or several keys, or have no effect.
fn without_key() -> [Declaration; 19] {
    use AllowedSource::{Any, Environment, Files};
    use ParameterValue::{Counting, Hosts, PathName, Signed, Switch, Text, Whole};
    let declaration = |name, default: &str, source, value, effect| {
        let default = default.to_owned();
        Declaration { name, default, source, value, effect }
    };
    let acts = |text: &str| Effect::Acts(text.to_owned());
    let no_flush_poll = "agents receive flush orders at once; a transfer file of LLNL's library is read every 50 ms";
    let no_global_restart = "ranks restart from files in cache: use the path that SCR_Route_file returns, and \
                             SCR_FLUSH_ON_RESTART=1 to have the checkpoint on the prefix directory as well";
    let enable = "0: the application is launched once, without agents and checkpoints; its exit code";
    let log_enable = "the event log belongs to the state of the job (`scr_log_event` obeys it)";
    let job_id = "job id in directory names; Slurm's own id stays, with a warning";
    [
        declaration("SCR_ENABLE", "1", Any, Switch, acts(enable)),
        declaration("SCR_DEBUG", "0", Any, Whole, Effect::Warned("`--verbose` and HOLDFAST_LOG show more")),
        declaration("SCR_LOG_ENABLE", "1", Any, Switch, Effect::Warned(log_enable)),
        declaration("SCR_USER_NAME", "", Any, PathName, acts("user in the names of control and cache directories")),
        declaration("SCR_JOB_ID", "", Any, PathName, acts(job_id)),
        declaration("CACHEDESC", "", Files, Text, acts("keys `base` and `keep` of `checkpoint.cache[n]`")),
        declaration("CKPTDESC", "", Files, Text, acts("keys of `checkpoint.redundancy[n]`")),
        declaration("SCR_GLOBAL_RESTART", "0", Any, Switch, Effect::Refused(no_global_restart)),
        declaration(
            "SCR_CRC_ON_DELETE",
            "0",
            Any,
            Switch,
            Effect::Warned("files are not read before they are deleted"),
        ),
        declaration("SCR_TRANSFER_SECS", "60", Any, Counting, Effect::Warned(no_flush_poll)),
        declaration("SCR_RUNS", "", Environment, Signed, acts("key `relaunch.attempts`: one less")),
        declaration("SCR_NODELIST", "", Environment, Hosts, Effect::Warned("the nodes are those of the allocation")),
        declaration("SCR_CONF_FILE", "", Environment, Text, acts("path of the user's file")),
        declaration("SCR_DB_ENABLE", "0", Any, Text, Effect::Warned(NO_DATABASE)),
        declaration("SCR_DB_DEBUG", "0", Any, Text, Effect::Warned(NO_DATABASE)),
        declaration("SCR_DB_HOST", "", Any, Text, Effect::Warned(NO_DATABASE)),
        declaration("SCR_DB_USER", "", Any, Text, Effect::Warned(NO_DATABASE)),
        declaration("SCR_DB_PASS", "", Any, Text, Effect::Warned(NO_DATABASE)),
        declaration("SCR_DB_NAME", "", Any, Text, Effect::Warned(NO_DATABASE)),
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
