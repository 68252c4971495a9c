//! The node's name and address. All agents of a Slurm step get the same start message, and each finds its own name and
//! the address at which the others reach it.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use holdfast_model::NodeName;
use holdfast_wire::run::{AgentStart, NODE_PLACEHOLDER, NodeIdentitySource};

/// Slurm's name of the node that a task is on.
pub(crate) const SLURM_NODE: &str = "SLURMD_NODENAME";
/// The address of the machine on which `srun` runs.
const SLURM_LAUNCHER: &str = "SLURM_LAUNCH_NODE_IPADDR";
/// Any port will do: nothing is sent.
const NO_PORT: u16 = 9;

/// Why the agent cannot find its name or address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    #[error("{variable} is not set: this agent was not started as a task of a Slurm step")]
    Missing { variable: &'static str },
    #[error("{variable} is {value:?}, which is not an address; is this version of Slurm supported?")]
    Malformed { variable: &'static str, value: String },
    #[error("this node has no route to {launcher}, from which its agent was started: {source}; check its network")]
    NoRoute { launcher: IpAddr, source: io::Error },
}

/// Completes a start message that does not contain the node's name and address.
///
/// # Errors
/// [`IdentityError`].
pub fn settle(start: &mut AgentStart, variable: impl Fn(&str) -> Option<String>) -> Result<(), IdentityError> {
    if start.identity == NodeIdentitySource::Given {
        return Ok(());
    }
    let read = |name| variable(name).filter(|value| !value.is_empty()).ok_or(IdentityError::Missing { variable: name });
    let node = read(SLURM_NODE)?;
    let launcher = read(SLURM_LAUNCHER)?;
    let launcher: IpAddr =
        launcher.parse().map_err(|_| IdentityError::Malformed { variable: SLURM_LAUNCHER, value: launcher.clone() })?;
    let address = address_toward(launcher).map_err(|source| IdentityError::NoRoute { launcher, source })?;
    let named = |base: &str| base.replace(NODE_PLACEHOLDER, &node);
    start.control_base = named(&start.control_base);
    start.cache_bases = start.cache_bases.iter().map(|(base, bytes)| (named(base), *bytes)).collect();
    start.listen = SocketAddr::new(address, start.listen.port());
    start.node = NodeName::new(node);
    Ok(())
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

    fn start() -> AgentStart {
        let text = r#"{"version": 1, "job": "heat", "job_id": "17", "user": "user1", "node": "", "root": null,
            "identity": "slurm", "control_base": "/tmp/{node}", "cache_bases": {"/scratch/{node}": 5, "/dev/shm": null},
            "control_bytes": null, "listen": "127.0.0.1:0",
            "trust": {"certificate": "", "key": "", "token": ""}, "disk_timeout": 30000, "abandon_after": 60000}"#;
        serde_json::from_str(text).unwrap()
    }

    fn slurm(name: &str) -> Option<String> {
        match name {
            SLURM_NODE => Some("n3".to_owned()),
            SLURM_LAUNCHER => Some("127.0.0.1".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn an_agent_of_a_slurm_step_takes_name_and_address_from_its_environment() {
        let mut start = start();
        settle(&mut start, slurm).unwrap();
        assert_eq!(start.node, NodeName::new("n3"));
        assert_eq!(start.control_base, "/tmp/n3");
        assert_eq!(start.cache_bases.keys().collect::<Vec<_>>(), ["/dev/shm", "/scratch/n3"]);
        assert_eq!(start.listen, "127.0.0.1:0".parse().unwrap());
    }

    #[test]
    fn a_given_identity_is_not_changed() {
        let mut start = AgentStart { identity: NodeIdentitySource::Given, node: NodeName::new("node0"), ..start() };
        settle(&mut start, slurm).unwrap();
        assert_eq!(start.node, NodeName::new("node0"));
        assert_eq!(start.control_base, "/tmp/{node}");
    }

    #[test]
    fn a_missing_variable_of_slurm_is_named() {
        let error = settle(&mut start(), |_| None).unwrap_err();
        assert!(error.to_string().contains(SLURM_NODE), "{error}");
        let without_launcher = |name: &str| slurm(name).filter(|_| name == SLURM_NODE);
        let error = settle(&mut start(), without_launcher).unwrap_err();
        assert!(error.to_string().contains(SLURM_LAUNCHER), "{error}");
    }
}
