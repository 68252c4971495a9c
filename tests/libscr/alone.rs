//! Programs that are started without an agent.

use std::process::Command;

use crate::world::{Link, World, exits_with, output, quiet, sum};

#[test]
fn init_without_agent_reports_what_is_missing(world: &World) {
    let program = world.compile("cc", "old_style.c", Link::Shared);
    let output = exits_with(&quiet(Command::new(program).args(["4", &world.results()])).output().unwrap(), 2);
    assert!(
        output.contains("SCR_Init") && output.contains("holdfast run") && output.contains("SCR_ENABLE=0"),
        "{output}"
    );
}

#[test]
fn disabled_program_runs_and_keeps_its_file_paths() {
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
        assert_eq!(ran.status.code(), Some(0), "{source}: {}", output(&ran));
        assert!(world.result(0).starts_with(&format!("{} 0", sum(0, 4))), "{source}: {}", world.result(0));
        assert_eq!(source == "named.c", world.path().join("step.4/rank_0.txt").exists());
    }
}
