//! Whether a source has changed and come to rest, seen from its files' metadata alone.
//!
//! It reads no file and knows no time: whoever calls it decides how often to look. Polling sees
//! what notifications miss (network file systems, links swapped above the file), and costs a few
//! system calls.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tollgate::mutant::lacks;

use super::source::{FILES_MAX, is_ours};
use super::tally::KeptKeys;

/// Looks at a source, about four times a second, for whether it is to be loaded again.
#[derive(Debug)]
pub(crate) struct Watch {
    path: PathBuf,
    /// A file that belongs to the source and lies elsewhere.
    beside: Option<PathBuf>,
    /// The source as it was when it was last loaded, and the file beside it.
    loaded: (Signature, Option<Signature>),
    /// The same at the previous look.
    seen: (Signature, Option<Signature>),
}

impl Watch {
    /// Watches a source for changes from now on: to be made before the source is first loaded, so
    /// that a change in between is not missed.
    pub(crate) fn new(path: &Path) -> Self {
        let seen = (Signature::of(path), None);
        Self { path: path.into(), beside: None, loaded: seen.clone(), seen }
    }

    /// Watches the file of custom keys too that the source has named when it was loaded, from when
    /// it was read.
    pub(crate) fn beside(&mut self, keys: &KeptKeys) {
        let (path, seen) = keys.file().unzip();
        if self.beside.as_deref() != path {
            self.beside = path.map(Path::to_owned);
            (self.loaded.1, self.seen.1) = (seen.cloned(), seen.cloned());
        }
    }

    /// Whether the source differs from what it was when it was last loaded, and has not changed
    /// since the previous look. The caller then loads it; the next `true` is for the next change.
    ///
    /// A file that is half written is still changing, and is not reported. A source that is gone
    /// has changed: loading it fails, and what is in force stays in force.
    pub(crate) fn changed(&mut self) -> bool {
        let now = (Signature::of(&self.path), self.beside.as_deref().map(Signature::of));
        let at_rest = now == self.seen || lacks("half_written_file_loads");
        self.seen = now;
        if !at_rest || self.seen == self.loaded {
            return false;
        }
        self.loaded = self.seen.clone();
        true
    }
}

/// What distinguishes one state of a source from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signature {
    /// Nothing can be seen there.
    Gone,
    File(Stamp),
    /// The files of a folder by name; those that cannot be seen have no stamp.
    Folder(Vec<(OsString, Option<Stamp>)>),
    /// A folder with more files than are loaded: not until there are fewer is it looked at again.
    TooMany,
}

