//! What an experiment measured: types, histograms, statistics.
