//! How a launcher that starts its own daemons (mpirun) reaches a node.

use std::path::Path;

use holdfast_model::NodeName;

use crate::spec::{SshAccess, SshHost};

/// The prefix of a command line for a shell on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteShell {
    /// A program and its options; the command line follows as the last argument.
    pub words: Vec<String>,
    /// True if the command line inherits the environment of this program.
    pub inherits: bool,
}

impl RemoteShell {
    /// A separate step on the node, overlapping others. It needs no keys and no sshd.
    pub fn over_srun(node: &NodeName, login_shell: Option<&str>) -> Self {
        let words = [
            "srun",
            "--overlap",
            // The daemon and its ranks get all resources of the job on the node, not those of one task.
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
        // The task number of the daemon must not be mistaken for the rank of its children.
        words.extend(["env", "-u", "SLURM_PROCID", "-u", "SLURM_LOCALID"].map(str::to_owned));
        words.extend([shell_for(login_shell).to_owned(), "-c".to_owned()]);
        RemoteShell { words, inherits: true }
    }

    /// The ssh client of this machine, with the settings of the spec only.
    pub fn over_ssh(host: &SshHost, access: &SshAccess) -> Self {
        let seconds = access.connect_timeout.as_secs().max(1);
        let mut words: Vec<String> =
            ["ssh", "-x", "-n", "-F", "none", "-o", "BatchMode=yes"].map(str::to_owned).to_vec();
        let mut option = |text: String| words.extend(["-o".to_owned(), text]);
        option("StrictHostKeyChecking=yes".to_owned());
        option(format!("ConnectTimeout={seconds}"));
        // Without it, the client would wait for hours for a lost machine.
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

/// Open MPI writes its command line for the user's login shell: `sh`, except for csh and tcsh.
fn shell_for(login_shell: Option<&str>) -> &str {
    let name = |path: &str| Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
    match login_shell {
        Some(path) if name(path).is_some_and(|name| name == "csh" || name == "tcsh") => path,
        _ => "sh",
    }
}

/// The option accepts several files, separated by blanks.
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
    fn a_step_overlaps_others() {
        let shell = RemoteShell::over_srun(&"n5".into(), Some("/bin/bash"));
        assert!(has(&shell, &["--overlap"]) && has(&shell, &["--nodelist=n5"]) && has(&shell, &["--mpi=none"]));
        assert!(shell.inherits);
        assert_eq!(shell.words[shell.words.len() - 2..], ["sh", "-c"]);
    }

    #[test]
    fn csh_and_tcsh_run_their_own_command_lines() {
        let shell = RemoteShell::over_srun(&"n5".into(), Some("/usr/bin/tcsh"));
        assert_eq!(shell.words[shell.words.len() - 2..], ["/usr/bin/tcsh", "-c"]);
        assert!(has(&RemoteShell::over_srun(&"n5".into(), None), &["sh", "-c"]));
    }

    #[test]
    fn ssh_gets_the_settings_of_the_spec_and_never_prompts() {
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
