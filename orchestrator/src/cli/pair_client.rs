//! `holdfast pairs client`: the process of a copy whose program a user starts. It waits for the program, sends it its
//! place, and lasts as long as the program: for the agent, both together are a script and its program.

use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use holdfast_process::{ObservedProcess, ProcessId};
use holdfast_shm::Side;
use holdfast_shm::clients::{self, ClientSocket};
use holdfast_wire::environment;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

use super::failure::Failure;
use crate::exit;

/// What the program receives, besides the number of its pair.
const TOLD: [&str; 6] = [
    environment::PAIR,
    environment::PAIR_NUMBER,
    environment::PAIR_SIDE,
    environment::PAIR_INCARNATION,
    environment::PAIR_PERIOD,
    environment::PAIRS,
];

pub(super) fn run() -> Result<u8, Failure> {
    super::runtime::block_on(wait())?.map_err(|error| {
        Failure::new(exit::UNAVAILABLE, format!("no program can become this copy: {error}"))
            .remedy("the agent of a pair with `started_by: user` runs this command; it is of no use otherwise")
    })
}

/// Waits for a program and its end. The exit code of a program that others have started is not known: `tag_job_end`
/// alone marks the work as done.
async fn wait() -> io::Result<u8> {
    let variable = |name: &str| std::env::var(name).map_err(|_| io::Error::other(format!("{name} is not set")));
    let parse = |text: &str| io::Error::other(format!("`{text}` has no meaning"));
    let number = variable(environment::PAIR_NUMBER)?;
    let side = variable(environment::PAIR_SIDE)?;
    let side = Side::BOTH.into_iter().find(|known| known.to_string() == side).ok_or_else(|| parse(&side))?;
    let mut lines = String::new();
    for name in TOLD {
        lines.push_str(&format!("{name}={}\n", variable(name)?));
    }
    // The program gives the number of its pair in the job.
    lines.push_str(&format!("{}={number}\n", environment::PAIR_INDEX));

    let registry = variable(environment::PAIRS)?;
    let directory = clients::directory(Path::new(&registry));
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let socket = ClientSocket::of(&directory, number.parse().map_err(|_| parse(&number))?, side)?;
    let path = socket.path();
    // That of an earlier process of this copy, which was killed.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    loop {
        let (stream, _) = listener.accept().await?;
        if let Some(program) = admit(stream.into_std()?, &lines)? {
            // Nobody else can connect from here on.
            fs::remove_file(&path)?;
            drop(listener);
            // The program gets the signals, too; it decides when it ends.
            let _ends_with_program = signal(SignalKind::terminate())?;
            while let Err(errno) = poll(&mut [PollFd::new(&program.ended(), PollFlags::IN)], None) {
                if errno != Errno::INTR {
                    return Err(errno.into());
                }
            }
            return Ok(exit::FINISHED);
        }
    }
}

/// Sends a program its place, up to the end of the stream; `None` if it has ended already.
fn admit(mut stream: UnixStream, lines: &str) -> io::Result<Option<ObservedProcess>> {
    stream.set_nonblocking(false)?;
    let pid = socket_peercred(&stream)?.pid.as_raw_nonzero().get();
    let program = u32::try_from(pid).ok().and_then(ProcessId::of).and_then(ObservedProcess::open);
    match stream.write_all(lines.as_bytes()) {
        Ok(()) => Ok(program),
        Err(_) => Ok(None),
    }
}
