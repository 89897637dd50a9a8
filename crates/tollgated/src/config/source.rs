//! A source: one file, or the `*.toml`, `*.yaml` and `*.yml` files of a folder, and their text.
//!
//! It knows files and not what is in them. Symbolic links are followed, because Kubernetes mounts
//! a set of files as links into a folder that it swaps.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::finding::{Finding, Text};

/// The files of a source, sorted by name.
///
/// # Errors
/// When the source is not there, is a folder without files for us, or has too many of them.
pub(super) fn list(source: &Path) -> Result<Vec<PathBuf>, Finding> {
    let unreadable = |path: &Path, error: io::Error| Finding::whole(path, cannot_read(&error));
    if !fs::metadata(source).map_err(|error| unreadable(source, error))?.is_dir() {
        return Ok(vec![source.into()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(source).map_err(|error| unreadable(source, error))? {
        let entry = entry.map_err(|error| unreadable(source, error))?;
        let path = entry.path();
        // Reading a pipe or a socket would wait for its other end, so that only files are read.
        if !is_ours(&entry.file_name()) || fs::metadata(&path).is_ok_and(|meta| !meta.is_file()) {
            continue;
        }
        files.push(path);
        if files.len() > FILES_MAX {
            let message = format!("holds more than {FILES_MAX} .toml and .yaml files");
            return Err(Finding::whole(source, message));
        }
    }
    if files.is_empty() {
        return Err(Finding::whole(source, "holds no .toml or .yaml files"));
    }
    files.sort();
    Ok(files)
}

/// The text of a file.
///
/// # Errors
/// When it cannot be read, is too long, or is not UTF-8.
pub(super) fn read(path: &Path) -> Result<String, Finding> {
    let mut bytes = Vec::new();
    File::open(path)
        // One byte more than is allowed, so that a file which grows meanwhile is noticed too.
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| Finding::whole(path, cannot_read(&error)))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Finding::whole(path, "is larger than 16 MiB"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let end = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(&error.as_bytes()[..end]).into_owned();
        let (line, column) = Text { path: path.into(), text }.position(end);
        Finding { line, column, ..Finding::whole(path, "is not UTF-8 from here on") }
    })
}

/// Whether a file of this name in a folder belongs to the set: what editors and Kubernetes keep
/// beside the files (`.limits.toml.swp`, `limits.toml~`, `#limits.toml#`, `..data`) does not.
pub(super) fn is_ours(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let ends: [&[u8]; 3] = [b".toml", b".yaml", b".yml"];
    ends.iter().any(|end| name.ends_with(end)) && !name.starts_with(b".")
}

/// Whether a file is JSON: by its name, or by its first sign where the name says nothing, since no
/// TOML begins so. In a folder none is, as JSON may be anything there.
pub(super) fn is_json(path: &Path, text: &str) -> bool {
    match path.extension() {
        Some(end) if end == "json" => true,
        Some(end) if end == "toml" => false,
        _ => text.trim_ascii_start().starts_with('{'),
    }
}

/// Whether a file is YAML, by its name; all that are neither are TOML.
pub(super) fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "yaml" || end == "yml")
}

fn cannot_read(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}

/// Files in a folder; more is not a set of limits but a mistaken path.
pub(super) const FILES_MAX: usize = 256;
/// Bytes in a file: about 200,000 overrides.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let files = list(folder).expect("a folder with files");
        let name = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into();
        files.iter().map(name).collect()
    }

    #[test]
    fn a_folder_is_its_toml_and_yaml_files_by_name_and_nothing_that_lies_beside_them() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in [
            "b.toml",
            "a.toml",
            "c.yml",
            "aa.yaml",
            ".hidden.toml",
            ".c.yml.swp",
            "c.yaml.bak",
            ".b.toml.swp",
            "b.toml~",
            "b.toml.bak",
            "#b.toml#",
            "notes.md",
            "4913",
        ] {
            fs::write(folder.path().join(name), "limit = []").expect("written");
        }
        fs::create_dir(folder.path().join("folder.toml")).expect("made");
        assert_eq!(names(folder.path()), ["a.toml", "aa.yaml", "b.toml", "c.yml"]);
    }

    #[test]
    fn a_mounted_set_is_found_once_behind_its_links() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("..2026_01")).expect("made");
        fs::write(folder.path().join("..2026_01/a.toml"), "limit = []").expect("written");
        symlink("..2026_01", folder.path().join("..data")).expect("linked");
        symlink("..data/a.toml", folder.path().join("a.toml")).expect("linked");
        assert_eq!(names(folder.path()), ["a.toml"]);
        assert_eq!(read(&folder.path().join("a.toml")).expect("readable"), "limit = []");
    }

    #[test]
    fn a_source_that_is_not_there_or_is_empty_is_an_error_at_its_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let empty = list(folder.path()).expect_err("empty");
        assert_eq!(empty, Finding::whole(folder.path(), "holds no .toml or .yaml files"));
        let gone = folder.path().join("gone.toml");
        let finding = list(&gone).expect_err("gone");
        assert_eq!((&finding.file, finding.line, finding.column), (&gone, 1, 1));
        assert!(finding.message.starts_with("cannot be read: "), "{finding}");
        // A link that leads nowhere is a file that is missing, not one to be passed over.
        symlink("nowhere", folder.path().join("a.toml")).expect("linked");
        let files = list(folder.path()).expect("a link");
        assert!(read(&files[0]).expect_err("leads nowhere").message.starts_with("cannot be read"));
    }

    #[test]
    fn the_257th_file_is_too_many() {
        let folder = tempfile::tempdir().expect("a folder");
        for index in 0..FILES_MAX {
            fs::write(folder.path().join(format!("{index}.toml")), "").expect("written");
        }
        assert_eq!(list(folder.path()).expect("enough").len(), FILES_MAX);
        fs::write(folder.path().join("more.toml"), "").expect("written");
        let finding = list(folder.path()).expect_err("too many");
        assert_eq!(finding.message, "holds more than 256 .toml and .yaml files");
    }

    #[test]
    fn a_file_has_16_mib_at_most() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.toml");
        fs::write(&path, "\n".repeat(16 << 20)).expect("written");
        assert_eq!(read(&path).expect("just fits").len(), 16 << 20);
        fs::write(&path, "\n".repeat((16 << 20) + 1)).expect("written");
        assert_eq!(read(&path).expect_err("too long").message, "is larger than 16 MiB");
    }

    #[test]
    fn a_byte_that_is_no_text_is_an_error_at_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.toml");
        fs::write(&path, b"# \xc3\xa9\nab\xff = 1").expect("written");
        let finding = read(&path).expect_err("no text");
        assert_eq!((finding.line, finding.column), (2, 3));
        assert_eq!(finding.message, "is not UTF-8 from here on");
    }
}
