//! The command line of the heat application.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::geometry::Size;

/// Compute a 2-D heat equation on several ranks, with checkpoints.
///
/// One slab of rows a rank. Rank 0 prints the checksum of the final field, which depends neither on the number of ranks
/// nor on failures during the run. Started by `holdfast run`, or alone with SCR_ENABLE=0.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = "Examples:
  holdfast run -- holdfast example heat --steps 400
  holdfast run -- holdfast example heat --input start.heat --output end.heat --checkpoint-every 10
  SCR_ENABLE=0 holdfast example heat --steps 100 --step-delay 0

The options from --exit-at on inject failures.")]
pub struct HeatArgs {
    /// Steps to compute.
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub steps: u64,

    /// Columns and rows of the field [default: those of the input file, or 256x256].
    #[arg(long, value_name = "WxH")]
    pub size: Option<Size>,

    /// Read the initial field from this file, written by `holdfast example heat-init` or --output. Without it, the
    /// field that heat-init writes is computed in memory.
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// Write the final field to this file; an existing regular file is replaced at the end, anything else is refused.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Take a checkpoint every N steps.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub checkpoint_every: u64,

    /// Take a checkpoint whenever the API reports that one is due (SCR_CHECKPOINT_INTERVAL, _SECONDS, _OVERHEAD).
    #[arg(long, conflicts_with_all = ["checkpoint_every", "never_checkpoint"])]
    pub need: bool,

    /// Take no checkpoint.
    #[arg(long, conflicts_with = "checkpoint_every")]
    pub never_checkpoint: bool,

    /// Divide each rank's checkpoint into K files.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub files_per_rank: u32,

    /// Save variables in memory instead of files: for a job with `checkpoint: {source: variables}`.
    #[arg(long, conflicts_with = "files_per_rank")]
    pub variables: bool,

    /// The levels of checkpoints of variables, used in turn: 1 local, 2 partner, 3 parity, 4 flushed.
    #[arg(long, value_name = "LEVEL", default_value = "3", value_delimiter = ',', requires = "variables",
        value_parser = clap::value_parser!(u32).range(1..=4))]
    pub level: Vec<u32>,

    /// Wait this long in each step, to simulate a larger field.
    #[arg(long, value_name = "DURATION", default_value = "40ms", value_parser = humantime::parse_duration)]
    pub step_delay: Duration,

    /// The address of this node for its neighbours [default: the address of its host name; 127.0.0.1 on virtual nodes].
    #[arg(long, value_name = "IP")]
    pub address: Option<IpAddr>,

    /// End with an error at this step, every time.
    #[arg(long, value_name = "STEP")]
    pub exit_at: Option<u64>,

    /// The exit code of that error.
    #[arg(long, value_name = "CODE", default_value_t = 1, requires = "exit_at")]
    pub exit_code: u8,

    /// Only this rank ends with an error [default: all ranks].
    #[arg(long, value_name = "RANK", requires = "exit_at")]
    pub exit_rank: Option<u32>,

    /// End with exit code 0 without calling finalize.
    #[arg(long)]
    pub no_finalize: bool,

    /// Wait at this step until the file of --until exists; without --until, forever.
    #[arg(long, value_name = "STEP")]
    pub hold_at: Option<u64>,

    /// Block forever at this step, the first time: a rank continues if its file of --hang-once exists.
    #[arg(long, value_name = "STEP", requires = "hang_once")]
    pub hang_at: Option<u64>,

    /// Only this rank hangs [default: all ranks].
    #[arg(long, value_name = "RANK", requires = "hang_at")]
    pub hang_rank: Option<u32>,

    /// The file that a rank creates before it hangs; the rank's number is appended to the name.
    #[arg(long, value_name = "FILE", requires = "hang_at")]
    pub hang_once: Option<PathBuf>,

    /// Compute for this long at the step of --hang-at, without a call of the API, instead of blocking.
    #[arg(long, value_name = "DURATION", requires = "hang_at", value_parser = humantime::parse_duration)]
    pub hang_busy: Option<Duration>,

    /// Continue from --hold-at when this file exists.
    #[arg(long, value_name = "FILE", requires = "hold_at")]
    pub until: Option<PathBuf>,
}

/// Write the initial field of the heat application to a file.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = "Example:
  holdfast example heat-init --size 1024x512 start.heat")]
pub struct HeatInitArgs {
    /// Columns and rows of the field.
    #[arg(long, value_name = "WxH", default_value_t = Size::DEFAULT)]
    pub size: Size,

    /// The file to write; an existing regular file is replaced, anything else is refused.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        heat: HeatArgs,
    }

    fn parse(line: &str) -> Result<HeatArgs, clap::Error> {
        Line::try_parse_from(format!("heat {line}").split_whitespace()).map(|line| line.heat)
    }

    #[test]
    fn command_line_is_consistent_and_has_defaults() {
        <Line as clap::CommandFactory>::command().debug_assert();
        let plain = parse("").unwrap();
        assert_eq!((plain.steps, plain.checkpoint_every, plain.files_per_rank), (400, 20, 1));
        assert_eq!(plain.step_delay, Duration::from_millis(40));
    }

    #[test]
    fn parses_every_option() {
        let args = parse(
            "--steps 7 --size 30x40 --input a --output b --checkpoint-every 3 --files-per-rank 2 --step-delay 1.5s \
             --address 10.0.0.7 --exit-at 5 --exit-code 3 --exit-rank 1 --no-finalize --hold-at 4 --until c \
             --hang-at 3 --hang-rank 2 --hang-once d --hang-busy 2s",
        )
        .unwrap();
        assert_eq!(args.size, Some(Size { width: 30, height: 40 }));
        assert_eq!((args.exit_at, args.exit_code, args.exit_rank), (Some(5), 3, Some(1)));
        assert_eq!((args.hang_at, args.hang_rank, args.hang_busy), (Some(3), Some(2), Some(Duration::from_secs(2))));
        assert_eq!(args.step_delay, Duration::from_millis(1500));
        assert!(parse("--need --step-delay 0").unwrap().need);
        assert_eq!(parse("--variables").unwrap().level, [3]);
        assert_eq!(parse("--variables --level 1,4").unwrap().level, [1, 4]);
    }

    #[test]
    fn rejects_invalid_values() {
        for line in [
            "--size 30",
            "--size 2x30",
            "--size 0x0",
            "--checkpoint-every 0",
            "--files-per-rank 0",
            "--step-delay 40",
            "--need --never-checkpoint",
            "--need --checkpoint-every 2",
            "--exit-code 3",
            "--until x",
            "--hang-at 3",
            "--hang-once x",
            "--level 2",
            "--variables --level 5",
            "--variables --files-per-rank 2",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
