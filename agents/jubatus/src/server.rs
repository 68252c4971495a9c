//! The calls of a server that a checkpoint needs, with typed answers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_formats::jubatus::{Engine, ModelId, Release};

use crate::rpc::{AnswerError, Limits, RpcClient, RpcError, RpcFailure, ServerAddress, Value};

/// A call that failed, or whose answer cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error("`{method}`: the Jubatus server at {address} answered with {found} instead of {expected}")]
    Answer { address: ServerAddress, method: &'static str, expected: &'static str, found: String },
    #[error("`get_status`: the Jubatus server at {address} has {found} as {key}, expected {expected}")]
    Status { address: ServerAddress, key: &'static str, found: String, expected: &'static str },
    #[error(
        "{address} answered for {found} servers: it is a proxy, or not a Jubatus server; write the addresses of the \
         servers"
    )]
    NotOneServer { address: ServerAddress, found: usize },
    #[error("the Jubatus server at {address} is of type {found}, and the job spec has type {expected}")]
    OtherType { address: ServerAddress, found: Engine, expected: Engine },
}

impl ServerError {
    /// True if no process accepts connections at the address.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, ServerError::Rpc(RpcError { failure: RpcFailure::Connect(_), .. }))
    }

    /// True if there was no answer in time.
    pub fn is_timeout(&self) -> bool {
        matches!(self, ServerError::Rpc(RpcError { failure: RpcFailure::Timeout { .. }, .. }))
    }

    /// True if the connection could not be made, or ended before the answer was complete, as that of a process that
    /// ends.
    pub fn is_broken(&self) -> bool {
        matches!(
            self,
            ServerError::Rpc(RpcError {
                failure: RpcFailure::Connect(_) | RpcFailure::Io(_) | RpcFailure::Answer(AnswerError::Ended),
                ..
            })
        )
    }

    /// True if the server has answered.
    pub fn is_answer(&self) -> bool {
        !self.is_broken()
            && !matches!(
                self,
                ServerError::Rpc(RpcError {
                    failure: RpcFailure::Timeout { .. } | RpcFailure::UnknownHost(_) | RpcFailure::Arguments,
                    ..
                })
            )
    }
}

/// The properties of a running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// The address in the names of its files.
    pub address: String,
    /// The port in the names of its files.
    pub port: u16,
    pub release: Release,
    pub engine: Engine,
    /// Where it saves models; an absolute path on its node.
    pub data_directory: PathBuf,
}

impl ServerStatus {
    /// The server's key in answers.
    pub fn server_id(&self) -> String {
        format!("{}_{}", self.address, self.port)
    }
}

#[derive(Clone, Debug)]
pub struct JubatusServer {
    client: RpcClient,
    /// The cluster's name, the first argument of every call. Servers ignore it, proxies do not.
    cluster: String,
}

impl JubatusServer {
    pub fn new(address: ServerAddress, cluster: String) -> JubatusServer {
        JubatusServer { client: RpcClient::new(address, Limits::STANDARD), cluster }
    }

    pub fn address(&self) -> &ServerAddress {
        self.client.address()
    }

    /// True if a process listens at the address.
    pub fn is_listening(&self, limit: Duration) -> bool {
        self.client.is_listening(limit)
    }

    /// The server's properties.
    ///
    /// # Errors
    /// When it gives no answer within `limit`, or one that is not the status of one server.
    pub fn status(&mut self, limit: Duration) -> Result<ServerStatus, ServerError> {
        const METHOD: &str = "get_status";
        let answer = self.call(METHOD, None, limit)?;
        let wrong = |found: &Value| self.wrong_answer(METHOD, "a map of servers to their status", found);
        let Value::Map(servers) = &answer else { return Err(wrong(&answer)) };
        let [(id, status)] = servers.as_slice() else {
            return Err(ServerError::NotOneServer { address: self.address().clone(), found: servers.len() });
        };
        let Value::Map(pairs) = status else { return Err(wrong(status)) };
        let texts: BTreeMap<&str, &str> =
            pairs.iter().filter_map(|(key, value)| Some((key.as_text()?, value.as_text()?))).collect();
        self.status_of(id, &texts)
    }

