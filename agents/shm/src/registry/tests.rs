use std::fs::{OpenOptions, Permissions, set_permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use holdfast_testkit::cluster::until;
use tempfile::TempDir;

use super::*;
use crate::ring::begin_torn;
use crate::{Seat, SlotState, Woken};

struct World {
    directory: TempDir,
    registry: Registry,
}

impl World {
    fn new(checkpoint_bytes: &[u64]) -> World {
        let directory = TempDir::new().unwrap();
        let layout =
            Layout { pairs: checkpoint_bytes.len() as u32, checkpoint_bytes: checkpoint_bytes.to_vec(), ring: 10 };
        let registry = Registry::create(&directory.path().join("registry"), &layout, "job").unwrap();
        World { directory, registry }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("registry")
    }

    fn seat(&self, pair: u32, side: Side, incarnation: u64) -> Seat {
        self.registry.expect(pair, side, incarnation);
        Seat::take(&self.path(), pair, side, incarnation).unwrap()
    }

    fn awake(&self, pair: u32, side: Side, incarnation: u64) -> Seat {
        let seat = self.seat(pair, side, incarnation);
        self.registry.wake(pair, side, incarnation);
        assert_eq!(seat.wait().unwrap(), Woken::Awake);
        seat
    }

    fn newest(&self, pair: u32) -> Option<(u64, Vec<u8>)> {
        let mut bytes = Vec::new();
        self.registry.read_newest(pair, &mut bytes).unwrap().map(|checkpoint| (checkpoint.sequence, bytes))
    }
}

#[test]
fn a_copy_registers_sleeps_and_is_woken() {
    let world = World::new(&[100, 100]);
    let registry = &world.registry;
    assert_eq!(registry.copy(1, Side::Replica), CopySlot::EMPTY);
    registry.expect(1, Side::Replica, 7);
    assert_eq!(registry.copy(1, Side::Replica).state, SlotState::Starting);
    let seen = registry.registrations();
    let path = world.path();
    let copy = thread::spawn(move || {
        let seat = Seat::take(&path, 1, Side::Replica, 7).unwrap();
        let woken = seat.wait().unwrap();
        seat.beat();
        (seat, woken)
    });
    until("the registration", || registry.registrations() != seen);
    let slot = registry.copy(1, Side::Replica);
    assert_eq!((slot.state, slot.pid, slot.incarnation), (SlotState::Asleep, std::process::id(), 7));
    assert_eq!(Some(slot.start_time), holdfast_process::identity::start_time(slot.pid));
    assert_eq!((slot.awoken_at_ns, registry.beats(1, Side::Replica)), (0, 0));
    // Other copies, and other incarnations of this one, are not meant.
    registry.wake(1, Side::Main, 7);
    registry.wake(1, Side::Replica, 6);
    registry.wake(0, Side::Replica, 7);
    assert_eq!(registry.copy(1, Side::Replica).state, SlotState::Asleep);
    assert!(!registry.is_woken(1, Side::Replica));
    registry.wake(1, Side::Replica, 7);
    assert!(registry.is_woken(1, Side::Replica) && !registry.is_woken(1, Side::Main));
    let (seat, woken) = copy.join().unwrap();
    assert_eq!(woken, Woken::Awake);
    let slot = registry.copy(1, Side::Replica);
    assert!(slot.state == SlotState::Awake && slot.awoken_at_ns > 0, "{slot:?}");
    assert_eq!(registry.beats(1, Side::Replica), 2);
    assert!(!seat.stop_requested());
    seat.finish();
    assert_eq!(registry.copy(1, Side::Replica).state, SlotState::Finished);
    registry.request_stop(1, Side::Replica, 7);
    assert!(seat.stop_requested());
}

#[test]
fn a_sleeping_copy_is_told_to_stop() {
    let world = World::new(&[100]);
    let asleep = |incarnation| {
        let seat = world.seat(0, Side::Main, incarnation);
        thread::spawn(move || seat.wait().unwrap())
    };
    let told = asleep(1);
    world.registry.request_stop(0, Side::Main, 1);
    assert_eq!(told.join().unwrap(), Woken::Stop);
    // Another incarnation is started in its place.
    let superseded = asleep(2);
    world.registry.expect(0, Side::Main, 3);
    assert_eq!(superseded.join().unwrap(), Woken::Stop);
    // The job is removed.
    let orphaned = asleep(4);
    fs::remove_file(world.path()).unwrap();
    assert_eq!(orphaned.join().unwrap(), Woken::Stop);
}

#[test]
fn an_older_incarnation_has_no_effect() {
    let world = World::new(&[100]);
    let older = world.awake(0, Side::Main, 1);
    older.update_checkpoint(1, b"old").unwrap();
    let newer = world.awake(0, Side::Main, 2);
    newer.beat();
    assert_eq!(world.registry.beats(0, Side::Main), 2);
    assert!(older.stop_requested());
    let error = older.update_checkpoint(2, b"older").unwrap_err();
    assert!(matches!(error, ShmError::Superseded { incarnation: 1, expected: 2, .. }), "{error}");
    // Its beats and its states are not those of the newer one.
    older.beat();
    assert_eq!(world.registry.beats(0, Side::Main), 2);
    newer.beat();
    assert_eq!(world.registry.beats(0, Side::Main), 3);
    let error = Seat::take(&world.path(), 0, Side::Main, 1).unwrap_err();
    assert!(error.to_string().contains("incarnation 2"), "{error}");
    older.finish();
    assert_eq!(world.registry.copy(0, Side::Main).state, SlotState::Starting);
}

#[test]
fn what_a_copy_does_that_the_agent_has_ended_has_no_effect() {
    let world = World::new(&[100]);
    let seat = world.awake(0, Side::Main, 1);
    seat.update_checkpoint(1, b"old").unwrap();
    // A stop is requested, and it may store its last checkpoint.
    world.registry.request_stop(0, Side::Main, 1);
    assert!(seat.stop_requested() && !seat.is_fenced());
    assert_eq!(seat.update_checkpoint(2, b"last").unwrap(), 2);
    seat.beat();
    // Another copy than the one that is expected is not meant.
    world.registry.fence(0, Side::Main, 2);
    world.registry.fence(0, Side::Replica, 1);
    assert!(!seat.is_fenced());
    world.registry.fence(0, Side::Main, 1);
    assert!(seat.is_fenced());
    let error = seat.update_checkpoint(3, b"late").unwrap_err();
    assert!(matches!(error, ShmError::Ended { side: Side::Main, incarnation: 1 }), "{error}");
    seat.beat();
    assert_eq!(world.registry.beats(0, Side::Main), 2);
    // A request that comes later does not bring it back, nor does a new agent.
    let again = Registry::open(&world.path()).unwrap();
    again.wake(0, Side::Main, 1);
    assert!(seat.update_checkpoint(3, b"late").is_err());
    // A program that comes late to a place that was ended is not awake either.
    assert_eq!(Seat::take(&world.path(), 0, Side::Main, 1).unwrap().wait().unwrap(), Woken::Stop);
    let newer = world.awake(0, Side::Main, 2);
    assert!(!newer.is_fenced() && seat.is_fenced());
    assert_eq!(newer.update_checkpoint(3, b"new").unwrap(), 3);
}

#[test]
fn a_header_that_was_overwritten_is_written_again() {
    let world = World::new(&[100, 200]);
    let seat = world.awake(1, Side::Main, 1);
    let (path, registrations) = (world.path(), world.registry.registrations());
    assert!(!world.registry.repair(&path).unwrap());
    let before = fs::read(&path).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for (offset, bytes) in [(0, 64), (128, 16)] {
        file.write_all_at(&vec![0xa5; bytes], offset).unwrap();
        assert!(Registry::open(&path).is_err());
        assert!(world.registry.repair(&path).unwrap());
        assert!(fs::read(&path).unwrap() == before && world.registry.registrations() == registrations);
    }
    assert!(!seat.is_fenced());
    // Another file in its place is not changed.
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"other").unwrap();
    assert!(world.registry.repair(&path).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"other");
}

