//! How a launcher starts its own daemons on a node of a Slurm job.

use holdfast_model::NodeName;

use crate::allocation::nodes::RemoteShell;
use crate::host::shell;

/// A separate step on the node, overlapping others. It needs no keys and no sshd.
pub(super) fn remote_shell(node: &NodeName, login_shell: Option<&str>) -> RemoteShell {
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
    // Open MPI writes its command line for the user's login shell.
    words.extend([shell::for_lines_of(login_shell).to_owned(), "-c".to_owned()]);
    RemoteShell { words, inherits: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(shell: &RemoteShell, words: &[&str]) -> bool {
        shell.words.windows(words.len()).any(|window| window == words)
    }

    #[test]
    fn a_step_overlaps_others() {
        let shell = remote_shell(&"n5".into(), Some("/bin/bash"));
        assert!(has(&shell, &["--overlap"]) && has(&shell, &["--nodelist=n5"]) && has(&shell, &["--mpi=none"]));
        assert!(shell.inherits);
        assert_eq!(shell.words[shell.words.len() - 2..], ["sh", "-c"]);
    }

    #[test]
    fn csh_and_tcsh_run_their_own_command_lines() {
        let shell = remote_shell(&"n5".into(), Some("/usr/bin/tcsh"));
        assert_eq!(shell.words[shell.words.len() - 2..], ["/usr/bin/tcsh", "-c"]);
        assert!(has(&remote_shell(&"n5".into(), None), &["sh", "-c"]));
    }
}
