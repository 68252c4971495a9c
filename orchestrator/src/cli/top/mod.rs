//! `holdfast top`: a running job on the whole terminal, and requests by single keys.
//!
//! [`keys`] decides what a key does and [`view`] what is drawn; this module reads keys, looks at the job each second
//! and sends requests, each on a thread of its own, so that nodes that do not answer delay no key.

mod keys;
mod view;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use holdfast_model::HaltChange;
use ratatui::Terminal;
use ratatui::backend::TermionBackend;
use ratatui::termion::event::Key;
use ratatui::termion::input::TermRead as _;
use ratatui::termion::raw::IntoRawMode as _;
use ratatui::termion::screen::IntoAlternateScreen as _;
use signal_hook::consts::{SIGHUP, SIGTERM};

use self::keys::{Effect, Keys, Request};
use self::view::Picture;
use super::checkpoint;
use super::failure::Failure;
use super::job::{JobSelection, StepSelection};
use super::nodes::{delayed_text, request_for};
use super::output::{Style, printable};
use super::running_job::RunningJob;
use super::status::look;
use crate::exit;
use crate::job::excluded_nodes::NodeRequest;
use crate::relaunch::Exclusion;
use crate::spec::Environment;

/// Watch a running job on the whole terminal; request a checkpoint, a halt or the exclusion of a node by a key
///
/// Each request is asked about before it is sent. With `group_access: status` in the spec, members of the group may
/// watch the job, too, from any machine that has the prefix directory; they can request nothing.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast top job.yaml
  holdfast top --prefix ./heat-run

Keys:
  q, Esc, Ctrl-C      quit; the job goes on
  c                   save a checkpoint now, as `holdfast checkpoint --no-wait`
  h                   stop the job at its next checkpoint, as `holdfast halt set --now`
  x, i                exclude the selected node, or include it again, as `holdfast nodes`
  up, down, k, j, PageUp, PageDown, Home, End
                      select a node
  Ctrl-L              draw everything again

NO_COLOR=1 in the environment: no colours. There is no JSON: `holdfast status --json` has what is shown.

Exit codes: 0 quit; 64 no terminal; 69 no job was run in this prefix, or its orchestrator ended unexpectedly and no \
agent answers; 78 its state belongs to another user")]
pub struct TopArgs {
    /// The job
    #[command(flatten)]
    pub job: StepSelection,
}

/// The time between two looks at the job.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Also without a key or a look, the terminal may have another size.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// The reason of an exclusion.
const REASON: &str = "by `holdfast top`";

/// What the threads report.
enum Input {
    Key(Key),
    /// Standard input has ended.
    Closed,
    Looked(Result<Box<Picture>, String>),
    /// What became of a request.
    Answered(String),
}

pub(super) fn run(args: &TopArgs, style: Style) -> Result<u8, Failure> {
    if matches!(style, Style::Json { .. }) {
        return Err(Failure::new(exit::USAGE, "`holdfast top` has no JSON").remedy("call `holdfast status --json`"));
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::new(exit::USAGE, "`holdfast top` needs a terminal for its output and its keys")
            .remedy("`holdfast status --watch` prints lines"));
    }
    let environment = Arc::new(args.job.job.environment(style)?);
    // What is wrong from the beginning is reported as by other commands.
    let picture = Picture::of(&look(&args.job, &environment)?);
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    // On drop, the terminal is as it was, before anything is written to standard error.
    let screen = io::stdout().into_raw_mode()?.into_alternate_screen()?;
    let terminal = Terminal::new(TermionBackend::new(screen))?;
    let done = interact(terminal, &args.job, &environment, picture, &ended);
    io::stdout().flush()?;
    done?;
    Ok(exit::FINISHED)
}

