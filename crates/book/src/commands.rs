//! The commands that pages tell a reader to type.
//!
//! A block marked `sh` is run by a test and must succeed; one marked `sh,exit=66` must end
//! with that code.

use std::path::{Path, PathBuf};

use anyhow::Result;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

use crate::pages;

/// A block of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The page that it stands on.
    pub page: PathBuf,
    /// The exit code that it must end with.
    pub exit: i32,
    /// The commands, without those that build or need a GPU.
    pub commands: String,
}

/// What a reader types once, to build; tests stand in for it by what they have built.
const BUILDING: [&str; 4] = ["cargo ", ".ci/run", "git clone ", "cd "];

/// What needs a GPU.
const ON_A_GPU: [&str; 1] = ["scripts/gpu-check "];

/// The blocks of a page, in order.
///
/// # Errors
/// If the page cannot be read.
pub fn of_page(root: &Path, page: &Path) -> Result<Vec<Block>> {
    Ok(of_text(page, &pages::read(root, page)?))
}

fn of_text(page: &Path, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut inside: Option<(i32, String)> = None;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                let (language, rest) = info.split_once(',').unwrap_or((&info, ""));
                if language == "sh" {
                    let exit = rest
                        .strip_prefix("exit=")
                        .and_then(|code| code.parse().ok());
                    inside = Some((exit.unwrap_or(0), String::new()));
                }
            }
            Event::Text(text) => {
                if let Some((_, commands)) = &mut inside {
                    commands.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                if let Some((exit, commands)) = inside.take() {
                    let commands: String = commands
                        .lines()
                        .filter(|line| {
                            !BUILDING
                                .iter()
                                .chain(&ON_A_GPU)
                                .any(|start| line.starts_with(start))
                        })
                        .map(|line| format!("{line}\n"))
                        .collect();
                    blocks.push(Block {
                        page: page.to_path_buf(),
                        exit,
                        commands,
                    });
                }
            }
            _ => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_say_what_they_end_with() {
        let text = "```sh\ncargo build\na | b\n```\n\n```sh,exit=66\nc\n```\n\n```toml\nd\n```\n";
        let block = |exit, commands: &str| Block {
            page: PathBuf::from("p.md"),
            exit,
            commands: commands.to_owned(),
        };
        assert_eq!(
            of_text(Path::new("p.md"), text),
            [block(0, "a | b\n"), block(66, "c\n")]
        );
    }
}
