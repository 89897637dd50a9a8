//! The store as the log that the consensus library writes and reads.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};

use futures_util::stream::{self, Stream};
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use redb::Durability;

use super::super::record;
use super::super::types::{Entry, LogId, Types, Vote};
use super::{COMMITTED, LOG, PURGED, RECORDS, Store, StoreError, VOTE, entry};

impl Store {
    /// The entries of a range that there are, up to about `bytes_max` bytes but at least one.
    pub(in super::super) fn entries(
        &self,
        range: (Bound<u64>, Bound<u64>),
        bytes_max: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let records = self.look(|transaction| {
            let log = transaction.open_table(LOG)?;
            let mut records = Vec::new();
            let mut bytes = 0;
            for record in log.range::<u64>(range)? {
                let (index, record) = record?;
                let record = record.value().to_vec();
                bytes += record.len();
                records.push((index.value(), record));
                if bytes >= bytes_max {
                    break;
                }
            }
            Ok(records)
        })?;
        let mut entries: Vec<Entry> = Vec::with_capacity(records.len());
        for (index, bytes) in records {
            if entries.last().is_some_and(|last| last.log_id.index + 1 != index) {
                return Err(missing(index));
            }
            entries.push(entry(index, &bytes)?);
        }
        Ok(entries)
    }
}

impl<C: Types> RaftLogReader<C> for Store {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        Ok(self.entries(range, usize::MAX)?)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        let range = (Bound::Included(start), Bound::Excluded(end));
        Ok(self.entries(range, MESSAGE_BYTES_MAX)?)
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + Send
    where
        RB: RangeBounds<u64> + Clone + Debug + Send,
    {
        // What is applied after a restart may be large; little of it is in memory at once.
        let start = (range.start_bound().cloned(), Vec::new().into_iter());
        let (store, end) = (self.clone(), range.end_bound().cloned());
        stream::try_unfold(start, move |(from, mut read)| {
            let store = store.clone();
            async move {
                if read.len() == 0 && !is_over(from, end) {
                    read = store.entries((from, end), MESSAGE_BYTES_MAX)?.into_iter();
                }
                let Some(entry) = read.next() else { return Ok(None) };
                let index = entry.log_id.index;
                if let Bound::Excluded(before) = from
                    && index != before + 1
                {
                    return Err(missing(index).into());
                }
                Ok(Some((entry, (Bound::Excluded(index), read))))
            }
        })
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.vote()?)
    }
}

/// Whether nothing can follow: the database takes such a range for a mistake.
fn is_over(from: Bound<u64>, end: Bound<u64>) -> bool {
    let next = match from {
        Bound::Included(index) => index,
        Bound::Excluded(index) => index + 1,
        Bound::Unbounded => 0,
    };
    match end {
        Bound::Included(last) => next > last,
        Bound::Excluded(end) => next >= end,
        Bound::Unbounded => false,
    }
}

fn missing(index: u64) -> StoreError {
    StoreError::Damaged(format!("the entry before {index} is missing"))
}

impl<C: Types> RaftLogStorage<C> for Store {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<C>, io::Error> {
        Ok(LogState { last_purged_log_id: self.read(PURGED)?, last_log_id: self.last_log_id()? })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        Ok(self.keep(VOTE, vote, Durability::Immediate)?)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        // Older than it is, it is as true; the next entries take it to the disk.
        Ok(self.keep(COMMITTED, &committed, Durability::None)?)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.read::<Option<LogId>>(COMMITTED)?.flatten())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let records: Vec<(u64, Vec<u8>)> = entries
            .into_iter()
            .map(|entry| (entry.log_id.index, record::seal_value(&entry)))
            .collect();
        self.write(|transaction| {
            let mut log = transaction.open_table(LOG)?;
            for (index, record) in &records {
                log.insert(index, &**record)?;
            }
            Ok(())
        })?;
        callback.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let first = last_log_id.map_or(0, |last| last.index + 1);
        Ok(self.write(|transaction| {
            transaction.open_table(LOG)?.retain_in(first.., |_, _| false)?;
            Ok(())
        })?)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let purged = record::seal_value(&log_id);
        Ok(self.write(|transaction| {
            transaction.open_table(LOG)?.retain_in(..=log_id.index, |_, _| false)?;
            transaction.open_table(RECORDS)?.insert(PURGED, &*purged)?;
            Ok(())
        })?)
    }
}

/// So much of the log goes into one message, and at most one entry more.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
