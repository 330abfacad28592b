//! Experiments: embedded groups, workloads, calibration, verdicts.
