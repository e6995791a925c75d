//! What holds of every page, read by an HTML parser that tells each error.

use std::collections::HashSet;

use data_encoding::BASE64;
use scraper::{ElementRef, Html, Selector};
use sha2::{Digest, Sha256};

use super::sample::{self, HOSTILE, SOURCE};
use super::{page, source};

fn all<'a>(document: &'a Html, selector: &'a str) -> Vec<ElementRef<'a>> {
    document
        .select(&Selector::parse(selector).unwrap())
        .collect()
}

fn text(document: &Html, selector: &str) -> String {
    let found = all(document, selector);
    let texts: Vec<String> = found.iter().map(|own| own.text().collect()).collect();
    texts.join("\n")
}

fn hash(text: &str) -> String {
    format!("'sha256-{}'", BASE64.encode(&Sha256::digest(text)))
}

/// Every kind of report, by name.
fn pages() -> Vec<(&'static str, String)> {
    let (_folder, file) = source(SOURCE);
    let (_bad, hostile) = source(&format!("\n\n{HOSTILE}\n{HOSTILE}\n{HOSTILE}\n"));
    vec![
        ("sample", page(&sample::sample(&file))),
        ("single", page(&sample::single(&file))),
        ("clean", page(&sample::clean())),
        ("nothing", page(&sample::nothing())),
        ("hostile", page(&sample::hostile(&hostile))),
        ("absurd", page(&sample::absurd(&file))),
        ("large", page(&sample::large(&file))),
    ]
}

