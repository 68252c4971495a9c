//! Messages of a node's kernel that explain why a program on it failed.

/// Words of a message, and what they are known for.
const KNOWN: [(&str, &str); 6] = [
    ("fallen off the bus", "the GPU does not answer any more: exclude the node"),
    ("NVRM: Xid", "the GPU or its driver failed: NVIDIA's list of Xid numbers has the reason; exclude the node"),
    ("GPU reset begin", "the GPU was reset: if it happens again, exclude the node"),
    ("[Hardware Error]", "the processor or the memory of the node failed: exclude the node"),
    ("I/O error, dev", "a disk of the node failed: exclude the node"),
    ("Remounting filesystem read-only", "a file system of the node has an error and is read-only: exclude the node"),
];

/// What a message is known for; `None` for one that does not explain a failure.
pub fn hint(message: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(words, _)| message.contains(words)).map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_as_kernels_print_them_have_their_hints() {
        for (message, words) in [
            ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.", "does not answer"),
            ("NVRM: Xid (PCI:0000:3b:00): 48, pid=4711, An uncorrectable double bit error", "Xid numbers"),
            ("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!", "was reset"),
            ("mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: bea0000000000108", "the memory of the node"),
            ("I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x80700", "a disk"),
            ("EXT4-fs (sda1): Remounting filesystem read-only", "is read-only"),
        ] {
            assert!(hint(message).is_some_and(|hint| hint.contains(words)), "{message}: {:?}", hint(message));
        }
        assert_eq!(hint("usb 1-1: new high-speed USB device number 2 using xhci_hcd"), None);
    }
}
