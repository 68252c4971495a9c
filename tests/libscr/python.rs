//! Python programs.

use crate::world::{World, in_repository, library_directory, needs, sum};

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
