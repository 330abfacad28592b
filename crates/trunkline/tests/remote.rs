//! Tests the commands on places (`ls`, `cat`, `stat`, `cp`, `rm`, `mkdir`, `du`, `df`) from
//! outside, on our server: output, exit status, and error messages.

mod remote {
    mod changing;
    mod checking;
    mod copying;
    mod damage;
    mod fixtures;
    mod lies;
    mod listing;
    mod lying;
    mod places;
    mod reading;
    mod space;
    mod streams;
    mod summary;
    mod trees;
}
