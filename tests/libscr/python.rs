//! Programs in Python that use the module `scr`.

use crate::world::{World, in_repository, library_directory, needs, output, sum};

#[test]
fn examples_restart_after_node_loss() {
    needs("python3");
    for example in ["torchrun_style.py", "mpi4py_style.py"] {
        let world = World::new();
        let module = in_repository("agents/client/python");
        let library = library_directory().join("libscr.so");
        let program = module.join("examples").join(example);
        let command = [
            "env",
            &format!("PYTHONPATH={}", module.display()),
            &format!("HOLDFAST_LIBSCR={}", library.display()),
            "PYTHONDONTWRITEBYTECODE=1",
            "python3",
            program.to_str().unwrap(),
            "--steps",
            "6",
            "--results",
            &world.results(),
        ];
        world.finishes(&command, "", "{node: 1, during: encode, checkpoint: 4}");
        for rank in 0..6 {
            assert_eq!(world.result(rank), format!("{} 3 step.3", sum(rank, 6)), "{example}");
        }
        assert_eq!(world.current(), "step.6");
    }
}

#[test]
fn python_program_gets_exception_for_name_that_no_checkpoint_can_contain(world: &World) {
    needs("python3");
    let module = in_repository("agents/client/python");
    let library = library_directory().join("libscr.so");
    let program = in_repository("tests/libscr/programs/names.py");
    let ran = world.run(
        &[
            "env",
            &format!("PYTHONPATH={}", module.display()),
            &format!("HOLDFAST_LIBSCR={}", library.display()),
            "PYTHONDONTWRITEBYTECODE=1",
            "python3",
            program.to_str().unwrap(),
            &world.results(),
            "out/summary.scr",
            &"n".repeat(252),
            "1_of_3_in_0.xor",
        ],
        "",
        "",
    );
    let output = output(&ran);
    assert_eq!(ran.status.code(), Some(0), "{output}");
    world.assert_results(|_| "3".to_owned());
    assert!(output.contains("redundancy file of scheme XOR"), "{output}");
    assert_eq!(world.current(), "state");
}