#[test]
fn an_agent_that_opens_the_registry_again_finds_the_copies() {
    let world = World::new(&[100, 100]);
    let seat = world.awake(1, Side::Main, 5);
    seat.update_checkpoint(3, b"state").unwrap();
    let before = world.registry.copy(1, Side::Main);
    let adopted = Registry::open(&world.path()).unwrap();
    assert_eq!(adopted.copy(1, Side::Main), before);
    assert_eq!(adopted.beats(1, Side::Main), 1);
    assert_eq!(adopted.layout(), world.registry.layout());
    assert!(adopted.is_of_job("job") && !adopted.is_of_job("another"));
    adopted.request_stop(1, Side::Main, 5);
    assert!(seat.stop_requested());
}

#[test]
fn the_newest_checkpoint_is_read_by_the_other_copy() {
    let world = World::new(&[100, 8]);
    assert_eq!(world.newest(0), None);
    let main = world.awake(0, Side::Main, 1);
    for step in 1..=25_u8 {
        let counter = world.registry.checkpoint_counter(0);
        assert_eq!(main.update_checkpoint(step.into(), &vec![step; step.into()]).unwrap(), u64::from(step));
        assert_ne!(world.registry.checkpoint_counter(0), counter);
    }
    let view = world.registry.newest(0).unwrap();
    let stored_at = view.stored_at;
    assert!((1..=crate::process::nanoseconds(rustix::time::ClockId::Boottime)).contains(&stored_at), "{stored_at}");
    assert_eq!(view, CheckpointView { sequence: 25, side: Some(Side::Main), bytes: 25, tag: 25, stored_at });
    let replica = world.awake(0, Side::Replica, 1);
    let mut bytes = Vec::new();
    let newest = replica.newest_checkpoint(&mut bytes).unwrap().unwrap();
    assert_eq!((newest.sequence, newest.tag, newest.damaged), (25, 25, 0));
    assert_eq!(bytes, vec![25; 25]);
    // The numbers continue.
    assert_eq!(replica.update_checkpoint(0, b"").unwrap(), 26);
    assert_eq!(world.newest(0), Some((26, Vec::new())));
    assert_eq!(world.newest(1), None, "pairs have their own checkpoints");
    assert!(matches!(replica.update_checkpoint(0, &[0; 101]), Err(ShmError::TooLarge { bytes: 101, most: 100 })));
    let asleep = world.seat(1, Side::Main, 1);
    assert!(matches!(asleep.update_checkpoint(0, b""), Err(ShmError::NotAwake(Side::Main))));
}

