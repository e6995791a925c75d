//! Paths with the process's own particulars in them.

use std::path::{Path, PathBuf};

use crate::Process;

/// A path in which `%p` stands for the process id, `%h` for the host, `%r` for the
/// rank (0 outside a distributed job) and `%%` for a percent sign. `-` alone means
/// standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTemplate(String);

impl PathTemplate {
    /// Takes `text` if every `%` in it means something.
    ///
    /// # Errors
    /// The sequence that means nothing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            if c == '%' {
                match rest.next() {
                    Some('p' | 'h' | 'r' | '%') => {}
                    Some(other) => return Err(format!("%{other}")),
                    None => return Err("%".to_owned()),
                }
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether it's `-`, standard output.
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        self.0 == "-"
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The same, taken relative to `directory`.
    pub(super) fn below(&self, directory: &Path) -> Self {
        if self.is_stdout() || Path::new(&self.0).is_absolute() {
            return self.clone();
        }
        // A directory's own percent signs stand for themselves.
        let directory = directory.to_string_lossy().replace('%', "%%");
        Self(format!("{directory}/{}", self.0))
    }

    /// The path for `process`.
    #[must_use]
    pub fn expand(&self, process: &Process) -> PathBuf {
        let mut out = String::with_capacity(self.0.len());
        let mut rest = self.0.chars();
        while let Some(c) = rest.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match rest.next() {
                Some('p') => out.push_str(&process.pid.to_string()),
                // A name that could leave the directory is no file name.
                Some('h') => out.push_str(&process.host.replace('/', "_")),
                Some('r') => out.push_str(&process.rank.unwrap_or(0).to_string()),
                Some(other) => out.push(other),
                None => out.push('%'),
            }
        }
        PathBuf::from(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> Process {
        Process {
            pid: 12,
            exe: String::new(),
            argv: Vec::new(),
            host: "node/1".to_owned(),
            rank: Some(3),
        }
    }

    #[test]
    fn particulars_are_filled_in() {
        let template = PathTemplate::parse("r-%h-%r-%p%%.json").unwrap();
        assert_eq!(
            template.expand(&process()),
            PathBuf::from("r-node_1-3-12%.json")
        );
        assert_eq!(PathTemplate::parse("a%d"), Err("%d".to_owned()));
        assert_eq!(PathTemplate::parse("a%"), Err("%".to_owned()));
    }

    #[test]
    fn a_relative_path_in_a_file_is_relative_to_it() {
        let template = PathTemplate::parse("%p.json").unwrap();
        let below = template.below(Path::new("/a%b"));
        assert_eq!(below.expand(&process()), PathBuf::from("/a%b/12.json"));
        let stdout = PathTemplate::parse("-").unwrap();
        assert!(stdout.below(Path::new("/a")).is_stdout());
        let fixed = PathTemplate::parse("/x").unwrap();
        assert_eq!(fixed.below(Path::new("/a")), fixed);
    }
}
