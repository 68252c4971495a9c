//! Programs that another launch would not help: they are not relaunched.

use crate::world::World;

/// A rank without API that runs this shell command.
fn runs(world: &World, command: &str) -> std::path::PathBuf {
    let spec = format!(
        "job: plain\nprefix: {:?}\nallocation: {{manager: local, nodes: 1}}\nrun: {{command: [sh, -c, {command:?}]}}\n\
         relaunch: {{attempts: 1}}\n",
        world.prefix()
    );
    world.write("job.yaml", &spec)
}

#[test]
fn a_program_that_cannot_be_loaded_is_not_relaunched() {
    for code in [126, 127] {
        let world = World::new();
        let spec = runs(&world, &format!("echo 'libm.so.6: cannot open shared object file' >&2; exit {code}"));
        world.run(world.holdfast(["run".as_ref(), spec.as_os_str()])).with_code(69).prints(&[
            "not relaunched, because another launch would end in the same way: rank 0 failed",
            &format!("exit code {code}: the program, or a library that it needs, cannot be loaded"),
        ]);
        assert_eq!(world.all("generation_launched").len(), 1);
    }
}

/// A node without the program is no reason to give up a job that was loaded before.
#[test(unchecked)]
fn a_later_generation_that_cannot_be_loaded_is_relaunched(world: &World) {
    let spec = runs(world, "case $HOLDFAST_GENERATION in 1) exit 3;; *) exit 127;; esac");
    world.run(world.holdfast(["run".as_ref(), spec.as_os_str()])).with_code(90).prints(&["gave up after 1 relaunch"]);
    assert_eq!(world.all("generation_launched").len(), 2);
}
