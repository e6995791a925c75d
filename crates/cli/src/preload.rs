//! Finding the preload library.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The library's file name.
const NAME: &str = "libstreamcheck.so";

/// Names the library's file.
pub(crate) const VARIABLE: &str = "STREAMCHECK_LIBRARY";

/// The preload library, with its absolute path.
pub(crate) fn library() -> Result<PathBuf, Failure> {
    let given = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let exe = env::current_exe().unwrap_or_default();
    let path = find(given.as_deref(), exe.parent().unwrap_or(Path::new(".")))
        .map_err(|line| Failure::new(crate::USAGE, line))?;
    // The loader splits LD_PRELOAD at both, and knows no way to quote.
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| matches!(byte, b' ' | b':'))
    {
        return Err(Failure::new(
            crate::USAGE,
            format!(
                "{} has a space or a colon in its path, which LD_PRELOAD cannot hold; \
                 put the library elsewhere and say where with {VARIABLE}",
                path.display()
            ),
        ));
    }
    Ok(path)
}

fn find(given: Option<&OsStr>, beside: &Path) -> Result<PathBuf, String> {
    let absolute = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    if let Some(given) = given {
        let path = Path::new(given);
        if path.is_file() {
            return Ok(absolute(path));
        }
        return Err(format!(
            "{VARIABLE} is {}, but there is no such file",
            path.display()
        ));
    }
    let places = [beside.join("../lib"), beside.to_path_buf()];
    let found = places
        .iter()
        .map(|folder| folder.join(NAME))
        .find(|path| path.is_file());
    found.map(|path| absolute(&path)).ok_or_else(|| {
        format!(
            "{NAME} is neither in {} nor in {}; put it there, or say where it is with {VARIABLE}",
            beside.display(),
            absolute(beside)
                .parent()
                .unwrap_or(beside)
                .join("lib")
                .display()
        )
    })
}

/// `LD_PRELOAD` with the library before whatever is there already. In a run inside of a
/// run it leads the list already.
pub(crate) fn ld_preload(library: &Path, already: Option<OsString>) -> OsString {
    if let Some(already) = &already {
        let mut entries = already.as_bytes().split(|byte| matches!(byte, b' ' | b':'));
        if entries.next() == Some(library.as_os_str().as_bytes()) {
            return already.clone();
        }
    }
    let mut value = library.as_os_str().as_bytes().to_vec();
    if let Some(already) = already.filter(|already| !already.is_empty()) {
        value.push(b':');
        value.extend_from_slice(already.as_bytes());
    }
    OsString::from_vec(value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_library_is_found_where_an_installation_puts_it() {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir(root.path().join("lib")).unwrap();
        let missing = find(None, &bin).unwrap_err();
        assert!(
            missing.contains("STREAMCHECK_LIBRARY") && missing.contains("/lib;"),
            "{missing}"
        );
        let beside = bin.join(NAME);
        fs::write(&beside, "").unwrap();
        assert_eq!(find(None, &bin).unwrap(), beside.canonicalize().unwrap());
        let installed = root.path().join("lib").join(NAME);
        fs::write(&installed, "").unwrap();
        assert_eq!(find(None, &bin).unwrap(), installed.canonicalize().unwrap());
        assert_eq!(
            find(Some(beside.as_os_str()), &bin).unwrap(),
            beside.canonicalize().unwrap()
        );
        assert!(find(Some(OsStr::new("/no/such")), &bin).is_err());
    }

    #[test]
    fn other_preloads_stay() {
        let library = Path::new("/l/libstreamcheck.so");
        assert_eq!(ld_preload(library, None), "/l/libstreamcheck.so");
        assert_eq!(ld_preload(library, Some("".into())), "/l/libstreamcheck.so");
        assert_eq!(
            ld_preload(library, Some("a.so b.so".into())),
            "/l/libstreamcheck.so:a.so b.so"
        );
        for already in ["/l/libstreamcheck.so", "/l/libstreamcheck.so:a.so"] {
            assert_eq!(ld_preload(library, Some(already.into())), already);
        }
    }
}
