//! MPI programs that srun starts without Holdfast.

use super::{MPICH, Mpi, OPEN_MPI, switched_off};

fn without_an_agent(mpi: Mpi) {
    let cluster = crate::cluster();
    let program = mpi.compile_c(&cluster);
    let srun = format!("srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --mpi={} {program} own 20 result", mpi.plugin);
    let (said, code) = cluster.as_user("alone", &[], &format!("timeout 30 {srun}; code=$?; ls; exit $code"));
    assert!(said.contains("SCR_Init: this program needs a Holdfast agent"), "{said}");
    assert!(said.contains("holdfast run -- PROGRAM") && said.contains("SCR_ENABLE=0"), "{said}");
    assert!(code != 0 && !said.lines().any(|line| line == "result"), "{code}: {said}");

    // Switched off, every call succeeds, no checkpoint is due, and output is where the program puts it.
    let (said, _) = cluster.as_user("alone", &[], &format!("{}; ls; cat result", switched_off(&srun, "result")));
    assert!(said.contains(" 4 ranks from 0 -"), "{said}");
    for rank in 0..4 {
        assert!(said.lines().any(|line| line == format!("cell_{rank}.txt")), "{said}");
    }
    assert!(!said.contains("SCR:"), "{said}");
}

#[test]
fn an_open_mpi_program_without_an_agent_is_told_what_is_missing_and_runs_switched_off() {
    without_an_agent(OPEN_MPI);
}

#[test]
fn an_mpich_program_without_an_agent_is_told_what_is_missing_and_runs_switched_off() {
    without_an_agent(MPICH);
}