#[test]
fn a_writer_that_dies_in_the_middle_harms_nothing() {
    let world = World::new(&[100]);
    let main = world.awake(0, Side::Main, 1);
    for step in 1..=12_u8 {
        main.update_checkpoint(step.into(), &[step; 100]).unwrap();
    }
    begin_torn(&world.registry.area(0).unwrap(), 13, &[13; 50]);
    assert_eq!(world.newest(0), Some((12, vec![12; 100])));
    assert_eq!(world.registry.newest(0).unwrap().sequence, 12);
    let replica = world.awake(0, Side::Replica, 1);
    assert_eq!(replica.update_checkpoint(13, &[14; 7]).unwrap(), 13);
    assert_eq!(world.newest(0), Some((13, vec![14; 7])));
}

#[test]
fn damaged_bytes_lead_to_the_next_older_checkpoint() {
    let world = World::new(&[100]);
    let main = world.awake(0, Side::Main, 1);
    for step in 1..=10_u8 {
        main.update_checkpoint(step.into(), &[step; 100]).unwrap();
    }
    let area = world.registry.area(0).unwrap();
    area.write(0, &[10, 10, 10, 0]).unwrap();
    area.words().heads[9].length.store(u64::MAX, Ordering::Relaxed);
    let mut bytes = Vec::new();
    let newest = world.registry.read_newest(0, &mut bytes).unwrap().unwrap();
    assert_eq!((newest.sequence, newest.damaged, bytes), (8, 1, vec![8; 100]));
}

