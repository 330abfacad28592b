//! `ls`, `cat` and `stat` from outside, on our own server: what they print, how they end, what they say
//! when something is wrong.

mod remote {
    mod fixtures;
    mod listing;
    mod reading;
}