#[test]
fn every_page_is_sound() {
    for (name, page) in pages() {
        let document = Html::parse_document(&page);
        assert!(document.errors.is_empty(), "{name}: {:?}", document.errors);
        let mut ids = HashSet::new();
        for element in all(&document, "*") {
            if let Some(id) = element.attr("id") {
                assert!(ids.insert(id.to_owned()), "{name}: two elements are {id}");
            }
            for (attribute, value) in element.value().attrs() {
                assert!(
                    !attribute.starts_with("on")
                        && !["style", "src", "srcdoc"].contains(&attribute),
                    "{name}: {attribute}={value}"
                );
            }
        }
        for element in all(&document, "[href]") {
            let href = element.attr("href").unwrap();
            let sound = match href.strip_prefix('#') {
                Some(id) => ids.contains(id),
                None => href == "data:," || href.starts_with(streamcheck_report::RULES_URL),
            };
            assert!(sound, "{name}: a link leads to {href}");
        }
        for element in all(&document, "label") {
            let control = "input, select";
            let selector = Selector::parse(control).unwrap();
            assert_eq!(element.select(&selector).count(), 1, "{name}");
        }
        let odd = |c: char| {
            (c.is_control() && !matches!(c, '\n' | '\t'))
                || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert!(!page.contains(odd), "{name}: {:?}", page.find(odd));
    }
}

#[test]
fn only_the_pages_own_style_and_script_may_run() {
    for (name, page) in pages() {
        let document = Html::parse_document(&page);
        let policy = "meta[http-equiv='Content-Security-Policy']";
        let policy = all(&document, policy)[0].attr("content").unwrap();
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        for (element, directive) in [("style", "style-src"), ("script", "script-src")] {
            let own = text(&document, element);
            assert_eq!(all(&document, element).len(), 1, "{name}: {element}");
            let wanted = format!("{directive} {}", hash(&own));
            assert!(policy.contains(&wanted), "POLICY has to say {wanted}");
        }
        for element in ["img", "iframe", "object", "embed", "base", "image", "use"] {
            assert!(all(&document, element).is_empty(), "{name}: {element}");
        }
    }
}

#[test]
fn hostile_texts_are_seen_as_they_are() {
    let (_folder, file) = source(&format!("\n\n{HOSTILE}\n"));
    let page = page(&sample::hostile(&file));
    let document = Html::parse_document(&page);
    let script = "</script><script>window.caught=1</script></style><!--     <img src=x onerror=";
    for place in [
        "h3",
        ".command",
        ".help",
        ".ordering",
        ".calls",
        ".source pre",
        ".stack",
        "#words",
        ".lanes",
        ".blind",
    ] {
        let shown = text(&document, place);
        assert!(
            shown.contains(&script[..script.len() - 30]),
            "{place}: {shown}"
        );
    }
}

#[test]
fn a_finding_tells_its_story() {
    let (_folder, file) = source(SOURCE);
    let document = Html::parse_document(&page(&sample::sample(&file)));
    assert_eq!(text(&document, "h1"), "✖ 1 error, 1 warning");
    assert_eq!(all(&document, "article").len(), 4);
    let of = |what: &str| text(&document, &format!("#f1 {what}"));
    assert!(of("h3").starts_with("kernel saxpy on stream 2 uses"));
    let meta = of(".meta");
    for part in [
        "step.cu:4",
        "1,500 times",
        "ranks 0, 1",
        "4,096 bytes of stream-ordered memory",
    ] {
        assert!(meta.contains(part), "{part} in {meta}");
    }
    assert!(of(".help code").contains("cudaStreamWaitEvent(stream2, e)"));
    assert_eq!(of(".help br").len(), 0);
    let here = of(".source .here");
    assert!(
        here.contains("saxpy<<<1, 256, 0, model.compute>>>(1024, a < b && c > d, x, x);"),
        "{here}"
    );
    assert_eq!(of(".stack summary"), "Stack of 2 frames\nStack of 2 frames");
    assert!(text(&document, "#f3 .body").contains("NCCL orders this through its own proxy thread"));
    assert_eq!(text(&document, "#f3 .state"), "suppressed");
    assert_eq!(text(&document, "#f4 .state"), "known");
    assert!(text(&document, ".excused").contains("1 suppressed, 1 known from the baseline"));
    assert!(text(&document, ".blind li").contains("2 × unknown kernel parameters, such as gemm"));
    assert_eq!(all(&document, ".processes tbody tr").len(), 2);
}

#[test]
fn a_timeline_shows_lanes_bars_gaps_and_arrows() {
    let (_folder, file) = source(SOURCE);
    let document = Html::parse_document(&page(&sample::single(&file)));
    assert_eq!(
        text(&document, ".lane-title b"),
        "host\nstream 1\nstream 2 \"compute\""
    );
    let bars: Vec<_> = all(&document, ".op")
        .iter()
        .map(|bar| bar.attr("data-sequence").unwrap().to_owned())
        .collect();
    assert_eq!(
        bars,
        ["3", "4", "5", "6", "7", "1212", "1213", "1214", "1215"]
    );
    assert_eq!(
        text(&document, ".gap text"),
        "⋯ 2 operations\n⋯ 1,204 operations\n⋯ 85 operations"
    );
    // Marked by rule and part, and linked with the finding.
    assert_eq!(text(&document, "#p0o1213 .mark"), "SC101 use +1");
    assert_eq!(all(&document, "#p0o1213")[0].attr("href"), Some("#f1"));
    assert_eq!(
        all(&document, "#f1 .calls a")[1].attr("href"),
        Some("#p0o1213")
    );
    // Edges have their reasons in full, and a missing one is told apart.
    assert_eq!(
        text(&document, "g.edge title"),
        "5 to 6: event wait\n1213 to 1214: host synchronize\n1214 to 1215: submission after what \
         the host knows complete"
    );
    assert_eq!(
        text(&document, "g.missing title"),
        "1212 to 1213: not ordered"
    );
    // What is ordered is drawn from left to right, one after the other.
    let x = |id: &str, attribute: &str| -> i32 {
        all(&document, &format!("{id} rect"))[0]
            .attr(attribute)
            .unwrap()
            .parse()
            .unwrap()
    };
    assert!(x("#p0o6", "x") > x("#p0o5", "x") + x("#p0o5", "width"));
    let places: Vec<i32> = bars
        .iter()
        .map(|bar| x(&format!("#p0o{bar}"), "x"))
        .collect();
    assert!(places.is_sorted(), "{places:?}");
    // The same in words.
    let row = text(&document, "#words tr:nth-child(9) td");
    assert!(
        row.contains("submission after what the host knows complete"),
        "{row}"
    );
}

#[test]
fn a_finding_without_a_timeline_has_its_calls_drawn() {
    let (_folder, file) = source(SOURCE);
    let document = Html::parse_document(&page(&sample::sample(&file)));
    let drawn = all(&document, "#timeline-1 .op");
    assert_eq!(drawn.len(), 1);
    assert_eq!(drawn[0].attr("href"), Some("#f4"));
}

#[test]
fn clean_and_empty_runs_say_so() {
    let document = Html::parse_document(&page(&sample::clean()));
    assert_eq!(text(&document, "h1"), "✔ No findings");
    assert!(text(&document, ".seen").contains("1,204 operations: 4 launches"));
    assert!(all(&document, "form, svg, .blind").is_empty());
    let document = Html::parse_document(&page(&sample::nothing()));
    assert_eq!(text(&document, "h1"), "? No CUDA call was seen");
    assert!(text(&document, ".seen").starts_with("Nothing was checked."));
}

#[test]
fn a_thousand_findings_make_a_page_of_a_few_megabytes() {
    let (_folder, file) = source(SOURCE);
    let page = page(&sample::large(&file));
    let document = Html::parse_document(&page);
    assert_eq!(all(&document, "article").len(), 1000);
    assert!(page.len() < 10_000_000, "{} bytes", page.len());
    // Of the operations, the findings' own are there, and what is left out is told.
    let marked = all(&document, "a.op").len();
    assert!(
        all(&document, ".op").len() <= 1500 && marked >= 1000,
        "{marked}"
    );
    assert!(text(&document, ".timeline figcaption").contains("too many to draw"));
}
