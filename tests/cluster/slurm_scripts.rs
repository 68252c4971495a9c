//! The scripts of `playbooks/` for Slurm, run by slurmd: Prolog and HealthCheckProgram drain a node whose directories
//! cannot be used, the Epilog removes what a drained job left and nothing else.

use std::path::Path;

use holdfast_testkit::cluster::{Cluster, Job, NODES, assert_contains, heat_of, until};

use crate::kept_caches::HOLDS;

const SCRIPTS: &str = "/opt/holdfast/share/holdfast/slurm";
/// The site's file of the installation in `/opt/holdfast`, and the bases that the tests write to it.
const SITE: &str = "/opt/holdfast/etc";
const CONTROL: &str = "/var/lib/control";
/// A file system of 4 MB in each node.
const CACHE: &str = "/small";
/// What a node's cache contains beside the job's directories.
const CLEAR: &str = "rm -rf /small/* /var/lib/control /var/tmp/moved; chmod 1777 /small";

/// The cluster with these lines in the slurm.conf of all machines, and with a site's file; removed when dropped.
struct Site<'a>(&'a Cluster);

impl<'a> Site<'a> {
    fn new(cluster: &'a Cluster, lines: &[&str]) -> Site<'a> {
        Site::with_cache(cluster, CACHE, lines)
    }

    fn with_cache(cluster: &'a Cluster, cache: &str, lines: &[&str]) -> Site<'a> {
        let site = Site(cluster);
        for name in ["check-node.sh", "epilog.sh"] {
            let roles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../playbooks/roles");
            cluster.share(&roles.join("installation/files/slurm").join(name), &format!("{SCRIPTS}/{name}"));
        }
        let parameters = format!("SCR_CNTL_BASE={CONTROL}\\nSCR_CACHE_BASE={cache}\\nSCR_CACHE_SIZE=1\\n");
        let message =
            cluster.on("ctl", &format!("mkdir -p {SITE}/holdfast && printf '{parameters}' >{SITE}/holdfast/scr.conf"));
        assert_eq!(message, "");
        for node in NODES {
            assert_eq!(cluster.on(node, &format!("{CLEAR}; install -d -m 1777 {CONTROL}")), "", "on {node}");
        }
        let added: Vec<String> = lines.iter().map(|line| format!("echo {line} >>slurm.conf")).collect();
        let add = format!("cd /etc/slurm && cp slurm.conf slurm.conf.before && {}", added.join(" && "));
        // `docker/cluster heal` restores all machines if the controller's file is there.
        for machine in ["ctl"].into_iter().chain(NODES) {
            assert_eq!(cluster.on(machine, &add), "", "on {machine}");
        }
        site.reconfigure();
        site
    }

    /// Returns when all of Slurm's daemons have read their files.
    fn reconfigure(&self) {
        let read = "grep -c 'Node configuration differs' /var/log/slurm/slurmd.log";
        let before = NODES.map(|node| self.0.on(node, read));
        self.0.on("ctl", "scontrol reconfigure");
        until("the configuration of the nodes", || {
            NODES.iter().zip(&before).all(|(node, before)| self.0.on(node, read) != *before)
        });
    }

    /// The reason for which a node is drained.
    fn reason(&self, node: &str) -> String {
        self.0.on("ctl", &format!("sinfo -h -R -n {node} -o %E"))
    }

    fn wait_for_reason(&self, node: &str, parts: &[&str]) {
        until(&format!("a reason of {node}"), || !self.reason(node).is_empty());
        assert_contains(&self.reason(node), parts);
        until(&format!("the drain of {node}"), || {
            self.0.on("ctl", &format!("sinfo -h -n {node} -o %T")).starts_with("drained")
        });
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        let restore = "cd /etc/slurm; [ ! -e slurm.conf.before ] || mv slurm.conf.before slurm.conf";
        for node in NODES {
            self.0.on(node, &format!("{restore}; {CLEAR}"));
        }
        self.0.on("ctl", &format!("{restore}; rm -rf {SITE} /opt/holdfast/share; scontrol reconfigure"));
    }
}

#[test(crate::cluster)]
fn health_check_drains_nodes_with_full_missing_or_read_only_directories(cluster: &Cluster) {
    let check = format!("HealthCheckProgram={SCRIPTS}/check-node.sh");
    let site = Site::new(cluster, &[&check, "HealthCheckInterval=2", "HealthCheckNodeState=IDLE"]);
    // The reason of an administrator stays.
    cluster.on("ctl", "scontrol update NodeName=n5 State=DRAIN Reason=broken-fan");
    cluster.on("n2", &format!("chmod 755 {CACHE}"));
    cluster.on("n3", &format!("dd if=/dev/zero of={CACHE}/full bs=1M"));
    cluster.on("n4", &format!("rmdir {CONTROL}"));
    cluster.on("n5", &format!("chmod 755 {CACHE}"));
    site.wait_for_reason("n2", &["holdfast: /small cannot be used", "Permission denied"]);
    site.wait_for_reason("n3", &["holdfast: /small cannot be used", "No space left on device"]);
    site.wait_for_reason("n4", &["holdfast: /var/lib/control cannot be used", "Permission denied"]);
    assert_eq!(site.reason("n5"), "broken-fan\n");
    for node in ["n1", "n6"] {
        assert_eq!(site.reason(node), "", "{node}");
    }
    // Repaired, and resumed.
    cluster.on("n3", &format!("rm {CACHE}/full"));
    cluster.on("ctl", "scontrol update NodeName=n3 State=RESUME");
    let job = cluster.submit("resumed", "", "--nodelist=n3 --time=10", "hostname");
    assert!(job.finish_with(0).contains("n3"));
    assert_eq!(site.reason("n3"), "");
}

#[test(crate::cluster)]
fn health_check_does_not_hang_with_a_file_system(cluster: &Cluster) {
    let mut disk = cluster.shared_disk("/frozen");
    cluster.on("ctl", "chmod 1777 /frozen");
    let check = format!("HealthCheckProgram={SCRIPTS}/check-node.sh");
    let site = Site::with_cache(cluster, "/frozen", &[&check, "HealthCheckInterval=2", "HealthCheckNodeState=IDLE"]);
    disk.freeze();
    site.wait_for_reason("n1", &["holdfast: /frozen cannot be used: no answer within 20 s"]);
    disk.thaw();
}

#[test(crate::cluster)]
fn prolog_keeps_job_away_from_node_whose_cache_cannot_be_written(cluster: &Cluster) {
    let prolog = format!("Prolog={SCRIPTS}/check-node.sh");
    let scheduler = "SchedulerParameters=sched_interval=5,bf_interval=5,batch_sched_delay=0,nohold_on_prolog_fail";
    let site = Site::new(cluster, &[&prolog, "PrologFlags=Alloc", scheduler]);
    cluster.on("n2", &format!("chmod 755 {CACHE}"));
    let options = "--nodelist=n[1-2] --requeue --time=10";
    // Slurm does not wait for the Prolog of n2 before it starts the script on n1.
    let refused = cluster.submit("refused", "", options, "sleep 300 && touch went-on");
    site.wait_for_reason("n2", &["holdfast: /small cannot be used", "Permission denied"]);
    until("the job in the queue", || {
        cluster.on("ctl", &format!("squeue -h -j {} -o '%T %r'", refused.id)).contains("PENDING")
    });
    let queued = cluster.on("ctl", &format!("squeue -h -j {} -o %r", refused.id));
    assert!(!queued.contains("Held"), "{queued}");
    assert!(!refused.run("ls").contains("went-on"));
    let job = cluster.submit("accepted", "", "--nodelist=n1 --time=10", "hostname");
    assert!(job.finish_with(0).contains("n1"));
}

#[test(crate::cluster)]
fn epilog_removes_caches_of_drained_job_and_nothing_of_others(cluster: &Cluster) {
    let epilog = format!("Epilog={SCRIPTS}/epilog.sh");
    let _site = Site::new(cluster, &[&epilog]);
    let work = "holdfast run job.yaml; echo \"run ended with $?\"; until [ -e end ]; do sleep 0.1; done";
    let spec = heat_of(&HOLDS, "");
    let job = cluster.submit("epilog", &spec, "--nodelist=n[1-5] --time=10", work);
    job.wait_for("checkpoint 4 protected");
    job.run("holdfast halt set --immediate job.yaml");
    job.wait_for("run ended with 75");
    let (control, cache) = directories(&job);
    for node in ["n1", "n2", "n3", "n4"] {
        assert!(holds(cluster, node, &control) && holds(cluster, node, &format!("{cache}/index.0")), "{node}");
    }
    // Other directories of the user, and of another job.
    let others = [format!("{cache}.kept-1"), format!("{CACHE}/user1/scr.1"), format!("{CACHE}/user2")];
    cluster.on("n1", &format!("mkdir {}", others.join(" ")));
    // The user's directory is a link of another user, or belongs to another user; so does the control directory.
    cluster.on("n2", &format!("cd {CACHE} && mv user1 moved && ln -s moved user1 && chown -h nobody user1"));
    cluster.on("n3", &format!("chown nobody {CACHE}/user1"));
    cluster.on("n4", &format!("chown nobody {control}"));
    job.run("touch end");
    job.finish_with(0);
    idle(cluster);
    for (node, directory) in [("n1", &cache), ("n1", &control), ("n2", &control), ("n3", &control), ("n5", &control)] {
        assert!(!holds(cluster, node, directory), "{directory} on {node}");
    }
    for other in &others {
        assert!(holds(cluster, "n1", other), "{other}");
    }
    assert!(holds(cluster, "n2", &format!("{}/index.0", cache.replace("user1", "moved"))));
    for (node, directory) in [("n3", &cache), ("n4", &cache), ("n4", &control)] {
        assert!(holds(cluster, node, directory), "{directory} on {node}");
    }
}

#[test(crate::cluster)]
fn epilog_keeps_checkpoint_that_is_only_in_the_caches(cluster: &Cluster) {
    let epilog = format!("Epilog={SCRIPTS}/epilog.sh");
    let _site = Site::new(cluster, &[&epilog]);
    let job = cluster.submit("undrained", &heat_of(&HOLDS, ""), "--nodelist=n[1-4] --time=10", "holdfast run job.yaml");
    job.wait_for("checkpoint 4 protected");
    cluster.on("n1", "pkill -9 -f '[h]oldfast run'");
    job.finish();
    idle(cluster);
    let (control, cache) = directories(&job);
    for node in ["n1", "n2", "n3", "n4"] {
        assert!(holds(cluster, node, &control) && holds(cluster, node, &format!("{cache}/index.0")), "{node}");
    }
    let again = format!("SLURM_JOB_USER=user1 SLURM_JOB_ID={} {SCRIPTS}/epilog.sh", job.id);
    assert_contains(&cluster.on("n2", &again), &["directories are kept: checkpoint 4 is not in the prefix directory"]);
    // A flush file that cannot be read, or is not there.
    cluster.on("n2", &format!("echo >{control}/flush.scrinfo"));
    assert_contains(&cluster.on("n2", &again), &["directories are kept:", "flush.scrinfo"]);
    cluster.on("n2", &format!("rm {control}/flush.scrinfo"));
    assert_contains(&cluster.on("n2", &again), &["directories are kept:", "is in no flush file"]);
    assert!(holds(cluster, "n2", &control));
}

/// Control and cache directory of the job on each node.
fn directories(job: &Job<'_>) -> (String, String) {
    (format!("{CONTROL}/user1/scr.{}", job.id), format!("{CACHE}/user1/scr.{}", job.id))
}

fn holds(cluster: &Cluster, node: &str, directory: &str) -> bool {
    cluster.on(node, &format!("ls -d {directory} 2>/dev/null")).contains(directory)
}

/// Waits until the Epilog has ended on all nodes: they run no job any more.
fn idle(cluster: &Cluster) {
    until("the end of the Epilog", || cluster.on("ctl", "sinfo -h -N -o %T").lines().all(|state| state == "idle"));
}
