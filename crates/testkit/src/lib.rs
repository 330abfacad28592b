//! What the test suites share: processes that end with their test, deadlines, peers.
