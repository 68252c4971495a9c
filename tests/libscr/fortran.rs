//! Programs in Fortran that are linked with libscr.

use crate::world::{Link, World, exits_with, needs, sum};

#[test]
fn fortran_program_restarts_from_named_checkpoint_after_node_loss(world: &World) {
    needs("gfortran");
    let program = world.compile("gfortran", "fortran.f90", Link::Shared);
    let command = [program.to_str().unwrap(), &world.results()];
    world.finishes(&command, "", "{node: 1, during: encode, checkpoint: 3}");
    world.assert_results(|rank| format!("{} 2 step 2", sum(rank, 5)));
    let names: Vec<String> = world.named_on_prefix().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["step 1", "step 2", "step 3", "step 4", "step 5"], "all of them are output too");
}

#[test]
fn fortran_program_is_linked_with_lscrf_alone() {
    needs("gfortran");
    for link in [Link::Fortran, Link::StaticFortran] {
        let world = World::new();
        let program = world.compile("gfortran", "lengths.f90", link);
        exits_with(&world.run(&[program.to_str().unwrap(), &world.results()], "", ""), 0);
        assert_eq!(world.result(5), "41");
    }
}

#[test]
fn fortran_character_arguments_of_any_length_are_read_and_filled(world: &World) {
    needs("gfortran");
    let program = world.compile("gfortran", "lengths.f90", Link::Shared);
    let output = exits_with(&world.run(&[program.to_str().unwrap(), &world.results()], "", ""), 0);
    world.assert_results(|_| "41".to_owned());
    assert!(output.contains("SCR_ROUTE_FILE") && output.contains("summary.scr"), "{output}");
}
