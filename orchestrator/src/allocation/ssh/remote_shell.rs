//! How a launcher starts its own daemons on a host.

use std::path::Path;

use super::hosts::{SshAccess, SshHost};
use crate::allocation::nodes::RemoteShell;

/// The ssh client of this machine, with the settings of the spec only.
pub(super) fn remote_shell(host: &SshHost, access: &SshAccess) -> RemoteShell {
    let seconds = access.connect_timeout.as_secs().max(1);
    let mut words: Vec<String> = ["ssh", "-x", "-n", "-F", "none", "-o", "BatchMode=yes"].map(str::to_owned).to_vec();
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
    fn ssh_gets_the_settings_of_the_spec_and_never_prompts() {
        let host = SshHost { name: "n5".to_owned(), user: Some("anna".to_owned()), port: 2222 };
        let access = SshAccess {
            identity: Some("/k/id".into()),
            known_hosts: Some("/k/known hosts".into()),
            connect_timeout: Duration::from_millis(2500),
            ..SshAccess::default()
        };
        let shell = remote_shell(&host, &access);
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
