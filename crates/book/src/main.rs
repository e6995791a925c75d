//! `cargo run -p book`: brings the generated pages up to date and builds the book into
//! `target/book`.

use std::fs;
use std::io::Write as _;

use anyhow::Result;
use book::reader::{Reader, transcripts};
use book::{build, generated, pages};
use fixtures::repository;

fn main() -> Result<()> {
    let root = repository();
    let mut err = std::io::stderr();
    for page in generated::pages() {
        if page.write(&root)? {
            writeln!(err, "wrote {}", page.path)?;
        }
    }
    let reader = Reader::new()?;
    for page in pages::all(&root)? {
        let old = pages::read(&root, &page)?;
        let new = transcripts::renew(&reader, &old)?;
        if new != old {
            fs::write(root.join(&page), new)?;
            writeln!(err, "wrote {}", page.display())?;
        }
    }
    let to = root.join("target/book");
    for warning in build(&root.join("docs"), &to)? {
        writeln!(err, "{warning}")?;
    }
    writeln!(std::io::stdout(), "{}", to.join("index.html").display())?;
    Ok(())
}
