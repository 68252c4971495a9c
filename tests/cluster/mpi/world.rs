//! A program whose ranks form one world; it shows where they run and how they end.

use std::collections::BTreeMap;

pub use holdfast_testkit::cluster::NODES;
use holdfast_testkit::cluster::{Cluster, Job, until};

use super::Mpi;

const SOURCE: &str = include_str!("../programs/world.c");

/// Compiles the program with this MPI.
fn program(mpi: Mpi, cluster: &Cluster) -> String {
    let directory = format!("world-{}", mpi.name);
    let command = format!("mpicc.{} -o world world.c", mpi.name);
    let (output, code) = cluster.as_user(&directory, &[("world.c", SOURCE)], &command);
    assert_eq!(code, 0, "{output}");
    format!("/pfs/{directory}/world")
}

/// A job of it on three nodes with two ranks each.
fn spec(mpi: Mpi, cluster: &Cluster, allocation: &str, arguments: &str) -> String {
    let program = program(mpi, cluster);
    mpi.launches(&format!(
        "job: world\nprefix: ./heat-run\nallocation: {allocation}\n\
         run:\n  nodes: 3\n  ranks_per_node: 2\n  command: [{program}{arguments}]\n  env: {{GREETING: hello}}\n"
    ))
}

/// Submits it on this many first nodes.
pub fn submit<'a>(mpi: Mpi, cluster: &'a Cluster, name: &str, arguments: &str, nodes: u32) -> Job<'a> {
    let spec = spec(mpi, cluster, "{manager: slurm}", arguments);
    let options = format!("--nodelist=n[1-{nodes}] --ntasks-per-node=2 --time=10");
    cluster.submit(&format!("{name}-{}", mpi.name), &spec, &options, "holdfast --verbose run job.yaml")
}

/// Submits it on all nodes, with ranks that compute together for so many seconds without a pause.
pub fn submit_spinning<'a>(mpi: Mpi, cluster: &'a Cluster, name: &str, seconds: u32) -> Job<'a> {
    let spec = spec(mpi, cluster, "{manager: slurm}", &format!(", spin, \"{seconds}\""));
    let spec = spec.replace("nodes: 3", "nodes: 6").replace("hello", "hello, OMPI_MCA_mpi_yield_when_idle: \"0\"");
    cluster.submit(name, &spec, "--nodes=6 --ntasks-per-node=2 --time=10", "holdfast --verbose run job.yaml")
}

/// Runs it on five hosts, without Slurm.
pub fn over_ssh<'a>(mpi: Mpi, cluster: &'a Cluster, name: &str, arguments: &str) -> Job<'a> {
    let allocation = "{manager: ssh, hosts: ['n[1-5]'], ssh: {known_hosts: known_hosts}}";
    let spec = spec(mpi, cluster, allocation, arguments);
    let files = [("job.yaml", spec.as_str()), ("known_hosts", &cluster.known_hosts("ed25519"))];
    cluster.without_slurm(&format!("{name}-{}", mpi.name), &files, "holdfast --verbose run job.yaml")
}

/// Rank and node as printed by the ranks of a generation; all of them printed the right size and sum.
pub fn homes(output: &str, generation: u64) -> BTreeMap<u32, String> {
    let mut homes = BTreeMap::new();
    for line in output.lines().filter(|line| line.contains(&format!("world {generation}: "))) {
        let (label, output) = line.split_once("] world ").unwrap_or_else(|| panic!("no label: {line}"));
        let label: u32 = label.trim_start_matches('[').trim().parse().unwrap();
        assert!(output.contains(&format!(": {label} of 6 on ")), "{line}");
        assert!(output.ends_with(&format!("sum 15, holdfast says {label}, hello")), "{line}");
        let node = output.split(" on ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        homes.insert(label, node.to_owned());
    }
    homes
}

/// The expected output for ranks that are placed on these nodes in order.
pub fn expected(nodes: [&str; 6]) -> BTreeMap<u32, String> {
    (0..).zip(nodes).map(|(rank, node)| (rank, node.to_owned())).collect()
}

/// Waits until no daemon, rank or remote shell is left on these machines.
pub fn nothing_is_left(cluster: &Cluster, machines: &[&str]) {
    for machine in machines {
        until(&format!("the end of what mpirun started on {machine}"), || {
            let processes = cluster.on(machine, "ps -eo args");
            let names =
                ["orted", "hydra_pmi_proxy", "mpiexec", "mpirun", "remote-shell", "holdfast rank", "holdfast step"];
            !names.iter().any(|name| processes.lines().any(|line| line.contains(name) && !line.contains("sbatch")))
        });
    }
}
