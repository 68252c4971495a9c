//! Which copy this process is: told by the agent in the environment, or, if a user has started it, by the process of
//! Holdfast that waits for it ([`holdfast_shm::clients`]).
//!
//! | variable | content |
//! |---|---|
//! | `HOLDFAST_PAIRS` | the path of the registry |
//! | `HOLDFAST_PAIR_NUMBER` | the number of the pair in the job |
//! | `HOLDFAST_PAIR_INDEX` | `{index}` in the spec |
//! | `HOLDFAST_PAIR_SIDE` | `main` or `replica` |
//! | `HOLDFAST_PAIR_INCARNATION` | counts the starts of this side |
//! | `HOLDFAST_PAIR_PERIOD_US` | microseconds between heartbeats; 1000 without it |

use std::env;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_shm::Side;
use holdfast_shm::clients::{self, ClientSocket};
use rustix::process::setpgid;

use crate::error::PairsError;

const REGISTRY: &str = "HOLDFAST_PAIRS";
const NUMBER: &str = "HOLDFAST_PAIR_NUMBER";
const INDEX: &str = "HOLDFAST_PAIR_INDEX";
const SIDE: &str = "HOLDFAST_PAIR_SIDE";
const INCARNATION: &str = "HOLDFAST_PAIR_INCARNATION";
const PERIOD: &str = "HOLDFAST_PAIR_PERIOD_US";

/// As the Fault-tolerant Scheme for Multiple Jobs has it.
const USUAL_PERIOD: Duration = Duration::from_millis(1);
/// Shorter periods would use a processor alone, and longer ones be no heartbeat.
const PERIODS_US: std::ops::RangeInclusive<u64> = 50..=60_000_000;

/// How long a program waits until it is expected: the other one may just have failed.
const EXPECTED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// Which copy this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path of the registry.
    pub registry: PathBuf,
    /// The number of the pair in the job, and so in the registry.
    pub pair: u32,
    /// The number of the pair among those of its element of the spec, `{index}` there.
    pub index: u32,
    /// The side of this copy.
    pub side: Side,
    /// Counts the starts of this side.
    pub incarnation: u64,
    /// The time between two heartbeats.
    pub period: Duration,
}

impl Place {
    /// The place that the agent gave to this process.
    ///
    /// # Errors
    /// The process was not started by an agent, or a variable has no meaning.
    pub fn from_environment() -> Result<Place, PairsError> {
        Place::from_variables(env::var_os)
    }

    /// The place of a program that a user has started as this side of the pair with this number in the job. Waits
    /// until Holdfast expects such a program, for a minute. Makes this process the leader of a process group of its
    /// own, unless it is one: the copy ends with its group.
    ///
    /// # Errors
    /// No program is expected within that time, `HOLDFAST_PAIRS_CLIENTS` is not set, or the answer has no meaning.
    pub fn of_client(side: Side, pair: u32) -> Result<Place, PairsError> {
        let directory = env::var_os(clients::DIRECTORY).ok_or(PairsError::NotStartedByAgent(REGISTRY))?;
        let directory = PathBuf::from(directory);
        let connect = || UnixStream::connect(ClientSocket::of(&directory, pair, side)?.path());
        let failed = |source| PairsError::Client { side, pair, directory: directory.clone(), source };
        let begun = Instant::now();
        let socket = loop {
            match connect() {
                Ok(socket) => break socket,
                Err(error) if is_awaited(&error) && begun.elapsed() < EXPECTED_WITHIN => thread::sleep(LOOK_EVERY),
                Err(error) if is_awaited(&error) => return Err(PairsError::NotExpected { side, pair, directory }),
                Err(error) => return Err(failed(error)),
            }
        };
        socket.set_read_timeout(Some(ANSWERED_WITHIN)).map_err(failed)?;
        let mut lines = String::new();
        socket.take(clients::LONGEST_PLACE).read_to_string(&mut lines).map_err(failed)?;
        // A leader of a session cannot, and has no need to.
        let _ = setpgid(None, None);
        let value =
            |name| lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(OsString::from);
        Place::from_variables(value)
    }

    /// True if [`Self::of_client`] is meant: a user has started this process.
    pub fn is_client() -> bool {
        env::var_os(REGISTRY).is_none() && env::var_os(clients::DIRECTORY).is_some()
    }

    fn from_variables(variable: impl Fn(&'static str) -> Option<OsString>) -> Result<Place, PairsError> {
        let some = |name| variable(name).ok_or(PairsError::NotStartedByAgent(name));
        let registry = PathBuf::from(some(REGISTRY)?);
        if !registry.is_absolute() {
            return Err(useless(REGISTRY, &registry.into_os_string(), "an absolute path is expected"));
        }
        let side = some(SIDE)?;
        let side = match side.to_str() {
            Some("main") => Side::Main,
            Some("replica") => Side::Replica,
            _ => return Err(useless(SIDE, &side, "`main` or `replica` is expected")),
        };
        let period = match variable(PERIOD) {
            None => USUAL_PERIOD,
            Some(given) => {
                let microseconds = number(PERIOD, &given)?;
                if !PERIODS_US.contains(&microseconds) {
                    let (least, most) = (PERIODS_US.start(), PERIODS_US.end());
                    return Err(useless(PERIOD, &given, &format!("{least} to {most} are expected")));
                }
                Duration::from_micros(microseconds)
            }
        };
        let pair = number(NUMBER, &some(NUMBER)?)?;
        let index = number(INDEX, &some(INDEX)?)?;
        let incarnation = number(INCARNATION, &some(INCARNATION)?)?;
        Ok(Place { registry, pair, index, side, incarnation, period })
    }
}

/// The process that waits may be about to start.
fn is_awaited(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn number<T: FromStr>(variable: &'static str, value: &OsString) -> Result<T, PairsError> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| useless(variable, value, "a number is expected"))
}

fn useless(variable: &'static str, value: &OsString, reason: &str) -> PairsError {
    PairsError::Environment { variable, value: value.display().to_string(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(changed: &str, value: Option<&str>) -> Result<Place, String> {
        let variables = [
            (REGISTRY, "/dev/shm/r"),
            (NUMBER, "7"),
            (INDEX, "2"),
            (SIDE, "replica"),
            (INCARNATION, "3"),
            (PERIOD, "2500"),
        ];
        let read = Place::from_variables(|name| {
            if name == changed {
                return value.map(OsString::from);
            }
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        });
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn the_place_is_read_from_the_environment() {
        let place_read = place("", None).unwrap();
        let period = Duration::from_micros(2500);
        let registry = PathBuf::from("/dev/shm/r");
        assert_eq!(place_read, Place { registry, pair: 7, index: 2, side: Side::Replica, incarnation: 3, period });
        assert_eq!(place(PERIOD, None).unwrap().period, Duration::from_millis(1));
    }

    #[test]
    fn missing_and_senseless_variables_are_named() {
        for name in [REGISTRY, NUMBER, INDEX, SIDE, INCARNATION] {
            let error = place(name, None).unwrap_err();
            assert!(error.starts_with(&format!("{name} is not set")), "{error}");
        }
        for (name, value) in [
            (REGISTRY, "r"),
            (NUMBER, "x"),
            (INDEX, "-1"),
            (SIDE, "Main"),
            (INCARNATION, ""),
            (PERIOD, "1"),
            (PERIOD, "1ms"),
        ] {
            let error = place(name, Some(value)).unwrap_err();
            assert!(error.starts_with(&format!("{name}={value} cannot be used")), "{error}");
        }
    }
}
