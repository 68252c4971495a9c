//! The complete application, with ranks as threads, and a small agent that stores checkpoints in one directory.

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

/// One launch of all ranks: the result of each, and the output of rank 0.
fn launch(agent: &mut SmallAgent, args: &HeatArgs) -> (Vec<Result<(), HeatError>>, String) {
    agent.next_generation();
    let ranks: Vec<_> = (0..agent.ranks())
        .map(|rank| {
            let (args, environment) = (args.clone(), agent.environment(rank));
            std::thread::spawn(move || {
                let mut output = Vec::new();
                let ended = run_in(&args, environment, &mut output);
                (ended, String::from_utf8(output).unwrap())
            })
        })
        .collect();
    let mut ended: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    let output = std::mem::take(&mut ended[0].1);
    assert!(ended.iter().all(|(_, output)| output.is_empty()), "only rank 0 reports");
    (ended.into_iter().map(|(ended, _)| ended).collect(), output)
}

fn succeed(agent: &mut SmallAgent, args: &HeatArgs) -> String {
    let (ended, output) = launch(agent, args);
    for (rank, ended) in ended.into_iter().enumerate() {
        if let Err(error) = ended {
            panic!("rank {rank}: {error}\n{output}");
        }
    }
    output
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
fn output_file_is_independent_of_number_of_ranks() {
    let mut last_lines = Vec::new();
    for ranks in [1, 2, 3, 5, 17] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(output_in(directory.path()), "of an earlier job").unwrap();
        let mut agent = SmallAgent::new(ranks);
        let output = succeed(&mut agent, &with_output(LINE, directory.path()));
        assert_result(&output_in(directory.path()), SIZE, 60);
        assert!(agent.finalized());
        assert_eq!(agent.checkpoints(), (1..=6).map(CheckpointId).collect::<Vec<_>>());
        last_lines.push(output.lines().last().unwrap().to_owned());
        let files: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(files.len(), 1, "no other file is left");
    }
    let expected = format!("heat: finished step 60, checksum {:#010x}", field::checksum(&reference(SIZE, 60)));
    assert!(last_lines.iter().all(|line| *line == expected), "{last_lines:?}");
}

#[test]
fn restarts_from_checkpoint_after_loss_of_rank_with_same_result() {
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

    let output = succeed(&mut agent, &with_output(LINE, directory.path()));
    assert!(output.starts_with("heat: restarted from checkpoint 3 at step 30\n"), "{output}");
    assert_result(&output_in(directory.path()), SIZE, 60);
}

#[test]
fn damaged_file_of_one_rank_makes_all_ranks_use_older_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = SmallAgent::new(3);
    launch(&mut agent, &args(&format!("{LINE} --exit-at 37 --files-per-rank 4")));
    let file = agent.directory(CheckpointId(3)).join("rank_2.1.ckpt");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    std::fs::remove_file(agent.directory(CheckpointId(2)).join("rank_0.3.ckpt")).unwrap();

    // The number of files is read from the checkpoint; the command line only sets that of the next one.
    let output = succeed(&mut agent, &with_output(LINE, directory.path()));
    let expected = "heat: checkpoint 3 cannot be used, trying 2\nheat: checkpoint 2 cannot be used, trying 1\n\
                    heat: restarted from checkpoint 1 at step 10\n";
    assert!(output.starts_with(expected), "{output}");
    assert_result(&output_in(directory.path()), SIZE, 60);
}

#[test]
fn does_not_use_checkpoint_of_another_problem() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = SmallAgent::new(2);
    launch(&mut agent, &args("--size 14x18 --steps 10 --checkpoint-every 10 --no-finalize"));
    let output = succeed(&mut agent, &with_output(LINE, directory.path()));
    assert!(output.starts_with("heat: checkpoint 1 cannot be used\nheat: started from the beginning"), "{output}");
    assert_result(&output_in(directory.path()), SIZE, 60);
}

#[test]
fn damaged_row_of_input_file_stops_all_ranks() {
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
fn continues_after_failed_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = SmallAgent::new(2);
    agent.refuse_writes(CheckpointId(2));
    let output = succeed(&mut agent, &with_output(LINE, directory.path()));
    assert!(output.contains("heat: checkpoint 2 at step 20 was dropped\n"), "{output}");
    assert_eq!(agent.checkpoints(), [1, 3, 4, 5, 6].map(CheckpointId));
    assert_result(&output_in(directory.path()), SIZE, 60);
}

#[test]
fn halt_ends_run_after_checkpoint_and_next_run_at_once_without_finishing() {
    let mut agent = SmallAgent::new(3);
    agent.halt_after(CheckpointId(4));
    let output = succeed(&mut agent, &args(LINE));
    assert!(output.ends_with("heat: checkpoint 4 at step 40\nheat: halted at step 40: JOB_HALTED\n"), "{output}");
    assert_eq!(succeed(&mut agent, &args(LINE)), "heat: halted before the first step: JOB_HALTED\n");
    assert!(!agent.finalized());
}

#[test]
fn unwritable_output_is_an_error_on_every_rank() {
    let mut agent = SmallAgent::new(3);
    let (ended, output) = launch(&mut agent, &with_output(LINE, Path::new("/proc/no/such/directory")));
    assert!(matches!(ended[0], Err(HeatError::File { .. })), "{:?}", ended[0]);
    assert!(ended[1..].iter().all(|ended| matches!(ended, Err(HeatError::OtherRank { .. }))));
    assert!(!agent.finalized() && !output.contains("finished"));
}

#[test]
fn options_for_tests_inject_faults() {
    let mut agent = SmallAgent::new(2);
    succeed(&mut agent, &args("--size 9x9 --steps 20 --never-checkpoint --no-finalize"));
    assert!(agent.checkpoints().is_empty() && !agent.finalized());

    // In the small agent a checkpoint is due at every seventh call.
    let output = succeed(&mut agent, &args("--size 9x9 --steps 20 --need"));
    assert!(output.contains("checkpoint 1 at step 7\n") && output.contains("checkpoint 2 at step 14\n"), "{output}");

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
fn computes_the_same_alone_with_api_disabled() {
    let directory = tempfile::tempdir().unwrap();
    let mut environment = SmallAgent::new(1).environment(0);
    environment.agent = None;
    environment.reconnect = Duration::ZERO;
    let args = with_output(LINE, directory.path());
    run_in(&args, environment, &mut Vec::new()).unwrap();
    assert_result(&output_in(directory.path()), SIZE, 60);
}

#[test]
fn rejects_more_ranks_than_rows() {
    let (ended, _) = launch(&mut SmallAgent::new(4), &args("--size 9x3"));
    let error = ended[0].as_ref().unwrap_err();
    assert!(error.to_string().contains("4 ranks cannot share 3 rows"), "{error}");
}
