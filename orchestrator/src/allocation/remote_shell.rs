//! How a launcher that starts daemons of its own (mpirun) gets onto a node.

use std::path::Path;

use holdfast_model::NodeName;

use crate::spec::{SshAccess, SshHost};

/// The words in front of a command line for a shell on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteShell {
    /// A program and its options; the command line is the last word behind them.
    pub words: Vec<String>,
    /// The command line runs with the environment that the words were run with.
    pub inherits: bool,
}

impl RemoteShell {
    /// A step of its own on the node, beside whatever runs there. Slurm alone is needed: no keys, no sshd.
    pub fn over_srun(node: &NodeName, login_shell: Option<&str>) -> Self {
        let words = [
            "srun",
            "--overlap",
            // The daemon and its ranks have what the job has there, not what one task of it would get.
            "--mem=0",
            "--cpu-bind=none",
            "--mpi=none",
            "--input=none",
            "--export=ALL",
            "--kill-on-bad-exit=0",
            "--quiet",
            "--job-name=holdfast-mpi",
            "--nodes=1",
            "--ntasks=1",
        ];
        let mut words: Vec<String> = words.map(str::to_owned).to_vec();
        words.push(format!("--nodelist={node}"));
        // The number of a daemon among the daemons must not be taken for the rank of what it starts.
        words.extend(["env", "-u", "SLURM_PROCID", "-u", "SLURM_LOCALID"].map(str::to_owned));
        words.extend([understands(login_shell).to_owned(), "-c".to_owned()]);
        RemoteShell { words, inherits: true }
    }

    /// The machine's own ssh client, with the spec's settings and no others.
    pub fn over_ssh(host: &SshHost, access: &SshAccess) -> Self {
        let seconds = access.connect_timeout.as_secs().max(1);
        let mut words: Vec<String> =
            ["ssh", "-x", "-n", "-F", "none", "-o", "BatchMode=yes"].map(str::to_owned).to_vec();
        let mut option = |text: String| words.extend(["-o".to_owned(), text]);
        option("StrictHostKeyChecking=yes".to_owned());
        option(format!("ConnectTimeout={seconds}"));
        // A machine that is gone must not keep the client for the hours that TCP would wait.
        option("ServerAliveInterval=15".to_owned());
        if let Some(file) = &access.known_hosts {
            option(format!("UserKnownHostsFile={}", quoted_value(file)));
            option("GlobalKnownHostsFile=none".to_owned());
        }
        if let Some(identity) = &access.identity {
            option("IdentitiesOnly=yes".to_owned());
            words.extend(["-i".to_owned(), identity.to_string_lossy().into_owned()]);
        }
        words.extend(["-p".to_owned(), host.port.to_string()]);
        if let Some(user) = &host.user {
            words.extend(["-l".to_owned(), user.clone()]);
        }
        words.push(host.name.clone());
        RemoteShell { words, inherits: false }
    }
}

/// Open MPI writes its command line for the user's login shell: only those of the C family need another than `sh`.
fn understands(login_shell: Option<&str>) -> &str {
    let name = |path: &str| Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
    match login_shell {
        Some(path) if name(path).is_some_and(|name| name == "csh" || name == "tcsh") => path,
        _ => "sh",
    }
}

/// ssh takes several files here, separated by blanks.
fn quoted_value(file: &Path) -> String {
    let text = file.to_string_lossy();
    if text.contains(' ') { format!("\"{text}\"") } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn has(shell: &RemoteShell, words: &[&str]) -> bool {
        shell.words.windows(words.len()).any(|window| window == words)
    }

    #[test]
    fn a_step_never_waits_for_the_resources_of_another() {
        let shell = RemoteShell::over_srun(&"n5".into(), Some("/bin/bash"));
        assert!(has(&shell, &["--overlap"]) && has(&shell, &["--nodelist=n5"]) && has(&shell, &["--mpi=none"]));
        assert!(shell.inherits);
        assert_eq!(shell.words[shell.words.len() - 2..], ["sh", "-c"]);
    }

    #[test]
    fn a_login_shell_of_the_c_family_gets_its_own_language() {
        let shell = RemoteShell::over_srun(&"n5".into(), Some("/usr/bin/tcsh"));
        assert_eq!(shell.words[shell.words.len() - 2..], ["/usr/bin/tcsh", "-c"]);
        assert!(has(&RemoteShell::over_srun(&"n5".into(), None), &["sh", "-c"]));
    }

    #[test]
    fn ssh_gets_what_the_spec_says_and_never_asks() {
        let host = SshHost { name: "n5".to_owned(), user: Some("anna".to_owned()), port: 2222 };
        let access = SshAccess {
            identity: Some("/k/id".into()),
            known_hosts: Some("/k/known hosts".into()),
            connect_timeout: Duration::from_millis(2500),
            ..SshAccess::default()
        };
        let shell = RemoteShell::over_ssh(&host, &access);
        for words in [
            ["-o", "BatchMode=yes"],
            ["-o", "ConnectTimeout=2"],
            ["-o", "UserKnownHostsFile=\"/k/known hosts\""],
            ["-i", "/k/id"],
            ["-p", "2222"],
            ["-l", "anna"],
        ] {
            assert!(has(&shell, &words), "{words:?}: {:?}", shell.words);
        }
        assert_eq!(shell.words.last().map(String::as_str), Some("n5"));
        assert!(!shell.inherits);
    }
}
