//! Debug information kept in files of its own.
//!
//! Distributions strip their libraries and name the stripped part in two ways: by
//! build id, under `/usr/lib/debug/.build-id`, and by a link with a checksum.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::Object;
use object::read::ReadRef;

/// Where distributions install debug files.
const ROOT: &str = "/usr/lib/debug";

/// A file's build id as hexadecimal digits.
pub(super) fn build_id<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
) -> Option<String> {
    object.build_id().ok().flatten().map(hex)
}

/// The debug file of a stripped file at `path`.
pub(super) fn separate<'data, R: ReadRef<'data>>(
    path: &Path,
    object: &object::File<'data, R>,
) -> Option<PathBuf> {
    let by_id = object.build_id().ok().flatten().and_then(by_build_id);
    if by_id.is_some() {
        return by_id;
    }
    let (name, checksum) = object.gnu_debuglink().ok().flatten()?;
    let name = Path::new(OsStr::from_bytes(name));
    // A link names a file, not a path out of the places searched.
    if name.components().count() != 1 || name.file_name().is_none() {
        return None;
    }
    let path = fs::canonicalize(path).ok()?;
    let directory = path.parent()?;
    let installed = Path::new(ROOT).join(directory.strip_prefix("/").ok()?);
    [directory.to_owned(), directory.join(".debug"), installed]
        .into_iter()
        .map(|place| place.join(name))
        .find(|file| *file != path && checksum_of(file) == Some(checksum))
}

/// The file of the parts that several debug files share (`dwz`).
pub(super) fn shared<'data, R: ReadRef<'data>>(
    path: &Path,
    object: &object::File<'data, R>,
) -> Option<PathBuf> {
    let (name, id) = object.gnu_debugaltlink().ok().flatten()?;
    by_build_id(id).or_else(|| {
        let file = path.parent()?.join(OsStr::from_bytes(name));
        file.is_file().then_some(file)
    })
}

fn by_build_id(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id
        .split_at_checked(1)
        .filter(|(_, rest)| !rest.is_empty())?;
    let file = PathBuf::from(format!(
        "{ROOT}/.build-id/{}/{}.debug",
        hex(first),
        hex(rest)
    ));
    file.is_file().then_some(file)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The CRC-32 of a file, which `.gnu_debuglink` carries.
fn checksum_of(path: &Path) -> Option<u32> {
    if !fs::metadata(path).is_ok_and(|about| about.is_file()) {
        return None;
    }
    let mut file = File::open(path).ok()?;
    let mut checksum = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(checksum.finalize()),
            length => checksum.update(&buffer[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_the_usual_crc() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x");
        fs::write(&file, "123456789").unwrap();
        assert_eq!(checksum_of(&file), Some(0xcbf4_3926));
        assert_eq!(checksum_of(directory.path()), None);
    }

    #[test]
    fn ids_are_digits() {
        assert_eq!(hex(&[0, 0xab, 0x10]), "00ab10");
        assert_eq!(by_build_id(&[]), None);
        assert_eq!(by_build_id(&[0xab]), None);
    }
}
