//! What the test suites share: the fixture archives, unpacked once below target/.
