//! The coordinator's store on disks that fail, and its replicas in a fleet that does.

mod backup;
mod disk;
mod fleet;
mod random;
mod router;
mod store;
