//! Programs in Fortran that are linked with libscr.

use crate::world::{Link, World, needs, output, sum};

#[test]
fn fortran_program_restarts_from_named_checkpoint_after_node_loss() {
    needs("gfortran");
    let world = World::new();
    let program = world.compile("gfortran", "fortran.f90", Link::Shared);
    let command = [program.to_str().unwrap(), &world.results()];
    world.finishes(&command, "", "{node: 1, during: encode, checkpoint: 3}");
    for rank in 0..6 {
        assert_eq!(world.result(rank), format!("{} 2 step 2", sum(rank, 5)));
    }
    let names: Vec<String> = world.named_on_prefix().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["step 1", "step 2", "step 3", "step 4", "step 5"], "all of them are output too");
}

#[test]
fn fortran_program_is_linked_with_lscrf_alone() {
    needs("gfortran");
    for link in [Link::Fortran, Link::StaticFortran] {
        let world = World::new();
        let program = world.compile("gfortran", "lengths.f90", link);
        let ran = world.run(&[program.to_str().unwrap(), &world.results()], "", "");
        assert_eq!(ran.status.code(), Some(0), "{}", output(&ran));
        assert_eq!(world.result(5), "41");
    }
}

#[test]
fn fortran_character_arguments_of_any_length_are_read_and_filled() {
    needs("gfortran");
    let world = World::new();
    let program = world.compile("gfortran", "lengths.f90", Link::Shared);
    let ran = world.run(&[program.to_str().unwrap(), &world.results()], "", "");
    let output = output(&ran);
    assert_eq!(ran.status.code(), Some(0), "{output}");
    for rank in 0..6 {
        assert_eq!(world.result(rank), "41");
    }
    assert!(output.contains("SCR_ROUTE_FILE") && output.contains("summary.scr"), "{output}");
}
