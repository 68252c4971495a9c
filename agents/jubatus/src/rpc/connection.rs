//! One call of a server: a connection, a request, an answer, within a time limit.
//!
//! Each call has a connection of its own: servers close a connection that was idle for some seconds, and after an error
//! the rest of an answer could arrive in place of the next one.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use holdfast_formats::jubatus::msgpack::TokenReader;

use super::message::{AnswerError, Limits, Value, encode_request, read_answer};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// A name or an address.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// A call that has no result.
#[derive(Debug, thiserror::Error)]
#[error("`{method}`: the Jubatus server at {address} {failure}")]
pub struct RpcError {
    pub address: ServerAddress,
    pub method: &'static str,
    pub failure: RpcFailure,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpcFailure {
    #[error("cannot be found: {0}")]
    UnknownHost(io::Error),
    #[error("does not accept a connection: {0}")]
    Connect(io::Error),
    #[error("has not answered within {}", humantime::format_duration(millis(*.limit)))]
    Timeout { limit: Duration },
    #[error("{0}")]
    Answer(AnswerError),
    #[error("cannot be called: the connection failed: {0}")]
    Io(io::Error),
    #[error("cannot be called: an argument is too long")]
    Arguments,
}

/// Rounded down to milliseconds, for messages.
fn millis(limit: Duration) -> Duration {
    Duration::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
}

#[derive(Clone, Debug)]
pub struct RpcClient {
    address: ServerAddress,
    limits: Limits,
    message_id: u32,
}

impl RpcClient {
    pub fn new(address: ServerAddress, limits: Limits) -> RpcClient {
        RpcClient { address, limits, message_id: 0 }
    }

    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Calls a method, and waits for its result, in all for at most `limit`.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses the call, gives no complete answer in time, or a wrong one.
    pub fn call(&mut self, method: &'static str, parameters: &[&str], limit: Duration) -> Result<Value, RpcError> {
        self.message_id = self.message_id.wrapping_add(1);
        let result = call(&self.address, self.limits, self.message_id, method, parameters, limit);
        result.map_err(|failure| RpcError { address: self.address.clone(), method, failure })
    }

    /// True if a process listens at the address, also if it accepts no connection within `limit`: the system refuses a
    /// connection where none listens.
    pub fn is_listening(&self, limit: Duration) -> bool {
        matches!(connect(&self.address, Deadline::after(limit)), Ok(_) | Err(RpcFailure::Timeout { .. }))
    }
}

fn call(
    address: &ServerAddress,
    limits: Limits,
    message_id: u32,
    method: &str,
    parameters: &[&str],
    limit: Duration,
) -> Result<Value, RpcFailure> {
    let deadline = Deadline::after(limit);
    let request = encode_request(message_id, method, parameters).ok_or(RpcFailure::Arguments)?;
    let stream = connect(address, deadline)?;
    let of_io = |error| of_io(error, limit);
    stream.set_write_timeout(Some(deadline.left().map_err(of_io)?)).map_err(RpcFailure::Io)?;
    (&stream).write_all(&request).map_err(of_io)?;
    let mut tokens = TokenReader::to_end(DeadlineReader { stream: &stream, deadline });
    read_answer(&mut tokens, message_id, limits).map_err(|error| match error {
        AnswerError::Io(error) if is_reset(&error) => RpcFailure::Answer(AnswerError::Ended),
        AnswerError::Io(error) => of_io(error),
        other => RpcFailure::Answer(other),
    })
}

/// Tries each address of the host.
fn connect(address: &ServerAddress, deadline: Deadline) -> Result<TcpStream, RpcFailure> {
    let found = (address.host.as_str(), address.port).to_socket_addrs().map_err(RpcFailure::UnknownHost)?;
    let addresses: Vec<SocketAddr> = found.collect();
    let none = io::Error::new(io::ErrorKind::NotFound, "its host name has no address");
    let mut failure = RpcFailure::UnknownHost(none);
    for address in addresses {
        let left = deadline.left().map_err(|error| of_io(error, deadline.limit))?;
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                // The request is one small segment; a failure to set this only delays it.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => failure = of_io(error, deadline.limit),
            Err(error) => failure = RpcFailure::Connect(error),
        }
    }
    Err(failure)
}

fn of_io(error: io::Error, limit: Duration) -> RpcFailure {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => RpcFailure::Timeout { limit },
        _ if is_reset(&error) => RpcFailure::Answer(AnswerError::Ended),
        _ => RpcFailure::Io(error),
    }
}

