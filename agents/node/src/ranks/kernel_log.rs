//! What the kernel of the node reports while a process runs (`/dev/kmsg` of Linux, which dmesg prints).

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;

use holdfast_model::kernel_message;
use rustix::fs::OFlags;

const FILE: &str = "/dev/kmsg";
/// Longer than a record of the kernel.
const RECORD: usize = 8 << 10;
/// A message is cut off after so many characters.
const SHOWN: usize = 300;
/// No more records are read after one end of a process: others are read after the next.
const RECORDS: usize = 10_000;

/// The log, from the time at which it was opened.
#[derive(Debug)]
pub struct KernelLog {
    /// `None` where it cannot be read: in most containers, and without the permission.
    file: Option<File>,
}

/// A message that explains a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMessage {
    /// Its number in the log.
    pub number: u64,
    pub text: String,
}

impl KernelLog {
    pub fn open() -> KernelLog {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(FILE);
        let at_end = opened.and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file));
        KernelLog { file: at_end.ok() }
    }

    /// The first message since then that explains a failure.
    pub fn reason(&mut self) -> Option<KernelMessage> {
        self.messages().find(|message| kernel_message::hint(&message.text).is_some())
    }

    fn messages(&mut self) -> impl Iterator<Item = KernelMessage> {
        let mut waiting = VecDeque::new();
        let mut records = 0;
        std::iter::from_fn(move || {
            while waiting.is_empty() && records < RECORDS {
                let mut buffer = [0; RECORD];
                records += 1;
                match self.file.as_mut()?.read(&mut buffer) {
                    Ok(0) => return None,
                    Ok(length) => {
                        let text = String::from_utf8_lossy(&buffer[..length]);
                        waiting.extend(text.lines().filter_map(KernelMessage::of_record));
                    }
                    // Records that were overwritten before they were read.
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                    Err(_) => return None,
                }
            }
            waiting.pop_front()
        })
    }
}

impl KernelMessage {
    /// Of a line `PRIORITY,NUMBER,TIME,FLAGS…;TEXT`; other lines have properties of the message before.
    fn of_record(line: &str) -> Option<KernelMessage> {
        let (prefix, text) = line.split_once(';')?;
        let number = prefix.split(',').nth(1)?.parse().ok()?;
        Some(KernelMessage { number, text: text.chars().take(SHOWN).collect() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn records_are_read_as_the_kernel_writes_them() {
        let text = "GPU has fallen off the bus.";
        let record = format!("4,1170,5140900,-,caller=T1;{text}");
        assert_eq!(KernelMessage::of_record(&record), Some(KernelMessage { number: 1170, text: text.to_owned() }));
        assert_eq!(KernelMessage::of_record(" SUBSYSTEM=pci"), None);
    }

    /// A message of this test, in the log of the machine.
    #[test]
    fn messages_after_the_log_was_opened_are_read() {
        let unique = format!("holdfast test {}", std::process::id());
        let write = |text: &str| fs::write(FILE, format!("<7>{text}\n"));
        if write(&format!("{unique}: earlier")).is_err() {
            return eprintln!("the log of the kernel cannot be written here");
        }
        let mut log = KernelLog::open();
        write(&format!("{unique}: later")).unwrap();
        let own: Vec<String> =
            log.messages().map(|message| message.text).filter(|text| text.contains(&unique)).collect();
        assert_eq!(own, [format!("{unique}: later")]);
        assert_eq!(log.reason(), None);
    }
}
