//! The whole application, several ranks as threads, against a small agent that keeps checkpoints in one directory:
//! what holds of the application whatever agent serves it.

mod small_agent;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser as _;
use holdfast_client::CheckpointId;

use crate::field;
use crate::geometry::Size;
use crate::simulation::run_in;
use crate::slab::tests::reference;
use crate::{HeatArgs, HeatError, HeatInitArgs};
use small_agent::SmallAgent;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    heat: HeatArgs,
}

fn args(line: &str) -> HeatArgs {
    Line::try_parse_from(format!("heat --step-delay 0 {line}").split_whitespace()).unwrap().heat
}

/// One run of all ranks: how each ended, and what rank 0 said.
fn launch(agent: &mut SmallAgent, args: &HeatArgs) -> (Vec<Result<(), HeatError>>, String) {
    agent.next_generation();
    let ranks: Vec<_> = (0..agent.ranks())
        .map(|rank| {
            let (args, surroundings) = (args.clone(), agent.surroundings(rank));
            std::thread::spawn(move || {
                let mut said = Vec::new();
                let ended = run_in(&args, surroundings, &mut said);
                (ended, String::from_utf8(said).unwrap())
            })
        })
        .collect();
    let mut ended: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    let said = std::mem::take(&mut ended[0].1);
    assert!(ended.iter().all(|(_, said)| said.is_empty()), "only rank 0 reports");
    (ended.into_iter().map(|(ended, _)| ended).collect(), said)
}

fn succeed(agent: &mut SmallAgent, args: &HeatArgs) -> String {
    let (ended, said) = launch(agent, args);
    for (rank, ended) in ended.into_iter().enumerate() {
        if let Err(error) = ended {
            panic!("rank {rank}: {error}\n{said}");
        }
    }
    said
}

fn assert_result(path: &Path, size: Size, steps: u64) {
    let cells = reference(size, steps);
    let header = field::Header { size, step: steps, crc: field::checksum(&cells) };
    let expected = [header.encode().to_vec(), field::to_bytes(&cells)].concat();
    assert!(std::fs::read(path).unwrap() == expected, "{} differs from the undisturbed result", path.display());
}

const SIZE: Size = Size { width: 14, height: 17 };
const LINE: &str = "--size 14x17 --steps 60 --checkpoint-every 10";

fn output_in(directory: &Path) -> PathBuf {
    directory.join("end.heat")
}

fn with_output(line: &str, directory: &Path) -> HeatArgs {
    let mut args = args(line);
    args.output = Some(output_in(directory));
    args
}

#[test]
fn the_result_is_the_same_file_on_any_number_of_ranks() {
    let mut last_lines = Vec::new();
    for ranks in [1, 2, 3, 5, 17] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(output_in(directory.path()), "of an earlier job").unwrap();
        let mut agent = SmallAgent::new(ranks);
        let said = succeed(&mut agent, &with_output(LINE, directory.path()));
        assert_result(&output_in(directory.path()), SIZE, 60);
        assert!(agent.finalized());
        assert_eq!(agent.checkpoints(), (1..=6).map(CheckpointId).collect::<Vec<_>>());
        last_lines.push(said.lines().last().unwrap().to_owned());
        let files: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(files.len(), 1, "nothing is left beside the output");
    }
    let expected = format!("heat: finished step 60, checksum {:#010x}", field::checksum(&reference(SIZE, 60)));
    assert!(last_lines.iter().all(|line| *line == expected), "{last_lines:?}");
}

#[test]
fn a_run_that_lost_a_rank_goes_on_from_its_checkpoint_to_the_undisturbed_result() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = SmallAgent::new(3);
    let broken = args(&format!("{LINE} --exit-at 37 --exit-rank 1 --exit-code 7"));
    let (ended, _) = launch(&mut agent, &broken);
    let codes: Vec<_> = ended.iter().map(|ended| ended.as_ref().unwrap_err().exit_code()).collect();
    assert_eq!(codes, [1, 7, 1]);
    for neighbour in [&ended[0], &ended[2]] {
        let error = neighbour.as_ref().unwrap_err();
        assert!(matches!(error, HeatError::NeighbourLost { step: 37, .. }), "{error}");
    }
    assert!(!agent.finalized());

    let said = succeed(&mut agent, &with_output(LINE, directory.path()));
    assert!(said.starts_with("heat: restarted from checkpoint 3 at step 30\n"), "{said}");
    assert_result(&output_in(directory.path()), SIZE, 60);
}

#[test]
fn a_damaged_file_of_one_rank_sends_all_ranks_back_to_an_older_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = SmallAgent::new(3);
    launch(&mut agent, &args(&format!("{LINE} --exit-at 37 --files-per-rank 4")));
    let file = agent.directory(CheckpointId(3)).join("rank_2.1.ckpt");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    std::fs::remove_file(agent.directory(CheckpointId(2)).join("rank_0.3.ckpt")).unwrap();

    // The files say how many they are, the command line only how many the next checkpoint gets.
    let said = succeed(&mut agent, &with_output(LINE, directory.path()));
    let expected = "heat: checkpoint 3 cannot be used, trying 2\nheat: checkpoint 2 cannot be used, trying 1\n\
                    heat: restarted from checkpoint 1 at step 10\n";
    assert!(said.starts_with(expected), "{said}");
    assert_result(&output_in(directory.path()), SIZE, 60);
}

