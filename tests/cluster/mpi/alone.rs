//! MPI programs that srun starts without Holdfast.

use super::{MPICH, Mpi, OPEN_MPI, switched_off};

fn without_an_agent(mpi: Mpi) {
    let cluster = crate::cluster();
    let program = mpi.compile_c(&cluster);
    let srun = format!("{} {program} own 20 result", mpi.srun_alone(4));
    let (output, code) = cluster.as_user("alone", &[], &format!("timeout 30 {srun}; code=$?; ls; exit $code"));
    assert!(output.contains("SCR_Init: this program needs a Holdfast agent"), "{output}");
    assert!(output.contains("holdfast run -- PROGRAM") && output.contains("SCR_ENABLE=0"), "{output}");
    assert!(code != 0 && !output.lines().any(|line| line == "result"), "{code}: {output}");

    // When disabled, every call succeeds, no checkpoint is due, and output is written where the program routes it.
    let (output, _) = cluster.as_user("alone", &[], &format!("{}; ls; cat result", switched_off(&srun, "result")));
    assert!(output.contains(" 4 ranks from 0 -"), "{output}");
    for rank in 0..4 {
        let is_cell = |line: &str| line.starts_with("cell_") && line.ends_with(&format!("_{rank}.txt"));
        assert!(output.lines().any(is_cell), "{output}");
    }
    assert!(!output.contains("SCR:"), "{output}");
}

#[test]
fn open_mpi_program_without_agent_reports_what_is_missing_and_runs_disabled() {
    without_an_agent(OPEN_MPI);
}

#[test]
fn mpich_program_without_agent_reports_what_is_missing_and_runs_disabled() {
    without_an_agent(MPICH);
}
