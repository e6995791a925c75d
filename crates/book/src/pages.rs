//! The pages there are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The Markdown files that a reader of the repository meets, relative to its root: the book's
/// pages, and those at the top.
///
/// # Errors
/// If a folder cannot be read.
pub fn all(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for name in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        pages.push(PathBuf::from(name));
    }
    gather(root, Path::new("docs"), &mut pages)?;
    pages.sort();
    Ok(pages)
}

fn gather(root: &Path, folder: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    let place = root.join(folder);
    for entry in fs::read_dir(&place).with_context(|| format!("read {}", place.display()))? {
        let name = folder.join(entry?.file_name());
        if root.join(&name).is_dir() {
            gather(root, &name, pages)?;
        } else if name.extension().is_some_and(|end| end == "md") {
            pages.push(name);
        }
    }
    Ok(())
}

/// A page's text.
///
/// # Errors
/// If it cannot be read.
pub fn read(root: &Path, page: &Path) -> Result<String> {
    fs::read_to_string(root.join(page)).with_context(|| format!("read {}", page.display()))
}