#[test]
fn a_reader_never_sees_a_torn_checkpoint() {
    let world = World::new(&[40_000]);
    let world = Arc::new(world);
    let main = world.awake(0, Side::Main, 1);
    let reader = thread::spawn({
        let world = Arc::clone(&world);
        move || {
            let (mut bytes, mut last) = (Vec::new(), 0);
            while last < 3000 {
                let Some(read) = world.registry.read_newest(0, &mut bytes).unwrap() else { continue };
                assert!(read.sequence >= last && read.damaged == 0, "{read:?} after {last}");
                last = read.sequence;
                assert_eq!(bytes.len(), 30_000 + last as usize);
                assert!(bytes.iter().all(|byte| *byte == last as u8), "checkpoint {last} is torn");
            }
        }
    });
    for step in 1..=3000_u64 {
        main.update_checkpoint(0, &vec![step as u8; 30_000 + step as usize]).unwrap();
    }
    reader.join().unwrap();
}

#[test]
fn mirrored_checkpoints_replace_those_of_a_copy_that_lost_its_turn() {
    let world = World::new(&[100]);
    let main = world.awake(0, Side::Main, 1);
    for step in 1..=5_u8 {
        main.update_checkpoint(0, &[step]).unwrap();
    }
    let put = |sequence, bytes: &[u8]| world.registry.put_mirrored(0, sequence, 9, bytes);
    assert!(matches!(put(4, b"late"), Err(ShmError::AwakeHere(Side::Main))));
    world.registry.expect(0, Side::Main, 2);
    // The replica on the other node went on from checkpoint 3.
    put(4, b"four").unwrap();
    assert_eq!(world.newest(0), Some((4, b"four".to_vec())));
    let counter = world.registry.checkpoint_counter(0);
    put(4, b"four").unwrap();
    assert_eq!(world.registry.checkpoint_counter(0), counter, "repeated");
    assert_eq!(world.registry.newest(0).unwrap().side, None);
    // Some were skipped.
    put(40, b"forty").unwrap();
    let main = world.awake(0, Side::Main, 3);
    assert_eq!(main.update_checkpoint(0, b"own").unwrap(), 41);
    assert!(put(0, b"").is_err());
    assert!(matches!(world.registry.put_mirrored(1, 1, 0, b""), Err(ShmError::NoSuchPair { pair: 1, pairs: 1 })));
}

#[test]
fn a_registry_is_created_once_with_its_space() {
    let world = World::new(&[400_000]);
    let layout = world.registry.layout();
    let error = Registry::create(&world.path(), &layout, "job").unwrap_err();
    assert!(error.to_string().contains("File exists"), "{error}");
    let file = fs::metadata(world.path()).unwrap();
    assert_eq!(file.mode() & 0o7777, 0o600);
    assert!(file.blocks() * 512 >= file.len(), "{} blocks for {} bytes", file.blocks(), file.len());
    assert_eq!(fs::read_dir(world.directory.path()).unwrap().count(), 1, "the temporary file is removed");
    // An agent that was killed while it created one.
    fs::rename(world.path(), world.directory.path().join("registry.new")).unwrap();
    Registry::create(&world.path(), &layout, "job").unwrap();
}

#[test]
fn files_that_are_not_a_registry_of_this_user_are_refused() {
    let world = World::new(&[100]);
    let refused = |path: &Path| {
        let seat = Seat::take(path, 0, Side::Main, 1).unwrap_err().to_string();
        assert_eq!(Registry::open(path).unwrap_err().to_string(), seat);
        seat
    };
    let other = |name: &str| world.directory.path().join(name);
    symlink(world.path(), other("link")).unwrap();
    assert!(refused(&other("link")).ends_with("it is a symbolic link"));
    assert!(refused(&other("missing")).contains("No such file"));
    assert!(refused(world.directory.path()).contains("director"));
    rustix::fs::mknodat(rustix::fs::CWD, other("pipe"), rustix::fs::FileType::Fifo, Mode::from(0o600), 0).unwrap();
    assert!(refused(&other("pipe")).ends_with("it is not a regular file"));
    OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(other("empty")).unwrap();
    assert!(refused(&other("empty")).ends_with("it has only 0 bytes"));
    for mode in [0o640, 0o666, 0o400, 0o4600] {
        set_permissions(world.path(), Permissions::from_mode(mode)).unwrap();
        // Other than root, the owner cannot open it for writing either.
        let why = refused(&world.path());
        assert!(why.contains("must be 0600") || why.contains("Permission denied"), "{why}");
    }
    set_permissions(world.path(), Permissions::from_mode(0o600)).unwrap();
    if rustix::process::geteuid().is_root() {
        set_permissions(world.directory.path(), Permissions::from_mode(0o755)).unwrap();
        let read = std::process::Command::new("cat").arg(world.path()).uid(65534).output().unwrap();
        assert!(!read.status.success() && read.stdout.is_empty(), "another user can read the registry");
        std::os::unix::fs::chown(world.path(), Some(65534), None).unwrap();
        assert!(refused(&world.path()).contains("it belongs to user 65534"));
        std::os::unix::fs::chown(world.path(), Some(0), None).unwrap();
    }
    let file = OpenOptions::new().write(true).open(world.path()).unwrap();
    let bytes = file.metadata().unwrap().len();
    for changed in [200, bytes - 1, bytes + 1] {
        file.set_len(changed).unwrap();
        refused(&world.path());
    }
    file.set_len(bytes).unwrap();
    assert!(Registry::open(&world.path()).is_ok());
}

