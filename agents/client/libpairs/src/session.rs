//! The copy that this process is, and the checks of what the program says about itself.

use std::ffi::c_int;

use holdfast_boundary::ArgumentError;
use holdfast_pairs_client::{Checkpoint, PairCopy, PairsError, Place, ShmError, Side, Woken};

/// The state of the library.
#[derive(Debug, Default)]
pub struct Session {
    /// Once it is awake.
    copy: Option<PairCopy>,
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Pairs(#[from] PairsError),
    /// An argument has no meaning.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    #[error("call ft_init_wait first")]
    NotStarted,
    #[error("this process has its turn already: ft_init_wait is called once")]
    Twice,
    /// The program was started for another side than it says.
    #[error(
        "the program says that it is the {said}, and was started as the {side}: the command of the {side} in the spec \
         must name it"
    )]
    WrongSide { said: Side, side: Side },
    #[error("the job's name is {0:?}: it must begin with `main` or `replica`, or be NULL")]
    UnknownSide(String),
    /// The program was started for another pair than it says.
    #[error("the program says that it is of pair {said}, and was started for pair {pair}: correct its command")]
    WrongPair { said: c_int, pair: u32 },
    #[error("{0} is no number of a pair: they count from 0")]
    NoPair(c_int),
    /// The program gave the id of another process.
    #[error("the process id {said} is not that of this process, {own}: pass getpid(), or 0")]
    WrongProcess { said: u32, own: u32 },
    #[error("the newest checkpoint has {0} bytes, and was not stored by update_checkpoint: use holdfast_pairs_newest")]
    NotANumber(usize),
    /// The program's memory is smaller than the newest checkpoint.
    #[error("the newest checkpoint has {stored} bytes, and the memory for it {given}: see holdfast_pairs_newest_size")]
    ShortMemory { stored: usize, given: usize },
    /// The tag does not fit into the program's variable.
    #[error("the newest checkpoint has the tag {0}, which is no layer: use holdfast_pairs_newest")]
    NotALayer(i64),
}

/// The result of a call.
pub type SessionResult<T> = Result<T, SessionError>;

/// What a program says about itself in the functions of the Fault-tolerant Scheme.
#[derive(Clone, Debug)]
pub struct Said {
    /// Its process id; 0: not said.
    pub pid: u32,
    /// Its side and maybe more; `None`: not said.
    pub name: Option<String>,
    /// The number of its pair; `None`: not said.
    pub index: Option<c_int>,
}

/// The place that the agent gave to this process, or, if a user has started it, the one that the program names.
fn place_of(said: &Said) -> SessionResult<Place> {
    let named = said.name.as_deref().zip(said.index).filter(|_| Place::is_client());
    match named {
        Some((name, index)) => {
            let pair = u32::try_from(index).map_err(|_| SessionError::NoPair(index))?;
            Ok(Place::of_client(side_of(name)?, pair)?)
        }
        None => Ok(Place::from_environment()?),
    }
}

impl Session {
    /// The state before the first call.
    pub const fn new() -> Self {
        Session { copy: None }
    }

    fn copy(&self) -> SessionResult<&PairCopy> {
        self.copy.as_ref().ok_or(SessionError::NotStarted)
    }

    /// Registers this process and sleeps until it is its turn. False: it must end.
    pub fn begin(&mut self, said: &Said) -> SessionResult<bool> {
        check_process(said.pid)?;
        if self.copy.is_some() {
            return Err(SessionError::Twice);
        }
        let place = place_of(said)?;
        if let Some(name) = &said.name {
            let side = side_of(name)?;
            if side != place.side {
                return Err(SessionError::WrongSide { said: side, side: place.side });
            }
        }
        if let Some(index) = said.index {
            check_index(index, place.index)?;
        }
        let mut copy = PairCopy::register(place)?;
        let awake = copy.wait()? == Woken::Awake;
        self.copy = awake.then_some(copy);
        Ok(awake)
    }

    /// Starts the thread of the heartbeat.
    pub fn start_heartbeat(&mut self, index: Option<c_int>) -> SessionResult<()> {
        let copy = self.copy.as_mut().ok_or(SessionError::NotStarted)?;
        if let Some(index) = index {
            check_index(index, copy.index())?;
        }
        Ok(copy.start_heartbeat()?)
    }

    /// One heartbeat of the program's own.
    pub fn beat(&self, index: c_int) -> SessionResult<()> {
        let copy = self.copy()?;
        check_index(index, copy.index())?;
        copy.beat();
        Ok(())
    }

    /// Tells the pair that its program has work.
    pub fn job_begin(&self, pid: u32) -> SessionResult<()> {
        check_process(pid)?;
        self.copy()?.job_begin();
        Ok(())
    }

    /// The work is done.
    pub fn job_end(&self, pid: u32) -> SessionResult<()> {
        check_process(pid)?;
        self.copy()?.job_end();
        Ok(())
    }

    /// Whether a checkpoint may have so many bytes: asked before a program's memory is taken for that large.
    pub fn check_size(&self, bytes: usize) -> SessionResult<()> {
        let (bytes, most) = (u64::try_from(bytes).unwrap_or(u64::MAX), self.copy()?.most_checkpoint_bytes());
        if bytes > most { Err(PairsError::from(ShmError::TooLarge { bytes, most }).into()) } else { Ok(()) }
    }

    pub fn update(&self, tag: i64, bytes: &[u8]) -> SessionResult<u64> {
        Ok(self.copy()?.update_checkpoint(tag, bytes)?)
    }

    /// The newest checkpoint that is intact.
    pub fn newest(&self) -> SessionResult<Option<(Checkpoint, Vec<u8>)>> {
        Ok(self.copy()?.newest_checkpoint()?)
    }

    /// The newest checkpoint as a number and a layer.
    pub fn newest_number(&self) -> SessionResult<Option<(i64, c_int)>> {
        let Some((found, bytes)) = self.newest()? else { return Ok(None) };
        let number: Result<[u8; 8], _> = bytes.as_slice().try_into();
        let number = i64::from_ne_bytes(number.map_err(|_| SessionError::NotANumber(bytes.len()))?);
        let layer = c_int::try_from(found.tag).map_err(|_| SessionError::NotALayer(found.tag))?;
        Ok(Some((number, layer)))
    }

    /// Whether this copy must end.
    pub fn stop_requested(&self) -> SessionResult<bool> {
        Ok(self.copy()?.stop_requested())
    }
}

impl holdfast_boundary::Session for Session {
    fn rank(&self) -> Option<u32> {
        None
    }
}

fn side_of(name: &str) -> SessionResult<Side> {
    let side = Side::BOTH.into_iter().find(|side| name.starts_with(&side.to_string()));
    side.ok_or_else(|| SessionError::UnknownSide(name.to_owned()))
}

fn check_index(said: c_int, pair: u32) -> SessionResult<()> {
    if u32::try_from(said) == Ok(pair) { Ok(()) } else { Err(SessionError::WrongPair { said, pair }) }
}

fn check_process(said: u32) -> SessionResult<()> {
    let own = std::process::id();
    if said == 0 || said == own { Ok(()) } else { Err(SessionError::WrongProcess { said, own }) }
}
