//! Names that other programs have for keys, and the keys of a spec that they stand for. They are unknown keys; the
//! help names the right one.

/// Section, names, key.
const NAMES: [(&str, &[&str], &str); 8] = [
    ("checkpoint", &["interval", "frequency", "period", "seconds", "checkpoint_interval"], "every"),
    ("run", &["program", "executable", "exec", "app", "args", "arguments"], "command"),
    ("run", &["tasks", "ntasks", "processes", "np", "n"], "ranks"),
    ("run", &["tasks_per_node", "ntasks_per_node", "processes_per_node", "ppn"], "ranks_per_node"),
    ("run", &["environment", "variables"], "env"),
    ("run", &["cwd", "workdir", "working_directory", "chdir"], "directory"),
    ("allocation", &["scheduler", "resource_manager", "batch_system"], "manager"),
    ("allocation", &["walltime", "time", "timelimit"], "time_limit"),
];

/// The key of a section that an unknown key stands for. The path of the section is that of one step or of the job.
pub(super) fn key_for(section: &str, written: &str) -> Option<&'static str> {
    let section = section.rsplit('.').next().unwrap_or(section);
    let written = written.to_lowercase().replace('-', "_");
    let stands_for = |(of, names, _): &&(&str, &[&str], &str)| *of == section && names.contains(&written.as_str());
    NAMES.iter().find(stands_for).map(|(_, _, key)| *key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_programs_lead_to_the_key() {
        assert_eq!(key_for("checkpoint", "interval"), Some("every"));
        assert_eq!(key_for("steps[1].checkpoint", "Interval"), Some("every"));
        assert_eq!(key_for("run", "ntasks-per-node"), Some("ranks_per_node"));
        assert_eq!(key_for("run", "interval"), None);
        assert_eq!(key_for("", "interval"), None);
    }
}