#[test]
fn a_copy_that_sleeps_uses_no_processor_time() {
    let world = World::new(&[100]);
    let seat = world.seat(0, Side::Replica, 1);
    let (told, tid) = std::sync::mpsc::channel();
    let copy = thread::spawn(move || {
        told.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        seat.wait().unwrap()
    });
    let tid = tid.recv().unwrap();
    let wchan = format!("/proc/self/task/{tid}/syscall");
    // It is in the system call `futex`, and stays there: its switches are counted.
    let switches = || {
        let status = fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    until("the system call", || fs::read_to_string(&wchan).is_ok_and(|call| !call.starts_with("running")));
    let before = switches();
    thread::sleep(Duration::from_millis(300));
    assert!(switches() <= before + 2, "{before} switches, then {}", switches());
    world.registry.wake(0, Side::Replica, 1);
    assert_eq!(copy.join().unwrap(), Woken::Awake);
}

#[test]
fn a_lease_that_has_run_out_refuses_checkpoints() {
    let world = World::new(&[100]);
    let seat = world.awake(0, Side::Main, 1);
    assert!(!seat.has_lease());
    world.registry.hold_until(0, Side::Main, Some(u64::MAX));
    assert!(seat.has_lease());
    seat.obey_lease();
    seat.update_checkpoint(0, b"in time").unwrap();
    world.registry.hold_until(0, Side::Main, Some(0));
    assert!(matches!(seat.update_checkpoint(0, b"late"), Err(ShmError::LeaseExpired(Side::Main))));
    assert_eq!(Registry::open(&world.path()).unwrap().held_until(0, Side::Main), Some(1));
    world.registry.expect(0, Side::Main, 2);
    assert_eq!(world.registry.held_until(0, Side::Main), None);
}

#[test]
fn a_mirrored_checkpoint_replaces_all_others_once_it_is_stored() {
    let world = World::new(&[100, 100]);
    for pair in [0, 1] {
        let main = world.awake(pair, Side::Main, 1);
        for step in 0..40 {
            main.update_checkpoint(step, b"x").unwrap();
        }
        world.registry.expect(pair, Side::Main, 2);
    }
    // It does not fit: what is there stays.
    let replace = |sequence, bytes: &[u8]| world.registry.replace_by_mirrored(0, sequence, 9, bytes);
    assert!(matches!(replace(4, &[0; 101]), Err(ShmError::TooLarge { .. })));
    assert_eq!(world.newest(0), Some((40, b"x".to_vec())));
    replace(39, b"y").unwrap();
    assert_eq!((world.newest(0), world.registry.checkpoint_counter(0)), (Some((39, b"y".to_vec())), 39));
    // No older one is left: when this one is damaged, there is none.
    world.registry.put_mirrored(0, 1, 0, b"first").unwrap();
    assert_eq!(world.newest(0), Some((1, b"first".to_vec())));
    assert_eq!(world.newest(1), Some((40, b"x".to_vec())));
    assert!(world.registry.replace_by_mirrored(2, 1, 0, b"").is_err());
}
