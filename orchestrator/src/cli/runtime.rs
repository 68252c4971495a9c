//! What the commands that talk to agents share: threads, the internal log, the style of the screen.

use std::future::{Future, poll_fn};
use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::task::Poll;

use holdfast_core::workers;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::failure::Failure;
use super::log_lines::LogLines;
use super::output::{Report, Style};
use crate::events::{OutputNotShown, Screen, ScreenStyle};
use crate::exit;
use crate::params::value;
use crate::spec::Environment;

/// The variable with the log filter: `debug`, `info,holdfast::drain=trace`, ….
const LOG_VARIABLE: &str = "HOLDFAST_LOG";
/// Lines of the internal log that may wait. Their places take 32 bytes each from the start, whether used or not.
const LINES_WAITING: usize = 8192;

/// Whose internal log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogOf {
    /// It is a file for diagnosing failures, so its default level is more detailed.
    Agent,
    /// It draws on the whole terminal: lines that would go there wait until the end.
    WholeTerminal,
    Other,
}

/// The internal log. On drop, what is left is written, for a second at most.
pub(super) struct Log {
    // In this order: the worker writes what it still has into the held lines.
    _worker: WorkerGuard,
    _held: Option<HeldLines>,
}

/// Starts the internal log on standard error, with the filter of HOLDFAST_LOG, or else at the level that SCR_DEBUG asks
/// for. A separate thread writes the lines and drops them when too many wait, because standard error may be a file on a
/// parallel file system that hangs.
pub(super) fn start_log(of: LogOf) -> Log {
    let written = std::env::var(LOG_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let (chosen, mistake) = match written.as_deref().map(filter) {
        Some(Ok(filter)) => (Some(filter), None),
        Some(Err(directive)) => (None, Some(directive)),
        None => (None, None),
    };
    let filter = chosen.unwrap_or_else(|| {
        let debug = Environment::value_of_process("SCR_DEBUG").and_then(|text| value::whole(&text));
        Targets::new().with_default(level(of == LogOf::Agent, debug.unwrap_or_default()))
    });
    let held = (of == LogOf::WholeTerminal && io::stderr().is_terminal()).then(HeldLines::default);
    let start = || {
        let builder = NonBlockingBuilder::default().buffered_lines_limit(LINES_WAITING);
        match &held {
            None => builder.finish(io::stderr()),
            Some(held) => builder.finish(held.writer()),
        }
    };
    let (writer, worker) = workers::start_or_exit(start);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false).event_format(LogLines);
    let log = tracing_subscriber::registry().with(lines).with(filter);
    // Fails only if the process has a log already.
    let _ = log.try_init();
    if let Some(directive) = mistake {
        tracing::warn!(
            "{LOG_VARIABLE} has no effect: `{directive}` is neither a level (off, error, warn, info, debug, trace) nor \
             `module=level`, such as `holdfast::drain=debug`"
        );
    }
    Log { _worker: worker, _held: held }
}

/// Lines that are written to standard error on drop, the first ones of too many.
#[derive(Default)]
struct HeldLines(Arc<Mutex<Vec<u8>>>);

impl HeldLines {
    const MOST_BYTES: usize = 64 << 10;

    fn writer(&self) -> HeldWriter {
        HeldWriter(Arc::clone(&self.0))
    }
}

impl Drop for HeldLines {
    fn drop(&mut self) {
        // Nothing reports that the log cannot be written.
        let _ = io::stderr().write_all(&self.0.lock());
    }
}

struct HeldWriter(Arc<Mutex<Vec<u8>>>);

impl Write for HeldWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut held = self.0.lock();
        if held.len() + line.len() <= HeldLines::MOST_BYTES {
            held.extend_from_slice(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The filter of HOLDFAST_LOG, or the part of it that has no meaning. Of a module without a level all lines are shown;
/// modules are those of the crates of Holdfast and of what they use.
fn filter(text: &str) -> Result<Targets, String> {
    let is_known = |part: &&str| {
        let part = part.trim();
        part.parse::<LevelFilter>().is_ok() || part.starts_with("holdfast") || part.contains('=')
    };
    match (text.split(',').find(|part| !is_known(part)), text.parse()) {
        (None, Ok(filter)) => Ok(filter),
        (wrong, _) => Err(wrong.unwrap_or(text).to_owned()),
    }
}

/// The level of the internal log with this value of SCR_DEBUG.
fn level(agent: bool, debug: u64) -> LevelFilter {
    let asked = match debug {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    if agent { asked.max(LevelFilter::INFO) } else { asked }
}

fn no_threads(error: io::Error) -> Failure {
    Failure::new(exit::UNAVAILABLE, "cannot start threads").because(error).remedy(workers::RAISE_LIMITS)
}

/// Runs asynchronous work to its end.
pub(super) fn block_on<R>(work: impl Future<Output = R>) -> Result<R, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = holdfast_agent::daemon::runtime::start(builder.enable_all().thread_name("holdfast"));
    let runtime = runtime.map_err(no_threads)?;
    let result = runtime.block_on(work);
    // File work that hangs on a dead file system must not keep the process.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    Ok(result)
}

/// Runs long work that is shown on a screen, then writes its result. A standard output that is closed early, or that
/// accepts nothing for too long, changes nothing in what is returned; the output of ranks that is only in their files
/// is returned beside it.
pub(super) fn with_screen<R, W>(
    style: Style,
    work: impl FnOnce(Screen) -> W,
) -> Result<(R, Option<OutputNotShown>), Failure>
where
    R: Report,
    W: Future<Output = Result<R, Failure>>,
{
    let screen = Screen::new(ScreenStyle {
        quiet: style.is_quiet(),
        document: matches!(style, Style::Json { .. }),
        labels: matches!(style, Style::Human { verbose: true } | Style::Json { verbose: true, .. }),
    });
    let screen = screen.map_err(no_threads)?;
    block_on(async {
        let report = work(screen.clone()).await;
        let mut result = Vec::new();
        let rendered = report.as_ref().map_or(Ok(()), |report| style.write(report, &mut result));
        let (written, not_shown) = screen.close(result, interrupt()).await;
        match rendered.and(written) {
            Err(error) if report.is_ok() && error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => report.map(|report| (report, not_shown)),
        }
    })?
}

/// Completes with the next signal that asks the process to end.
async fn interrupt() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut signals: Vec<_> = signals.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    poll_fn(|context| match signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_levels_and_modules_and_names_the_part_without_meaning() {
        for text in ["debug", "off", "warn,holdfast::drain=trace", "holdfast_agent", " info , hyper=off"] {
            assert!(filter(text).is_ok(), "{text}");
        }
        assert_eq!(filter("verbose").unwrap_err(), "verbose");
        assert_eq!(filter("info,drain").unwrap_err(), "drain");
        assert_eq!(filter("holdfast=loud").unwrap_err(), "holdfast=loud");
    }

    #[test]
    fn scr_debug_raises_the_level_and_agents_log_what_happens_without_it() {
        let levels = |agent| [0, 1, 2, 3, 9].map(|debug| level(agent, debug));
        let (warn, info, debug, trace) = (LevelFilter::WARN, LevelFilter::INFO, LevelFilter::DEBUG, LevelFilter::TRACE);
        assert_eq!(levels(false), [warn, info, debug, trace, trace]);
        assert_eq!(levels(true), [info, info, debug, trace, trace]);
    }
}