#[test]
fn a_checkpoint_of_another_problem_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = SmallAgent::new(2);
    launch(&mut agent, &args("--size 14x18 --steps 10 --checkpoint-every 10 --no-finalize"));
    let said = succeed(&mut agent, &with_output(LINE, directory.path()));
    assert!(said.starts_with("heat: checkpoint 1 cannot be used\nheat: started afresh"), "{said}");
    assert_result(&output_in(directory.path()), SIZE, 60);
}

#[test]
fn the_input_file_is_read_by_all_ranks_and_a_damaged_row_stops_them_all() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("start.heat");
    crate::run_init(&HeatInitArgs { size: SIZE, file: input.clone() }).unwrap();
    let mut with_input = with_output("--steps 60 --checkpoint-every 10", directory.path());
    with_input.input = Some(input.clone());
    succeed(&mut SmallAgent::new(3), &with_input);
    assert_result(&output_in(directory.path()), SIZE, 60);

    let mut wrong_size = with_input.clone();
    wrong_size.size = Some(Size { width: 14, height: 16 });
    let mut bytes = std::fs::read(&input).unwrap();
    let end = bytes.len() - 3;
    bytes[end] ^= 4;
    std::fs::write(&input, bytes).unwrap();
    for args in [with_input, wrong_size] {
        let (ended, _) = launch(&mut SmallAgent::new(3), &args);
        for ended in ended {
            let error = ended.unwrap_err();
            assert!(matches!(error, HeatError::Input { .. }), "{error}");
        }
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_reported_and_the_work_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = SmallAgent::new(2);
    agent.refuse_writes(CheckpointId(2));
    let said = succeed(&mut agent, &with_output(LINE, directory.path()));
    assert!(said.contains("heat: checkpoint 2 at step 20 was dropped\n"), "{said}");
    assert_eq!(agent.checkpoints(), [1, 3, 4, 5, 6].map(CheckpointId));
    assert_result(&output_in(directory.path()), SIZE, 60);
}

#[test]
fn a_halt_ends_the_run_after_the_checkpoint_and_a_later_one_at_once_and_the_job_is_not_finished() {
    let mut agent = SmallAgent::new(3);
    agent.halt_after(CheckpointId(4));
    let said = succeed(&mut agent, &args(LINE));
    assert!(said.ends_with("heat: checkpoint 4 at step 40\nheat: halted at step 40: JOB_HALTED\n"), "{said}");
    assert_eq!(succeed(&mut agent, &args(LINE)), "heat: halted before the first step: JOB_HALTED\n");
    assert!(!agent.finalized());
}

#[test]
fn an_output_that_cannot_be_written_is_an_error_on_every_rank_and_the_job_is_not_finished() {
    let mut agent = SmallAgent::new(3);
    let (ended, said) = launch(&mut agent, &with_output(LINE, Path::new("/proc/no/such/directory")));
    assert!(matches!(ended[0], Err(HeatError::File { .. })), "{:?}", ended[0]);
    assert!(ended[1..].iter().all(|ended| matches!(ended, Err(HeatError::OtherRank { .. }))));
    assert!(!agent.finalized() && !said.contains("finished"));
}

#[test]
fn the_options_for_tests_do_what_they_say() {
    let mut agent = SmallAgent::new(2);
    succeed(&mut agent, &args("--size 9x9 --steps 20 --never-checkpoint --no-finalize"));
    assert!(agent.checkpoints().is_empty() && !agent.finalized());

    // The small agent needs a checkpoint at every seventh question.
    let said = succeed(&mut agent, &args("--size 9x9 --steps 20 --need"));
    assert!(said.contains("checkpoint 1 at step 7\n") && said.contains("checkpoint 2 at step 14\n"), "{said}");

    let directory = tempfile::tempdir().unwrap();
    let mut hold = args("--size 9x9 --steps 20 --never-checkpoint --hold-at 15 --until x");
    let until = directory.path().join("go");
    hold.until = Some(until.clone());
    let holding = std::thread::spawn(move || {
        let mut agent = SmallAgent::new(1);
        succeed(&mut agent, &hold)
    });
    assert!(!holding.is_finished());
    std::fs::write(until, "").unwrap();
    assert!(holding.join().unwrap().contains("heat: holding at step 15\n"));
}

#[test]
fn alone_and_switched_off_it_computes_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let mut surroundings = SmallAgent::new(1).surroundings(0);
    surroundings.agent = None;
    surroundings.reconnect = Duration::ZERO;
    let args = with_output(LINE, directory.path());
    run_in(&args, surroundings, &mut Vec::new()).unwrap();
    assert_result(&output_in(directory.path()), SIZE, 60);
}

#[test]
fn more_ranks_than_rows_is_an_error_that_says_so() {
    let (ended, _) = launch(&mut SmallAgent::new(4), &args("--size 9x3"));
    let error = ended[0].as_ref().unwrap_err();
    assert!(error.to_string().contains("4 ranks cannot share 3 rows"), "{error}");
}
