//! What README.md promises of `configs/quickstart.yaml`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::world::World;

#[test]
fn quick_start_loses_two_nodes_and_has_the_result_of_one_process(world: &World) {
    let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/quickstart.yaml");
    // The steps take a fifth of the time.
    let spec = fs::read_to_string(spec).unwrap();
    let spec = spec.replace(r#"--steps, "400"]"#, r#"--steps, "400", --step-delay, 10ms]"#);
    assert!(spec.contains("--step-delay"), "{spec}");
    fs::create_dir(world.path("configs")).unwrap();
    let spec = world.write("configs/quickstart.yaml", &spec);
    let ran = || world.run(world.holdfast(["run".as_ref(), spec.as_os_str()])).with_code(0);
    ran().prints(&["the job is finished"]);
    let events = world.events_of(&world.path("heat-run"));
    let all = |name: &str| events.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    let down: Vec<&Value> = all("node_down").iter().map(|event| &event["node"]).collect();
    assert_eq!(down, ["node1", "node3"]);
    let restarted = all("restarted");
    assert_eq!(restarted.iter().map(|event| &event["source"]).collect::<Vec<_>>(), ["fresh", "rebuilt", "rebuilt"]);
    assert_eq!(all("generation_ended").len(), 3);

    let mut alone = world.holdfast(["example", "heat", "--step-delay", "0"]);
    alone.env("SCR_ENABLE", "0");
    let alone = world.run(alone).with_code(0).out;
    let checksum = alone.lines().find(|line| line.contains("checksum")).unwrap();
    let output = fs::read_to_string(world.path("heat-run/.holdfast/generations/3/rank_0.out")).unwrap();
    assert!(output.contains(checksum), "{checksum:?} is not in {output:?}");
    assert!(world.path("heat-run/end.heat").exists());

    ran().prints(&["the job was finished in an earlier run; `holdfast run --again` repeats it"]);
}
