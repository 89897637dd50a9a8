//! A disk in memory that forgets what was not synced, fills up, and fails.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;

/// Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// What is read.
    written: Vec<u8>,
    /// What is surely there after a loss of power.
    synced: Vec<u8>,
    /// What was written since, in order.
    unsynced: Vec<Step>,
    bytes_max: Option<usize>,
    fails: bool,
    syncs: usize,
}

#[derive(Debug, Clone)]
enum Step {
    Length(u64),
    Write(u64, Vec<u8>),
}

impl Step {
    fn take(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(length) => bytes.resize(*length as usize, 0),
            Self::Write(at, data) => {
                let (from, to) = (*at as usize, *at as usize + data.len());
                if bytes.len() < to {
                    bytes.resize(to, 0);
                }
                bytes[from..to].copy_from_slice(data);
            }
        }
    }
}

impl Disk {
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        let inner = Inner { written: bytes.clone(), synced: bytes, ..Inner::default() };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// The disk after a loss of power: `kept` says of each write since the last sync whether it
    /// had reached the disk.
    pub(super) fn after_power_loss(&self, mut kept: impl FnMut() -> bool) -> Self {
        let inner = self.inner();
        let mut bytes = inner.synced.clone();
        for step in &inner.unsynced {
            if kept() {
                step.take(&mut bytes);
            }
        }
        Self::of(bytes)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.inner().written.clone()
    }

    /// From now on it takes no more than so many bytes.
    pub(super) fn fill(&self, bytes_max: usize) {
        self.inner().bytes_max = Some(bytes_max);
    }

    /// From now on every write and sync fails.
    pub(super) fn fail(&self) {
        self.inner().fails = true;
    }

    pub(super) fn syncs(&self) -> usize {
        self.inner().syncs
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no test panics while it holds the lock")
    }

    fn step(&self, step: Step) -> Result<(), io::Error> {
        let mut inner = self.inner();
        if inner.fails {
            return Err(io::Error::other("the disk is broken"));
        }
        let end = match &step {
            Step::Length(length) => *length as usize,
            Step::Write(at, data) => *at as usize + data.len(),
        };
        if inner.bytes_max.is_some_and(|max| end > max.max(inner.written.len())) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        step.take(&mut inner.written);
        inner.unsynced.push(step);
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.inner().written.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let inner = self.inner();
        let from = offset as usize;
        let bytes = inner.written.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<(), io::Error> {
        self.step(Step::Length(length))
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut inner = self.inner();
        if inner.fails {
            return Err(io::Error::other("the disk is broken"));
        }
        inner.syncs += 1;
        for step in std::mem::take(&mut inner.unsynced) {
            step.take(&mut inner.synced);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.step(Step::Write(offset, data.to_vec()))
    }
}
