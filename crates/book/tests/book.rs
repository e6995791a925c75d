//! The book builds, its links lead somewhere, its generated pages are current, and its
//! commands work.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use book::reader::{Reader, transcripts};
use book::{build, commands, generated, links, pages};
use fixtures::repository;

#[test]
fn it_builds_without_a_warning() {
    let to = tempfile::tempdir().unwrap();
    let warnings = build(&repository().join("docs"), to.path()).unwrap();
    assert_eq!(warnings, [] as [String; 0]);
    let page = fs::read_to_string(to.path().join("rules/SC101.html")).unwrap();
    assert!(page.contains("use-before-alloc"));
}

#[test]
fn every_page_is_in_the_summary() {
    let root = repository();
    let summary = pages::read(&root, Path::new("docs/SUMMARY.md")).unwrap();
    let listed: HashSet<PathBuf> = links::targets(&summary)
        .iter()
        .map(|target| Path::new("docs").join(target))
        .collect();
    for page in pages::all(&root).unwrap() {
        if page.starts_with("docs") && !page.ends_with("SUMMARY.md") {
            assert!(listed.contains(&page), "{} is not listed", page.display());
        }
    }
}

#[test]
fn every_link_leads_somewhere() {
    let root = repository();
    let wrong: Vec<String> = pages::all(&root)
        .unwrap()
        .iter()
        .flat_map(|page| links::broken(&root, page).unwrap())
        .collect();
    assert_eq!(wrong, [] as [String; 0]);
}

#[test]
fn generated_pages_are_current() {
    let root = repository();
    for page in generated::pages() {
        let there = fs::read_to_string(root.join(page.path)).unwrap_or_default();
        assert!(
            there == page.text,
            "{} is out of date: run `cargo run -p book`",
            page.path
        );
    }
}

#[test]
fn what_pages_show_is_what_is_printed() {
    let root = repository();
    let reader = Reader::new().unwrap();
    for page in pages::all(&root).unwrap() {
        let text = pages::read(&root, &page).unwrap();
        assert_eq!(
            text,
            transcripts::renew(&reader, &text).unwrap(),
            "{} is out of date: run `cargo run -p book`",
            page.display()
        );
    }
}

#[test]
fn every_command_works() {
    let root = repository();
    let mut ran = 0;
    for page in pages::all(&root).unwrap() {
        // The recipes have a test of their own.
        if page.starts_with("docs/ci") {
            continue;
        }
        let blocks = commands::of_page(&root, &page).unwrap();
        if blocks.is_empty() {
            continue;
        }
        let reader = Reader::new().unwrap();
        for block in blocks {
            let output = reader.types(&block.commands).unwrap();
            assert_eq!(
                output.status.code(),
                Some(block.exit),
                "{}: {}\n{}{}",
                page.display(),
                block.commands,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            ran += 1;
        }
    }
    assert!(ran > 3, "{ran} blocks were run");
}