    fn status_of(&self, id: &Value, texts: &BTreeMap<&str, &str>) -> Result<ServerStatus, ServerError> {
        let wrong = |key, expected| {
            let found = texts.get(key).map_or_else(|| "nothing".to_owned(), |text| format!("{text:?}"));
            ServerError::Status { address: self.address().clone(), key, found, expected }
        };
        let server_id = || self.wrong_answer("get_status", "a server id `<address>_<port>`", id);
        let (address, port) = id.as_text().and_then(|id| id.rsplit_once('_')).ok_or_else(server_id)?;
        let port = port.parse().map_err(|_| server_id())?;
        // The address becomes a part of file names.
        if address.is_empty() || address.contains(['/', '\0', '_']) {
            return Err(server_id());
        }
        let text = |key| texts.get(key).copied().unwrap_or_default();
        let release = text("VERSION").parse().map_err(|_| wrong("VERSION", "a release such as 1.1.1"))?;
        // Release 0.5.0 reports its program only.
        let type_name = texts.get("type").copied().or_else(|| text("PROGNAME").strip_prefix("juba"));
        let engine = type_name.and_then(|name| Engine::from_name(name.as_bytes()));
        let engine = engine.ok_or_else(|| wrong("type", "the name of an engine"))?;
        let data_directory = PathBuf::from(text("datadir"));
        if !data_directory.is_absolute() || text("datadir").contains('\0') {
            return Err(wrong("datadir", "an absolute path: start the server with `--datadir /...`"));
        }
        Ok(ServerStatus { address: address.to_owned(), port, release, engine, data_directory })
    }

    /// The text of the configuration that the server was started with.
    ///
    /// # Errors
    /// When it gives no answer within `limit`, or one that is not a text.
    pub fn config(&mut self, limit: Duration) -> Result<Vec<u8>, ServerError> {
        match self.call("get_config", None, limit)? {
            Value::Text(config) => Ok(config),
            other => Err(self.wrong_answer("get_config", "a text", &other)),
        }
    }

    /// Makes the server save its model; returns the path of the file, as the server reports it. Releases before 0.8.0
    /// report none. An existing file of the id is overwritten in place.
    ///
    /// # Errors
    /// When the server refuses, gives no answer within `limit`, or one that does not report a file of this server only.
    pub fn save(
        &mut self,
        status: &ServerStatus,
        id: &ModelId,
        limit: Duration,
    ) -> Result<Option<PathBuf>, ServerError> {
        let answer = self.call("save", Some(id), limit)?;
        let path = match &answer {
            Value::Bool(true) if status.release < Release::new(0, 8, 0) => return Ok(None),
            Value::Map(servers) => match servers.as_slice() {
                [(server, path)] if server.as_text() == Some(&status.server_id()) => path.as_text(),
                _ => None,
            },
            _ => None,
        };
        let wrong = || self.wrong_answer("save", "a map of this server's id to the path of a file", &answer);
        path.map(|path| Some(PathBuf::from(path))).ok_or_else(wrong)
    }

    /// Makes the server load the file of this id from its data directory. Not atomic: after an error the model may
    /// consist of old and new parts.
    ///
    /// # Errors
    /// When the server refuses, gives no answer within `limit`, or another one than `true`.
    pub fn load(&mut self, id: &ModelId, limit: Duration) -> Result<(), ServerError> {
        match self.call("load", Some(id), limit)? {
            Value::Bool(true) => Ok(()),
            other => Err(self.wrong_answer("load", "true", &other)),
        }
    }

    fn call(&mut self, method: &'static str, id: Option<&ModelId>, limit: Duration) -> Result<Value, ServerError> {
        let arguments: Vec<&str> = [self.cluster.as_str()].into_iter().chain(id.map(ModelId::as_str)).collect();
        Ok(self.client.call(method, &arguments, limit)?)
    }

