//! The promises of the library, one file each.
mod smoke;
