//! Links from page to page: each leads to a file, and to a heading in it if it names one.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::pages;

/// What is wrong with the links of a page, in lines.
///
/// # Errors
/// If a page cannot be read.
pub fn broken(root: &Path, page: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for link in targets(&pages::read(root, page)?) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
        let target = if file.is_empty() {
            page.to_path_buf()
        } else {
            normal(&page.parent().unwrap_or(Path::new("")).join(file))
        };
        if !root.join(&target).exists() {
            wrong.push(format!("{}: {link} leads nowhere", page.display()));
        } else if !heading.is_empty() && !headings(&pages::read(root, &target)?).contains(heading) {
            wrong.push(format!(
                "{}: {} has no heading #{heading}",
                page.display(),
                target.display()
            ));
        }
    }
    Ok(wrong)
}

/// The targets of a page's links and pictures.
#[must_use]
pub fn targets(text: &str) -> Vec<String> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
        .filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url.into_string())
            }
            _ => None,
        })
        .collect()
}

/// The anchors of a page's headings, as mdBook and GitHub make them.
fn headings(text: &str) -> HashSet<String> {
    let mut anchors = HashSet::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { level, .. }) if level <= HeadingLevel::H6 => {
                heading = Some(String::new());
            }
            Event::End(TagEnd::Heading(_)) => {
                anchors.extend(heading.take().map(|text| anchor(&text)));
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    anchors
}

fn anchor(heading: &str) -> String {
    heading
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_anchors_are_found() {
        let text = "# The `gate`, and more\n[a](b.md#c) ![p](x.png)\n\n```sh\n[no](link)\n```\n";
        assert_eq!(targets(text), ["b.md#c", "x.png"]);
        assert!(headings(text).contains("the-gate-and-more"));
    }

    #[test]
    fn a_wrong_link_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("docs")).unwrap();
        let page = Path::new("docs/a.md");
        let text = "# A\n[x](b.md) [y](#a) [z](#b) [w](../docs/a.md#a) [u](https://example.org/)";
        std::fs::write(folder.path().join(page), text).unwrap();
        assert_eq!(
            broken(folder.path(), page).unwrap(),
            [
                "docs/a.md: b.md leads nowhere",
                "docs/a.md: docs/a.md has no heading #b"
            ]
        );
    }
}