    fn wrong_answer(&self, method: &'static str, expected: &'static str, found: &Value) -> ServerError {
        ServerError::Answer { address: self.address().clone(), method, expected, found: found.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use holdfast_testkit::fixtures;

    const LONG: Duration = Duration::from_secs(60);

    /// The bytes that a recorded server answered.
    fn recorded(exchange: &str) -> Vec<u8> {
        let mut answer = std::fs::read(fixtures("jubatus").join(format!("rpc/{exchange}.response.bin"))).unwrap();
        // The client numbers its calls from 1; some requests were recorded with 0.
        answer[2] = 1;
        answer
    }

    /// The result of a call to which a server answers with these bytes.
    fn with_answer<T>(answer: &[u8], call: impl FnOnce(&mut JubatusServer) -> T) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ServerAddress { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                assert!(stream.read(&mut [0; 64]).unwrap() > 4);
                stream.write_all(answer).unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            });
            call(&mut JubatusServer::new(address, "alpha".to_owned()))
        })
    }

    fn status_with(answer: &[u8]) -> Result<ServerStatus, String> {
        with_answer(answer, |server| server.status(LONG).map_err(|error| error.to_string()))
    }

    fn id() -> ModelId {
        ModelId::documented("snap-1").unwrap()
    }

    #[test]
    fn reads_the_recorded_status_of_every_release_and_engine() {
        let status = |exchange| status_with(&recorded(exchange)).unwrap();
        let expected = ServerStatus {
            address: "127.0.0.1".to_owned(),
            port: 9199,
            release: Release::NEWEST,
            engine: Engine::Stat,
            data_directory: "/srv/models".into(),
        };
        assert_eq!(status("01-get_status-fresh"), expected);
        assert_eq!(status("37-classifier-get_status"), ServerStatus { engine: Engine::Classifier, ..expected.clone() });
        // It reports its program, and no type.
        assert_eq!(status("42-v0.5.0-get_status"), ServerStatus { release: Release::new(0, 5, 0), ..expected });
    }

    #[test]
    fn refuses_a_status_that_is_not_that_of_one_server() {
        let proxy = status_with(&recorded("52-proxy-get_status")).unwrap_err();
        assert!(proxy.contains("answered for 2 servers: it is a proxy"), "{proxy}");
        let replaced = |from: &str, to: &str| {
            let answer = recorded("01-get_status-fresh");
            let at = answer.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
            let answer = [&answer[..at], to.as_bytes(), &answer[at + from.len()..]].concat();
            status_with(&answer).unwrap_err()
        };
        for (from, to, message) in [
            ("/srv/models", "srv/modelss", "\"srv/modelss\" as datadir, expected an absolute path"),
            ("datadir", "datadiR", "nothing as datadir"),
            ("VERSION", "VERSIOM", "nothing as VERSION"),
            ("127.0.0.1_9199", "127/0.0.1_9199", "instead of a server id"),
            ("127.0.0.1_9199", "127.0.0.1_919x", "instead of a server id"),
        ] {
            let error = replaced(from, to);
            assert!(error.contains(message), "{from} {to}: {error}");
        }
    }

    #[test]
    fn save_returns_the_path_only_from_an_answer_about_this_server() {
        let status = status_with(&recorded("01-get_status-fresh")).unwrap();
        let save = |answer: &[u8], status: &ServerStatus| {
            with_answer(answer, |server| server.save(status, &id(), LONG).map_err(|error| error.to_string()))
        };
        let path = PathBuf::from("/srv/models/127.0.0.1_9199_stat_snap-1.jubatus");
        assert_eq!(save(&recorded("03-save"), &status), Ok(Some(path)));
        // Up to 0.7.2 the answer names no file.
        let old = ServerStatus { release: Release::new(0, 5, 0), ..status.clone() };
        assert_eq!(save(&recorded("40-v0.5.0-save"), &old), Ok(None));
        for wrong in ["40-v0.5.0-save", "51-proxy-save", "62-direct-save", "02-get_config"] {
            let error = save(&recorded(wrong), &status).unwrap_err();
            assert!(error.contains("instead of a map of this server's id"), "{wrong}: {error}");
        }
        let error = save(&recorded("11-error-save-empty-id"), &status).unwrap_err();
        assert!(error.ends_with("returned an error: empty id is not allowed"), "{error}");
    }

    #[test]
    fn load_requires_true() {
        assert!(with_answer(&recorded("07-load"), |server| server.load(&id(), LONG)).is_ok());
        let refused = with_answer(&recorded("18-error-load-crc"), |server| server.load(&id(), LONG)).unwrap_err();
        assert!(refused.is_answer() && refused.to_string().contains("returned an error"), "{refused}");
        for answer in [&b"\x94\x01\x01\xc0\xc2"[..], b"\x94\x01\x01\xc0\xc0", b"\x94\x01\x01\xc0\x01"] {
            let error = with_answer(answer, |server| server.load(&id(), LONG)).unwrap_err();
            assert!(error.to_string().contains("instead of true"), "{error}");
        }
        let config = with_answer(&recorded("02-get_config"), |server| server.config(LONG)).unwrap();
        assert_eq!(config, b"{\n  \"window_size\": 128\n}\n");
        assert!(with_answer(&recorded("07-load"), |server| server.config(LONG)).is_err());
    }
}