/// A process that dies with unread data resets its connections.
fn is_reset(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    fn after(limit: Duration) -> Deadline {
        Deadline { at: Instant::now() + limit, limit }
    }

    fn left(self) -> io::Result<Duration> {
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// Reads until a point in time, however many reads that takes: a server that sends single bytes gains no time.
struct DeadlineReader<'a> {
    stream: &'a TcpStream,
    deadline: Deadline,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.deadline.left()?))?;
        self.stream.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::message::RemoteError;

    use std::net::{Shutdown, TcpListener};
    use std::thread;

    const LONG: Duration = Duration::from_secs(60);

    /// Calls `method` of a server that serves one connection with `serve`.
    fn call_of(
        method: &'static str,
        limit: Duration,
        serve: impl FnOnce(TcpStream) + Send,
    ) -> Result<Value, RpcFailure> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = RpcClient::new(ServerAddress { host: "127.0.0.1".to_owned(), port }, Limits::STANDARD);
        thread::scope(|scope| {
            scope.spawn(move || serve(listener.accept().unwrap().0));
            client.call(method, &["", "snap-1"], limit).map_err(|error| error.failure)
        })
    }

    /// Reads the request of [`call_of`].
    fn read_request(stream: &mut TcpStream, method: &str) {
        let mut request = vec![0; encode_request(1, method, &["", "snap-1"]).unwrap().len()];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(request, encode_request(1, method, &["", "snap-1"]).unwrap());
    }

    /// Waits until the client has closed the connection.
    fn wait_for_end(mut stream: TcpStream) {
        let _ = stream.read_to_end(&mut Vec::new());
    }

    #[test]
    fn makes_the_recorded_exchange_with_an_answer_in_single_bytes() {
        let directory = holdfast_testkit::fixtures("jubatus").join("rpc");
        let recorded = |file: &str| std::fs::read(directory.join(file)).unwrap();
        let (request, answer) = (recorded("03-save.request.bin"), recorded("03-save.response.bin"));
        let result = call_of("save", LONG, |mut stream| {
            let mut received = vec![0; request.len()];
            stream.read_exact(&mut received).unwrap();
            assert_eq!(received, request);
            stream.set_nodelay(true).unwrap();
            answer.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
            // The connection stays open: the answer ends where its value ends.
            wait_for_end(stream);
        });
        let path = b"/srv/models/127.0.0.1_9199_stat_snap-1.jubatus".to_vec();
        let pair = (Value::Text(b"127.0.0.1_9199".to_vec()), Value::Text(path));
        assert_eq!(result.unwrap(), Value::Map(vec![pair]));
    }

    #[test]
    fn a_silent_server_and_one_that_drips_exceed_the_time_limit() {
        let limit = Duration::from_millis(100);
        let silent = call_of("save", limit, wait_for_end).unwrap_err();
        assert!(matches!(silent, RpcFailure::Timeout { .. }), "{silent:?}");
        let drips = call_of("save", limit, |mut stream| {
            read_request(&mut stream, "save");
            // An array that has no end, until the client closes the connection.
            let mut next = &b"\x94\x01\x01\xc0\xdd\0\0\xff\xff"[..];
            while stream.write_all(&[next.first().copied().unwrap_or(0)]).is_ok() {
                next = next.get(1..).unwrap_or_default();
                thread::sleep(Duration::from_millis(1));
            }
        });
        let drips = drips.unwrap_err();
        assert!(matches!(drips, RpcFailure::Timeout { .. }), "{drips:?}");
        assert_eq!(drips.to_string(), "has not answered within 100ms");
    }

    #[test]
    fn a_server_that_ends_in_the_middle_of_its_answer_is_reported() {
        for unread in [false, true] {
            let ended = call_of("load", LONG, |mut stream| {
                if !unread {
                    read_request(&mut stream, "load");
                    stream.write_all(b"\x94\x01").unwrap();
                }
                let _ = stream.shutdown(Shutdown::Write);
            });
            let ended = ended.unwrap_err();
            assert!(matches!(ended, RpcFailure::Answer(AnswerError::Ended)), "{unread}: {ended:?}");
        }
    }

    #[test]
    fn no_process_at_the_address_is_a_refused_connection() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut client = RpcClient::new(ServerAddress { host: "127.0.0.1".to_owned(), port }, Limits::STANDARD);
        assert!(!client.is_listening(LONG));
        let error = client.call("get_status", &[""], LONG).unwrap_err();
        assert!(matches!(error.failure, RpcFailure::Connect(_)), "{error:?}");
        let start = format!("`get_status`: the Jubatus server at 127.0.0.1:{port} does not accept a connection: ");
        assert!(error.to_string().starts_with(&start), "{error}");
    }

    #[test]
    fn a_process_that_listens_and_accepts_no_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        // The system itself accepts as many as it keeps for the process.
        let kept = std::iter::from_fn(|| TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok());
        let kept: Vec<TcpStream> = kept.collect();
        let address = ServerAddress { host: "127.0.0.1".to_owned(), port: address.port() };
        let client = RpcClient::new(address, Limits::STANDARD);
        assert!(client.is_listening(Duration::from_millis(100)), "after {} connections", kept.len());
    }

    #[test]
    fn an_error_of_the_server_is_a_refusal_and_the_next_call_has_the_next_id() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = RpcClient::new(ServerAddress { host: "localhost".to_owned(), port }, Limits::STANDARD);
        thread::scope(|scope| {
            scope.spawn(|| {
                for id in [1, 2] {
                    let mut stream = listener.accept().unwrap().0;
                    let mut request = vec![0; encode_request(id, "load", &["", "x"]).unwrap().len()];
                    stream.read_exact(&mut request).unwrap();
                    assert_eq!(request, encode_request(id, "load", &["", "x"]).unwrap());
                    let rest = if id == 1 { &b"\xa9not there\xc0"[..] } else { b"\xc0\xc3" };
                    stream.write_all(&[&[0x94, 1, id as u8][..], rest].concat()).unwrap();
                }
            });
            let error = client.call("load", &["", "x"], LONG).unwrap_err();
            let RpcFailure::Answer(AnswerError::Remote(remote)) = error.failure else { panic!("{error:?}") };
            assert_eq!(remote, RemoteError::Failed(b"not there".to_vec()));
            assert_eq!(client.call("load", &["", "x"], LONG).unwrap(), Value::Bool(true));
        });
    }
}
