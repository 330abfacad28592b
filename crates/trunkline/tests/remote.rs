//! Tests `ls`, `cat`, `stat` and `cp` from outside, on our server: output, exit status, and error
//! messages.

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
