//! Connections of ranks to the agent's socket. The agent takes the process that connects for the rank, and kills it
//! when its run is over: so a child process connects, and passes the connection to the test.

use std::io::{IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use holdfast_wire::socket;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// With this variable, the path of the agent's socket, this program is such a child.
pub const SOCKET: &str = "HOSTILE_RANK_SOCKET";

pub struct RankProcess {
    process: Child,
    /// Open as long as the process is to live.
    _control: UnixStream,
    pub stream: UnixStream,
}

impl RankProcess {
    pub fn connect(path: &Path) -> RankProcess {
        let (control, childs) = UnixStream::pair().unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .env(SOCKET, path)
            .stdin(Stdio::from(OwnedFd::from(childs)))
            .spawn()
            .unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(&control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
        let received = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let stream = received.expect("the child could not connect").into();
        RankProcess { process, _control: control, stream }
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The child: connects, passes the connection to the parent on standard input, and waits until the parent ends.
pub fn connect_for_parent(path: &Path) -> ExitCode {
    let stream = socket::connect(path).unwrap();
    let control = std::io::stdin();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [stream.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(control.as_fd(), &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).unwrap();
    drop(stream);
    let _ = control.lock().read_to_end(&mut Vec::new());
    ExitCode::SUCCESS
}
