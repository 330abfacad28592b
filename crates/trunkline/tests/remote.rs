//! `ls`, `cat`, `stat` and `cp` from outside, on our own server: what they print, how they end,
//! what they say when something is wrong.

mod remote {
    mod copying;
    mod damage;
    mod fixtures;
    mod lies;
    mod listing;
    mod lying;
    mod places;
    mod reading;
    mod streams;
    mod trees;
}
