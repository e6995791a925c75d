//! Lines of source files, for showing.
//!
//! Debug information names files as they were when the program was built. By now
//! they may be gone, changed, or something else entirely.

use std::fs;
use std::path::Path;

use miette::{MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

use crate::text::clean;

/// A larger file is no source that a person wrote.
const LARGEST_FILE: u64 = 8 << 20;

/// Characters kept of a line.
const LONGEST_LINE: usize = 240;

/// Lines shown before and after one that is pointed at.
const CONTEXT: usize = 1;

/// Parts of several files as one text for miette: each file has its own stretch of
/// offsets, so that a label in it is told apart from one in another.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<Source>,
}

/// One file.
#[derive(Debug)]
struct Source {
    path: String,
    /// As shown.
    name: String,
    /// Where its offsets begin.
    base: usize,
    /// The lines around those asked for; the others are empty, so that lines keep their
    /// numbers and a large file costs little.
    text: String,
    lines: Vec<String>,
}

impl Sources {
    /// Reads the files in which these places (path and line) are. Places whose file
    /// can't be shown are left out.
    #[must_use]
    pub fn read<'a>(places: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let mut wanted: Vec<(&str, Vec<usize>)> = Vec::new();
        for (path, line) in places {
            let line = line as usize;
            match wanted.iter_mut().find(|(known, _)| *known == path) {
                Some((_, lines)) => lines.push(line),
                None => wanted.push((path, vec![line])),
            }
        }
        let mut sources = Self::default();
        let mut base = 0;
        for (path, lines) in wanted {
            let Some(text) = load(path) else { continue };
            let source = Source::new(path, &text, &lines, base);
            base += source.text.len() + 2;
            sources.files.push(source);
        }
        sources
    }

    /// The offset and length of a line's text, without its indentation. `None` if the file
    /// is not there or has no such line.
    #[must_use]
    pub fn span(&self, path: &str, line: u32) -> Option<(usize, usize)> {
        let source = self.files.iter().find(|source| source.path == path)?;
        let place = (line as usize).checked_sub(1)?;
        let text = source.lines.get(place)?;
        let before: usize = source.lines[..place]
            .iter()
            .map(|line| line.len() + 1)
            .sum();
        let indentation = text.len() - text.trim_start().len();
        Some((source.base + before + indentation, text.trim().len()))
    }

    /// Whether there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

impl Source {
    fn new(path: &str, text: &str, wanted: &[usize], base: usize) -> Self {
        let near = |number: usize| {
            wanted
                .iter()
                .any(|line| number.abs_diff(*line) <= CONTEXT + 1)
        };
        let lines: Vec<String> = text
            .lines()
            .enumerate()
            .map(|(place, line)| {
                if near(place + 1) {
                    clean(line, LONGEST_LINE).trim_end().to_owned()
                } else {
                    String::new()
                }
            })
            .collect();
        let mut shown = lines.join("\n");
        shown.push('\n');
        Self {
            path: path.to_owned(),
            name: shown_path(path),
            base,
            text: shown,
            lines,
        }
    }
}

/// A source file's text, if it is one.
pub(crate) fn load(path: &str) -> Option<String> {
    // Asked first, as opening a pipe would wait for a writer.
    let about = fs::metadata(path).ok()?;
    if !about.is_file() || about.len() > LARGEST_FILE {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A path as shown: relative to the working directory if it's below it.
#[must_use]
pub fn shown_path(path: &str) -> String {
    let directory = std::env::current_dir().unwrap_or_default();
    let below = Path::new(path)
        .strip_prefix(&directory)
        .ok()
        .filter(|below| !below.as_os_str().is_empty() && directory.parent().is_some());
    clean(&below.map_or(path.into(), Path::to_string_lossy), 300).into_owned()
}

impl SourceCode for Sources {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let source = self
            .files
            .iter()
            .rev()
            .find(|source| source.base <= span.offset())
            .ok_or(MietteError::OutOfBounds)?;
        let offset = span.offset() - source.base;
        // Two files' lines are never one snippet.
        if offset + span.len() > source.text.len() {
            return Err(MietteError::OutOfBounds);
        }
        let contents =
            source
                .text
                .as_str()
                .read_span(&(offset, span.len()).into(), before, after)?;
        let (start, length) = (contents.span().offset(), contents.span().len());
        let (line, column, lines) = (contents.line(), contents.column(), contents.line_count());
        // The inner contents' borrow is of the text, but its type doesn't say so.
        let data = source
            .text
            .as_bytes()
            .get(start..start + length)
            .ok_or(MietteError::OutOfBounds)?;
        Ok(Box::new(MietteSpanContents::new_named(
            source.name.clone(),
            data,
            (source.base + start, length).into(),
            line,
            column,
            lines,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(directory: &Path, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn at(sources: &Sources, path: &str, line: u32) -> String {
        let (offset, length) = sources.span(path, line).unwrap();
        let contents = sources.read_span(&(offset, length).into(), 0, 0).unwrap();
        assert_eq!(contents.line() + 1, line as usize);
        String::from_utf8(contents.data().to_vec()).unwrap()
    }

    #[test]
    fn lines_of_two_files_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let a = file(directory.path(), "a", "one\n\ttwo  \r\nthree\n");
        let b = file(directory.path(), "b", "uno\ndos");
        let sources = Sources::read([(&*a, 2), (&*b, 2), (&*a, 3)]);
        assert_eq!(at(&sources, &a, 2), "two");
        assert_eq!(at(&sources, &a, 3), "three");
        assert_eq!(at(&sources, &b, 2), "dos");
        let (first, last) = (sources.span(&a, 3).unwrap(), sources.span(&b, 1).unwrap());
        let both = (first.0, last.0 + last.1 - first.0);
        assert!(sources.read_span(&both.into(), 1, 1).is_err());
    }

    #[test]
    fn what_cannot_be_shown_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let a = file(directory.path(), "a", "one\n");
        let binary = file(directory.path(), "b", b"\xff\xfe\x1b[31m\n");
        let long = file(directory.path(), "c", "é".repeat(100_000));
        let huge = file(directory.path(), "d", vec![b'\n'; 9 << 20]);
        let folder = directory.path().display().to_string();
        let places = [&a, &binary, &long, &huge, &folder].map(|path| (&**path, 1));
        let sources = Sources::read(places.into_iter().chain([("/nowhere", 1)]));
        for (path, line) in [
            (&*a, 2),
            (&a, 0),
            (&a, u32::MAX),
            (&huge, 1),
            (&folder, 1),
            ("/nowhere", 1),
        ] {
            assert_eq!(sources.span(path, line), None, "{path}:{line}");
        }
        assert_eq!(at(&sources, &binary, 1), "\u{fffd}\u{fffd}\u{fffd}[31m");
        assert_eq!(at(&sources, &long, 1).chars().count(), LONGEST_LINE + 1);
    }

    #[test]
    fn only_the_lines_asked_for_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let text: String = (1..=1000).map(|line| format!("line {line}\n")).collect();
        let a = file(directory.path(), "a", text);
        let sources = Sources::read([(&*a, 500)]);
        assert_eq!(at(&sources, &a, 500), "line 500");
        assert!(sources.files[0].text.len() < 1100);
    }
}
