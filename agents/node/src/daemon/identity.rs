//! The node's name and address, if one start message goes to the agents of many nodes: each finds its own name and the
//! address at which the others reach it, in the way that the message says.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use holdfast_model::NodeName;
use holdfast_wire::run::{AgentStart, Lookup, NODE_PLACEHOLDER};

/// Any port will do: nothing is sent.
const NO_PORT: u16 = 9;

/// Why the agent cannot find its name or address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    #[error("{0} is not set: this agent was not started by the resource manager that its start message is for")]
    Missing(String),
    #[error("the command {command:?} for the {what} failed: {source}; check that this node has it")]
    Command { what: &'static str, command: String, source: io::Error },
    #[error("{value:?} is not an address ({what}); is this version of the resource manager supported?")]
    Malformed { what: &'static str, value: String },
    #[error("this node has no route to {launcher}, from which its agent was started: {source}; check its network")]
    NoRoute { launcher: IpAddr, source: io::Error },
}

/// Completes a start message that does not contain the node's name and address.
pub fn settle(start: &mut AgentStart, variable: impl Fn(&str) -> Option<String>) -> Result<(), IdentityError> {
    let Some(shared) = &start.shared else { return Ok(()) };
    let node = look_up(&shared.node, "name of the node", &variable)?;
    let what = "address of the machine that starts agents";
    let launcher = look_up(&shared.toward, what, &variable)?;
    let launcher: IpAddr = launcher.parse().map_err(|_| IdentityError::Malformed { what, value: launcher.clone() })?;
    let address = address_toward(launcher).map_err(|source| IdentityError::NoRoute { launcher, source })?;
    let named = |base: &str| base.replace(NODE_PLACEHOLDER, &node);
    start.control_base = named(&start.control_base);
    start.cache_bases = start.cache_bases.iter().map(|(base, bytes)| (named(base), *bytes)).collect();
    start.listen = SocketAddr::new(address, start.listen.port());
    start.node = NodeName::new(node);
    Ok(())
}

fn look_up(
    lookup: &Lookup,
    what: &'static str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, IdentityError> {
    match lookup {
        Lookup::Variable(name) => {
            variable(name).filter(|value| !value.is_empty()).ok_or_else(|| IdentityError::Missing(name.clone()))
        }
        Lookup::Command(words) => {
            first_line(words).map_err(|source| IdentityError::Command { what, command: words.join(" "), source })
        }
    }
}

/// The first line that a command prints.
fn first_line(words: &[String]) -> io::Result<String> {
    let (program, arguments) = words.split_first().ok_or_else(|| io::Error::other("it is empty"))?;
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().map(str::trim).filter(|line| !line.is_empty());
    match line {
        Some(line) if output.status.success() => Ok(line.to_owned()),
        Some(_) => Err(io::Error::other(output.status.to_string())),
        None => Err(io::Error::other(format!("{}, and nothing was printed", output.status))),
    }
}

/// The local address of the route to another machine. To connect a datagram socket sends nothing: the system only looks
/// up the route.
fn address_toward(machine: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match machine {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((machine, NO_PORT))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(shared: serde_json::Value) -> AgentStart {
        serde_json::from_value(serde_json::json!({
            "version": 1, "job": "heat", "job_id": "17", "user": "user1", "node": "node0", "root": null,
            "shared": shared, "control_base": "/tmp/{node}", "cache_bases": {"/scratch/{node}": 5, "/dev/shm": null},
            "control_bytes": null, "listen": "127.0.0.1:0",
            "trust": {"certificate": "", "key": "", "token": ""}, "disk_timeout": 30000, "abandon_after": 60000
        }))
        .unwrap()
    }

    fn looked_up(node: serde_json::Value) -> AgentStart {
        let toward = serde_json::json!({"variable": "HEAD"});
        start(serde_json::json!({"node": node, "toward": toward, "logs": "/l", "is_signalled_with_job": true}))
    }

    fn variables(name: &str) -> Option<String> {
        match name {
            "OWN_NODE" => Some("n3".to_owned()),
            "HEAD" => Some("127.0.0.1".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn agents_of_one_message_find_name_and_address_in_variables_or_by_a_command() {
        for node in [
            serde_json::json!({"variable": "OWN_NODE"}),
            serde_json::json!({"command": ["printf", "%s\\n", "n3", "more"]}),
        ] {
            let mut start = looked_up(node);
            settle(&mut start, variables).unwrap();
            assert_eq!(start.node, NodeName::new("n3"));
            assert_eq!(start.control_base, "/tmp/n3");
            assert_eq!(start.cache_bases.keys().collect::<Vec<_>>(), ["/dev/shm", "/scratch/n3"]);
            assert_eq!(start.listen, "127.0.0.1:0".parse().unwrap());
        }
    }

    #[test]
    fn a_given_identity_is_not_changed() {
        let mut start = start(serde_json::Value::Null);
        settle(&mut start, variables).unwrap();
        assert_eq!(start.node, NodeName::new("node0"));
        assert_eq!(start.control_base, "/tmp/{node}");
    }

    #[test]
    fn what_cannot_be_looked_up_is_named() {
        let refused = |start: &mut AgentStart, variable: fn(&str) -> Option<String>| {
            settle(start, variable).unwrap_err().to_string()
        };
        let error = refused(&mut looked_up(serde_json::json!({"variable": "OWN_NODE"})), |_| None);
        assert!(error.starts_with("OWN_NODE is not set"), "{error}");
        let error = refused(&mut looked_up(serde_json::json!({"command": ["true"]})), variables);
        assert!(error.contains("\"true\"") && error.contains("nothing was printed"), "{error}");
        let error = refused(&mut looked_up(serde_json::json!({"command": ["sh", "-c", "echo n3; exit 4"]})), variables);
        assert!(error.contains("exit status: 4"), "{error}");
        let only_node: fn(&str) -> Option<String> = |name| (name == "OWN_NODE").then(|| "n3".to_owned());
        let error = refused(&mut looked_up(serde_json::json!({"variable": "OWN_NODE"})), only_node);
        assert!(error.starts_with("HEAD is not set"), "{error}");
    }
}
