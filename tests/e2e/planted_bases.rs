//! On nodes of their own, another user has made the directory that Holdfast would make below a base: `/tmp/<user>`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use crate::devices::{ADDRESSES, Machines};
use crate::world::{OTHER_USER, Ran, USER, World};

/// Runs a job of one rank with these bases of control directory and cache.
fn run(world: &World, machines: &Machines<'_>, control: &str, cache: &str) -> Ran {
    let program = env!("CARGO_BIN_EXE_holdfast");
    let text = format!(
        "job: heat\nprefix: {}\nallocation: {{{}}}\nrun:\n  nodes: 1\n  command: [{program}, example, heat, \
         --step-delay, '0', --steps, '10', --checkpoint-every, '5']\ncheckpoint:\n  control: {{base: {control}}}\n  \
         cache: [{{base: {cache}}}]\n",
        world.prefix().display(),
        machines.allocation()
    );
    let spec = world.write("job.yaml", &text);
    let _ = fs::remove_file(world.prefix().join(".holdfast/events.jsonl"));
    world.run(machines.command(program).args(["run", "--again"]).arg(spec))
}

/// Another user makes the directory, with a mode that permits everything.
fn plant(machines: &Machines<'_>, device: usize) {
    let planted = machines.path(device, &Path::new("/tmp").join(USER));
    fs::create_dir(&planted).unwrap();
    chown(&planted, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o777)).unwrap();
}

#[test(unchecked)]
fn a_node_where_another_user_made_the_directory_of_the_user_is_down_with_the_reason(world: &World) {
    let machines = Machines::new(world);
    let found = "/tmp/u belongs to user id 65534";
    let remedy = "have it removed, or choose another directory";
    plant(&machines, 0);
    for (control, why) in [("/tmp", "agent_not_started"), ("/run", "health")] {
        run(world, &machines, control, "/tmp").with_code(0).prints(&[ADDRESSES[0], found, remedy]);
        let down = world.the("node_down");
        assert_eq!((&down["node"], &down["why"]), (&ADDRESSES[0].into(), &why.into()));
    }
    plant(&machines, 1);
    for control in ["/tmp", "/run"] {
        run(world, &machines, control, "/tmp").with_code(69).prints(&[ADDRESSES[0], ADDRESSES[1], found, remedy]);
    }
    // What is to be done, where root does not remove it.
    run(world, &machines, "/run", "/run").with_code(0);
    assert!(world.all("node_down").is_empty());
    for device in 0..2 {
        assert_eq!(fs::read_dir(machines.path(device, Path::new("/tmp/u"))).unwrap().count(), 0);
    }
}
