//! Programs that were started by hand, without an agent.

use std::process::Command;

use crate::world::{Link, World, quiet, said, sum};

#[test]
fn without_an_agent_init_says_what_is_missing() {
    let world = World::new();
    let program = world.compile("cc", "old_style.c", Link::Shared);
    let ran = quiet(Command::new(program).args(["4", &world.results()])).output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    let said = said(&ran);
    assert!(said.contains("SCR_Init") && said.contains("holdfast run") && said.contains("SCR_ENABLE=0"), "{said}");
}

#[test]
fn switched_off_the_program_runs_and_its_files_are_where_it_put_them() {
    for (source, arguments) in [("old_style.c", &["4"][..]), ("named.c", &["own", "4"])] {
        let world = World::new();
        std::fs::create_dir(world.path().join("ckpt")).unwrap();
        for step in 1..=4 {
            std::fs::create_dir(world.path().join(format!("step.{step}"))).unwrap();
        }
        let program = world.compile("cc", source, Link::Shared);
        let mut command = Command::new(program);
        command.args(arguments).arg(world.results()).current_dir(world.path());
        let ran = quiet(&mut command).env("SCR_ENABLE", "0").output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{source}: {}", said(&ran));
        assert!(world.result(0).starts_with(&format!("{} 0", sum(0, 4))), "{source}: {}", world.result(0));
        assert_eq!(source == "named.c", world.path().join("step.4/rank_0.txt").exists());
    }
}