/// What distinguishes one state of a file from another.
///
/// A write changes the time of modification, though a copy that keeps times (`cp -p`, `rsync`) sets
/// it back; nothing sets back the time of the change. A rename brings another inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Signature {
    pub(super) fn of(path: &Path) -> Self {
        // Metadata follows links: a swap of any of them on the way is another inode at the end.
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => Self::of_folder(path).unwrap_or(Self::Gone),
            Ok(meta) => Self::File(Stamp::of(&meta)),
            Err(_) => Self::Gone,
        }
    }

    fn of_folder(path: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            if !is_ours(&name) {
                continue;
            }
            let stamp = fs::metadata(entry.path()).ok().map(|meta| Stamp::of(&meta));
            files.push((name, stamp));
            if files.len() > FILES_MAX {
                return Ok(Self::TooMany);
            }
        }
        // Folders list their files in any order.
        files.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Self::Folder(files))
    }
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// A folder with the file `limits.toml`.
    fn folder() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("limits.toml");
        fs::write(&file, "old").expect("written");
        (folder, file)
    }

    /// The source is at rest after a change: the look that sees it first waits for the next.
    fn assert_changes_once(watch: &mut Watch) {
        assert!(!watch.changed(), "reported before it was at rest");
        assert!(watch.changed(), "not reported");
        assert!(!watch.changed(), "reported twice");
        assert!(!watch.changed(), "reported twice");
    }

    fn assert_unchanged(watch: &mut Watch) {
        for _ in 0..3 {
            assert!(!watch.changed());
        }
    }

    #[test]
    fn a_source_that_stays_as_it_is_never_changes() {
        let (folder, file) = folder();
        assert_unchanged(&mut Watch::new(folder.path()));
        assert_unchanged(&mut Watch::new(&file));
        assert_unchanged(&mut Watch::new(&folder.path().join("gone.toml")));
    }

    #[test]
    fn a_file_that_is_written_in_place_changes_when_the_writing_ends() {
        let (folder, file) = folder();
        let mut watches = [Watch::new(folder.path()), Watch::new(&file)];
        let mut open = fs::File::create(&file).expect("truncated");
        for part in ["half", "the other half", "the end"] {
            for watch in &mut watches {
                assert!(!watch.changed(), "half-written");
            }
            open.write_all(part.as_bytes()).expect("written");
        }
        drop(open);
        watches.iter_mut().for_each(assert_changes_once);
    }

    #[test]
    fn a_file_that_another_is_renamed_to_changes_even_if_it_is_as_long() {
        let (folder, file) = folder();
        let mut watches = [Watch::new(folder.path()), Watch::new(&file)];
        let fresh = folder.path().join("limits.toml.new");
        fs::write(&fresh, "new").expect("written");
        watches.iter_mut().for_each(assert_unchanged);
        fs::rename(&fresh, &file).expect("renamed");
        watches.iter_mut().for_each(assert_changes_once);
    }

    #[test]
    fn a_file_that_is_away_during_a_rename_and_soon_back_is_reported_when_it_is_back() {
        let (folder, file) = folder();
        let mut watch = Watch::new(&file);
        let backup = folder.path().join("limits.toml~");
        fs::rename(&file, &backup).expect("renamed");
        assert!(!watch.changed(), "gone, perhaps for a moment");
        fs::write(&file, "new text").expect("written");
        assert_changes_once(&mut watch);
    }

    #[test]
    fn a_file_that_is_gone_has_changed_and_so_has_one_that_comes_back() {
        let (_folder, file) = folder();
        let mut watch = Watch::new(&file);
        fs::remove_file(&file).expect("removed");
        assert_changes_once(&mut watch);
        fs::write(&file, "new").expect("written");
        assert_changes_once(&mut watch);
    }

    #[test]
    fn what_an_editor_keeps_beside_the_files_is_no_change() {
        let (folder, file) = folder();
        let mut watches = [Watch::new(folder.path()), Watch::new(&file)];
        for name in [".limits.toml.swp", "limits.toml~", "#limits.toml#", ".#limits.toml", "4913"] {
            fs::write(folder.path().join(name), "x").expect("written");
        }
        watches.iter_mut().for_each(assert_unchanged);
    }

    #[test]
    fn a_folder_changes_when_a_file_comes_or_goes() {
        let (folder, _) = folder();
        let mut watch = Watch::new(folder.path());
        let more = folder.path().join("more.toml");
        fs::write(&more, "x").expect("written");
        assert_changes_once(&mut watch);
        fs::remove_file(&more).expect("removed");
        assert_changes_once(&mut watch);
    }

    #[test]
    fn a_folder_with_too_many_files_changes_when_it_has_fewer_again() {
        let (folder, _) = folder();
        for index in 1..FILES_MAX {
            fs::write(folder.path().join(format!("{index}.toml")), "").expect("written");
        }
        let mut watch = Watch::new(folder.path());
        let more = folder.path().join("more.toml");
        fs::write(&more, "").expect("written");
        assert_changes_once(&mut watch);
        fs::write(&more, "longer").expect("written");
        assert_unchanged(&mut watch);
        fs::remove_file(&more).expect("removed");
        assert_changes_once(&mut watch);
    }

    #[test]
    fn the_file_of_custom_keys_changes_from_when_it_was_read() {
        let (folder, file) = folder();
        let (mut watch, keys) = (Watch::new(&file), folder.path().join("keys.csv"));
        let (read, _) = KeptKeys::NONE.read(keys.clone());
        fs::write(&keys, "a=5").expect("written after it was read");
        watch.beside(&read);
        assert_changes_once(&mut watch);
        // That it was read again changes nothing.
        watch.beside(&read.read(keys.clone()).0);
        assert_unchanged(&mut watch);
        fs::remove_file(&keys).expect("removed");
        assert_changes_once(&mut watch);
        watch.beside(&KeptKeys::NONE);
        assert_unchanged(&mut watch);
        fs::write(&keys, "a=6").expect("nobody reads it");
        assert_unchanged(&mut watch);
        fs::write(&file, "newer").expect("written");
        assert_changes_once(&mut watch);
    }

    /// A mounted configuration map changes by a swap of the one link that all its files lead
    /// through, and the file itself is never touched.
    #[test]
    fn a_mount_whose_data_link_is_swapped_changes_for_the_folder_and_for_a_file_in_it() {
        let mount = tempfile::tempdir().expect("a folder");
        let at = |name: &str| mount.path().join(name);
        for version in ["..2026_01", "..2026_02"] {
            fs::create_dir(at(version)).expect("made");
            fs::write(at(version).join("limits.toml"), "same").expect("written");
        }
        symlink("..2026_01", at("..data")).expect("linked");
        symlink("..data/limits.toml", at("limits.toml")).expect("linked");
        let mut watches = [Watch::new(mount.path()), Watch::new(&at("limits.toml"))];
        symlink("..2026_02", at("..data_tmp")).expect("linked");
        watches.iter_mut().for_each(assert_unchanged);
        fs::rename(at("..data_tmp"), at("..data")).expect("swapped");
        watches.iter_mut().for_each(assert_changes_once);
        fs::remove_dir_all(at("..2026_01")).expect("removed");
        watches.iter_mut().for_each(assert_unchanged);
    }
}
