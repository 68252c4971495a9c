//! `holdfast drain` with a list of hosts, of which some cannot be reached, in an allocation of which Holdfast has no
//! state.

use std::fs;

use serde_json::json;

use crate::devices::{ADDRESSES, Machines};
use crate::pfs;
use crate::world::World;

#[test(unchecked)]
fn drain_over_ssh_needs_no_number_of_hosts(world: &World) {
    let mut machines = Machines::new(world);
    let program = env!("CARGO_BIN_EXE_holdfast");
    let heat = format!(
        "exec {program} example heat --step-delay 0 --steps 40 --size 24x24 --checkpoint-every 5 --hold-at 20 \
         --until {} --output {} --address 192.0.2.$((HOLDFAST_RANK + 1))",
        world.path("go-on").display(),
        world.path("end.heat").display(),
    );
    let spec = format!(
        "prefix: {:?}\nallocation: {{{}}}\nrun: {{nodes: 2, command: [sh, -c, {heat:?}]}}\n\
         checkpoint: {{redundancy: [{{scheme: partner}}], flush: {{every: 0}}}}\nhealth: {{down_after: 10s}}\n",
        world.prefix(),
        machines.allocation(),
    );
    let spec = world.write("job.yaml", &spec);
    let mut running = world.start(machines.command(program).arg("run").arg(&spec));
    running.sees_checkpoint(4);
    let state = world.state();
    let (job_id, user) = (&state["agents"]["job_id"], &state["agents"]["user"]);
    running.killed();
    // As if a script had started the ranks.
    fs::rename(world.prefix().join(".holdfast"), world.path("state")).unwrap();
    let drain = |machines: &Machines<'_>| {
        let mut command = machines.command(program);
        command.args(["drain", "--json"]).arg(&spec);
        command.env("SCR_JOB_ID", job_id.as_str().unwrap()).env("SCR_USER_NAME", user.as_str().unwrap());
        command
    };
    machines.kill(1);
    let drained = world.run(drain(&machines)).with_code(0).json();
    assert_eq!((&drained["checkpoint"], &drained["complete"]), (&json!(4), &json!(true)), "{drained:#}");
    assert_eq!(drained["copied_ranks"], json!([0, 1]), "{drained:#}");
    let failed = drained["failed_nodes"].as_object().unwrap();
    assert_eq!(failed.keys().collect::<Vec<_>>(), [ADDRESSES[1]], "{drained:#}");
    pfs::assert_current(&world.prefix(), 4);
    machines.kill(0);
    world.run(drain(&machines)).with_code(69).prints(&["0 of 2 hosts can be used, and 1 must be"]);
}