/// Draws, and obeys the keys, until the user quits.
fn interact<W: io::Write>(
    mut terminal: Terminal<TermionBackend<W>>,
    job: &StepSelection,
    environment: &Arc<Environment>,
    mut picture: Picture,
    ended: &AtomicBool,
) -> io::Result<()> {
    let (sender, inputs) = mpsc::channel();
    read_keys(sender.clone())?;
    let (look_now, looks) = mpsc::channel();
    look_again_and_again(job.clone(), Arc::clone(environment), sender.clone(), looks)?;
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut keys = Keys::default();
    while !ended.load(Ordering::Relaxed) {
        terminal.draw(|frame| view::draw(frame, &picture, &keys, colours))?;
        match inputs.recv_timeout(DRAW_EVERY) {
            Ok(Input::Key(key)) => match keys.pressed(key, &picture) {
                Effect::Nothing => {}
                Effect::Quit => return Ok(()),
                Effect::Redraw => terminal.clear()?,
                Effect::Send(request) => send(request, job.clone(), Arc::clone(environment), sender.clone())?,
            },
            Ok(Input::Looked(Ok(new))) => picture = *new,
            Ok(Input::Looked(Err(text))) => keys.report(text),
            Ok(Input::Answered(text)) => {
                keys.report(text);
                // What it has changed is shown at once.
                let _ = look_now.send(());
            }
            Ok(Input::Closed) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Ok(())
}

fn read_keys(sender: Sender<Input>) -> io::Result<()> {
    let read = move || {
        for key in io::stdin().keys() {
            let Ok(key) = key else { break };
            if keys::is_known(key) && sender.send(Input::Key(key)).is_err() {
                return;
            }
        }
        let _ = sender.send(Input::Closed);
    };
    thread::Builder::new().name("keys".to_owned()).spawn(read).map(drop)
}

/// Looks each second, and when it is asked to.
fn look_again_and_again(
    job: StepSelection,
    environment: Arc<Environment>,
    sender: Sender<Input>,
    asked: Receiver<()>,
) -> io::Result<()> {
    let looks = move || {
        while asked.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Disconnected) {
            let looked = look(&job, &environment).map(|status| Box::new(Picture::of(&status)));
            if sender.send(Input::Looked(looked.map_err(|failure| line_of(&failure)))).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("looks".to_owned()).spawn(looks).map(drop)
}

/// Sends the request on a thread; its answer is an input.
fn send(request: Request, job: StepSelection, environment: Arc<Environment>, sender: Sender<Input>) -> io::Result<()> {
    let work = move || {
        let answer = requested(&request, &job, &environment).unwrap_or_else(|failure| line_of(&failure));
        let _ = sender.send(Input::Answered(answer));
    };
    thread::Builder::new().name("request".to_owned()).spawn(work).map(drop)
}

/// What became of a request.
fn requested(request: &Request, job: &StepSelection, environment: &Environment) -> Result<String, Failure> {
    let running = || RunningJob::in_environment(job, environment);
    match request {
        Request::Checkpoint => checkpoint::request_without_waiting(&running()?),
        Request::Halt => {
            let change = HaltChange { reason: Some("USER_REQUEST".to_owned()), ..HaltChange::default() };
            let running = running()?;
            super::runtime::block_on(running.halt(Some(change)))??;
            Ok(format!("the job stops {}", view::halts(running.state.pairs.is_some())))
        }
        Request::Exclude { node, now } => {
            let exclusion = Exclusion { reason: REASON.to_owned(), now: *now };
            change_node(node, "excluded", &NodeRequest::Exclude(exclusion), &job.job, environment)
        }
        Request::Include { node } => change_node(node, "included", &NodeRequest::Include, &job.job, environment),
    }
}

fn change_node(
    node: &str,
    verb: &str,
    request: &NodeRequest,
    job: &JobSelection,
    environment: &Environment,
) -> Result<String, Failure> {
    Ok(match request_for(&BTreeSet::from([node.into()]), job, environment, request, false)? {
        None => format!("recorded; not taken up by the orchestrator yet: {node} {verb}"),
        Some(delayed) if delayed.is_empty() => format!("{node} {verb}"),
        Some(delayed) => delayed_text(&delayed),
    })
}

/// A failure in one line.
fn line_of(failure: &Failure) -> String {
    printable(&failure.to_string().replace('\n', " "))
}
