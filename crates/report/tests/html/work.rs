//! What a person does with the page, in a real browser.

use serde_json::{Value, json};
use streamcheck_report::json::Report;

use super::browser::Browser;
use super::sample::{self, HOSTILE, SOURCE};
use super::{page, source};

/// Runs a test in a browser, where there is one, on the page of a report. Nothing may go
/// wrong on the page meanwhile, and nothing may go out from it.
fn on(report: impl Fn(&std::path::Path) -> Report, test: impl FnOnce(&mut Browser)) {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let (_folder, file) = source(SOURCE);
    browser.open(&page(&report(&file)));
    test(&mut browser);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// The numbers of the findings that are shown.
fn shown(browser: &mut Browser) -> String {
    browser.text(
        "Array.from(document.querySelectorAll('article')).filter((own) => own.checkVisibility())
            .map((own) => own.id).join(' ')",
    )
}

fn select(browser: &mut Browser, id: &str, value: &str) {
    browser.value(&format!(
        "(() => {{ const own = document.getElementById({id:?}); own.value = {value:?};
           own.dispatchEvent(new Event('input', {{bubbles: true}}));
           own.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"
    ));
}

/// The id of what has the focus; of its article, if it has none.
fn focused(browser: &mut Browser) -> String {
    browser.text(
        "document.activeElement.id || document.activeElement.closest('article')?.id
            || document.activeElement.className",
    )
}

/// The operations before which an edge is shown as missing.
fn missing(browser: &mut Browser) -> String {
    browser.text(
        "Array.from(document.querySelectorAll('g.missing'))
            .filter((own) => getComputedStyle(own).display !== 'none')
            .map((own) => own.dataset.to).join(' ')",
    )
}

/// Whether a person sees an element: its middle is in view and nothing lies over it.
fn is_seen(browser: &mut Browser, id: &str) -> bool {
    browser.holds(&format!(
        "(() => {{ const own = document.getElementById({id:?});
           const box = (own.querySelector('.bar') ?? own).getBoundingClientRect();
           const there = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
           return own.contains(there); }})()"
    ))
}

#[test]
fn search_and_filters_choose_among_the_findings() {
    on(sample::sample, |browser| {
        assert_eq!(
            shown(browser),
            "f1 f2",
            "excused ones are not shown at first"
        );
        assert_eq!(
            browser.text("document.getElementById('shown').value"),
            "2 of 4 shown"
        );
        browser.click("#excused");
        assert_eq!(shown(browser), "f1 f2 f3 f4");
        assert_eq!(missing(browser), "1213 1215");
        browser.click("#excused");
        assert_eq!(shown(browser), "f1 f2");
        assert_eq!(missing(browser), "1213", "of shown findings only");
        browser.click("#excused");

        browser.press("/");
        assert_eq!(focused(browser), "search");
        browser.enter("HAPPENED saxpy");
        assert_eq!(shown(browser), "f2");
        browser.press("Enter");
        assert_eq!(focused(browser), "f2");
        browser.press("/");
        browser.press("Escape");
        assert_eq!(shown(browser), "f1 f2 f3 f4");

        for (field, value, wanted) in [
            ("level", "error", "f1 f3"),
            ("level", "", "f1 f2 f3 f4"),
            ("rule", "SC112", "f4"),
            ("rule", "", "f1 f2 f3 f4"),
            ("rank", "0", "f1 f2"),
            ("rank", "1", "f1 f3 f4"),
        ] {
            select(browser, field, value);
            assert_eq!(shown(browser), wanted, "{field} {value}");
        }
        select(browser, "rule", "SC203");
        assert_eq!(shown(browser), "");
        assert!(is_seen(browser, "reset"));
        browser.click("#reset");
        assert_eq!(shown(browser), "f1 f2 f3 f4");
    });
}

#[test]
fn a_finding_leads_to_its_bars_and_a_bar_to_its_finding() {
    on(sample::sample, |browser| {
        browser.click("#f1 a.focus");
        assert_eq!(focused(browser), "p0o1213");
        assert!(is_seen(browser, "p0o1213"));
        assert_eq!(browser.text("location.hash"), "#p0o1213");
        // Another process's timeline takes the place of the first's.
        browser.click("#excused");
        browser.click("#f4 a.bar-link");
        assert_eq!(focused(browser), "p1o17");
        assert!(is_seen(browser, "p1o17"));
        assert!(browser.holds("document.getElementById('timeline-0').hidden"));
        select(browser, "process", "0");
        assert!(browser.holds("document.getElementById('timeline-1').hidden"));

        // A click on a bar opens its finding, filtered out or not.
        browser.click("#collapse");
        select(browser, "rule", "SC203");
        assert_eq!(shown(browser), "f2");
        browser.click("#p0o1213 .bar");
        assert_eq!(focused(browser), "f1");
        assert!(browser.holds("document.querySelector('#f1 > details').open"));
        assert!(browser.holds("document.querySelector('#f1').getBoundingClientRect().top >= 0"));
        assert!(is_seen(browser, "p0o1213"), "the timeline stays in view");
    });
}

#[test]
fn a_chosen_finding_dims_the_rest() {
    on(sample::large, |browser| {
        let dim = "document.querySelectorAll('.op.dim').length";
        let ops = browser.number("document.querySelectorAll('.op').length");
        browser.click("#f1 a.focus");
        let left = ops - browser.number(dim);
        assert!((2..=9).contains(&left), "{left} of {ops}");
        assert!(browser.holds("!document.getElementById('p0o1213').matches('.dim')"));
        assert!(browser.holds("document.getElementById('p0o11213').matches('.dim')"));
        browser.press("Escape");
        assert_eq!(browser.number(dim), 0);
        browser.click("#f1 a.focus");
        browser.click("#unfocus");
        assert_eq!(browser.number(dim), 0);
    });
}

#[test]
fn the_timeline_is_walked_with_the_keyboard() {
    on(sample::single, |browser| {
        browser.press("Tab");
        assert_eq!(focused(browser), "skip");
        // The tab key reaches one bar of the timeline, and leaves it again.
        let mut reached = Vec::new();
        for _ in 0..40 {
            browser.press("Tab");
            reached.push(focused(browser));
        }
        let bars = reached.iter().filter(|id| id.starts_with("p0o")).count();
        assert!((1..=2).contains(&bars), "{reached:?}");
        browser.value("document.getElementById('p0o1212').focus()");
        for (key, wanted) in [
            ("ArrowRight", "p0o1213"),
            ("ArrowRight", "p0o1214"),
            ("ArrowLeft", "p0o1213"),
            ("ArrowUp", "p0o1212"),
            ("ArrowUp", "p0o1214"),
            ("ArrowUp", "p0o1214"),
            ("Home", "p0o3"),
            ("ArrowLeft", "p0o3"),
            ("ArrowDown", "p0o6"),
            ("End", "p0o1215"),
        ] {
            browser.press(key);
            assert_eq!(focused(browser), wanted, "{key}");
            assert!(is_seen(browser, wanted), "{wanted} is scrolled into view");
        }
        let told = "document.querySelector('.about').textContent";
        let about = browser.text(told);
        assert!(
            about.contains("after 1214 (submission after what the host knows complete)"),
            "{about}"
        );
        browser.value("document.getElementById('p0o1213').focus()");
        let about = browser.text(told);
        assert!(about.contains("not ordered with 1212"), "{about}");
        browser.press("Enter");
        assert_eq!(focused(browser), "f1");
        for (key, wanted) in [("ArrowDown", "f2"), ("ArrowDown", "f2"), ("ArrowUp", "f1")] {
            browser.press(key);
            assert_eq!(focused(browser), wanted, "{key}");
        }
        browser.press("Enter");
        assert!(browser.holds("!document.querySelector('#f1 > details').open"));
    });
}

/// What is to be seen of every finding, timeline and table on paper.
const UNSEEN: &str = "Array.from(document.querySelectorAll(
        'article .body, article h3, .stack li, .source pre, figure.timeline svg, #words td, .processes td'))
    .filter((own) => !own.checkVisibility({contentVisibilityAuto: true, visibilityProperty: true})
        || own.getBoundingClientRect().height === 0)
    .map((own) => own.outerHTML.slice(0, 80)).join(' | ')";

#[test]
fn on_paper_everything_is_expanded() {
    on(sample::sample, |browser| {
        browser.click("#excused");
        browser.click("#collapse");
        assert_ne!(browser.text(UNSEEN), "", "on the screen they are closed");
        browser.call(
            "Emulation.setEmulatedMedia",
            json!({"media": "print",
            "features": [{"name": "prefers-color-scheme", "value": "dark"}]}),
        );
        assert_eq!(browser.text(UNSEEN), "");
        for control in ["#tools", ".tools", "a.focus", ".skip"] {
            let seen = format!("document.querySelector({control:?}).checkVisibility()");
            assert!(!browser.holds(&seen), "{control}");
        }
        let background = "getComputedStyle(document.body).backgroundColor";
        assert_eq!(
            browser.text(background),
            "rgb(255, 255, 255)",
            "light, on any screen"
        );
        // Nothing sticks out at the side of a page of A4.
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            json!({
            "width": 718, "height": 1000, "deviceScaleFactor": 1, "mobile": false}),
        );
        let root = "document.documentElement";
        assert!(browser.holds(&format!("{root}.scrollWidth <= {root}.clientWidth")));
        browser.call("Emulation.clearDeviceMetricsOverride", json!({}));
        browser.call("Emulation.setEmulatedMedia", json!({"media": ""}));
        let document = browser.file("Page.printToPDF", json!({}));
        assert!(document.starts_with(b"%PDF"));
        assert!(
            browser.holds("!document.querySelector('#f1 > details').open"),
            "closed again"
        );
    });
}

#[test]
fn without_its_script_the_page_is_a_text() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    browser.call(
        "Emulation.setScriptExecutionDisabled",
        json!({"value": true}),
    );
    let (_folder, file) = source(SOURCE);
    browser.open(&page(&sample::sample(&file)));
    assert!(
        browser.holds("document.querySelector('#tools').hidden"),
        "the script has not run"
    );
    assert_eq!(shown(&mut browser), "f1 f2 f3 f4");
    let unseen = UNSEEN.replace("contentVisibilityAuto: true, ", "");
    assert_eq!(browser.text(&unseen), "");
}

#[test]
fn hostile_texts_do_nothing() {
    let hostile = |_: &std::path::Path| {
        let (folder, file) = source(&format!("\n\n{HOSTILE}\n{HOSTILE}\n{HOSTILE}\n"));
        let report = sample::hostile(&file);
        // Its lines are read when the page is made.
        std::mem::forget(folder);
        report
    };
    on(hostile, |browser| {
        browser.value("for (const own of document.querySelectorAll('*')) { own.focus?.(); }");
        browser.click("#f1 a.focus");
        assert!(browser.holds("window.caught === undefined"));
        assert_eq!(browser.number("document.scripts.length"), 1);
        assert_eq!(browser.number("document.images.length"), 0);
        assert_eq!(
            browser.text("document.title"),
            "1 error, 1 warning · streamcheck"
        );
    });
    on(sample::absurd, |browser| {
        browser.click("#expand");
        browser.value("document.querySelector('.op').focus()");
        for key in ["End", "ArrowUp", "ArrowDown", "Home"] {
            browser.press(key);
        }
    });
}

#[test]
fn runs_without_findings_are_pages_too() {
    on(
        |_| sample::clean(),
        |browser| {
            browser.press("/");
            browser.press("Escape");
            assert_eq!(
                browser.text("document.querySelector('h1').innerText"),
                "✔ No findings"
            );
        },
    );
    on(
        |_| sample::nothing(),
        |browser| {
            assert_eq!(
                browser.text("document.querySelector('h1').innerText"),
                "? No CUDA call was seen"
            );
        },
    );
}

#[test]
fn a_thousand_findings_are_searched_and_reached() {
    on(sample::large, |browser| {
        let open = "document.querySelectorAll('.finding > details[open]').length";
        assert_eq!(browser.number(open), 1, "the others are folded");
        browser.press("/");
        browser.enter("number 777 ");
        assert_eq!(shown(browser), "f778");
        browser.press("Escape");
        browser.value("location.hash = '#f900'; new Promise((done) => setTimeout(done, 50))");
        assert_eq!(focused(browser), "f900");
        assert!(browser.holds(
            "(() => { const box = document.getElementById('f900').getBoundingClientRect();
               return box.top >= 0 && box.top < innerHeight / 2; })()"
        ));
    });
}

/// The least contrast between a text and what is behind it, and where it is.
const CONTRAST: &str = "(() => {
    const parse = (color) => color.match(/[\\d.]+/g).map(Number);
    const light = (color) => {
        const [r, g, b] = parse(color).map((part) => {
            const own = part / 255;
            return own <= 0.03928 ? own / 12.92 : ((own + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (own) => {
        for (let at = own; at; at = at.parentElement) {
            if (at.matches('.op') && own.matches('.text')) return getComputedStyle(at.querySelector('.bar')).fill;
            if (at.matches('.gap')) return getComputedStyle(at.querySelector('rect')).fill;
            const color = getComputedStyle(at).backgroundColor;
            if (parse(color)[3] !== 0) return color;
        }
        return 'rgb(255, 255, 255)';
    };
    let least = [99, ''];
    for (const own of document.querySelectorAll('body *')) {
        const text = Array.from(own.childNodes).some((node) => node.nodeType === 3 && node.data.trim());
        if (!text || !own.checkVisibility() || own.closest('title, script, style')) continue;
        const style = getComputedStyle(own);
        const pair = [own instanceof SVGElement ? style.fill : style.color, behind(own)];
        const [a, b] = pair.map(light);
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < least[0]) least = [contrast, `${own.tagName} ${own.getAttribute('class')} ${pair}`];
    }
    return least;
})()";

#[test]
fn texts_stand_out_in_both_schemes() {
    on(sample::sample, |browser| {
        browser.click("#excused");
        let mut pages = Vec::new();
        for scheme in ["light", "dark"] {
            let feature = json!([{"name": "prefers-color-scheme", "value": scheme}]);
            browser.call("Emulation.setEmulatedMedia", json!({"features": feature}));
            let least = browser.value(CONTRAST);
            assert!(least[0].as_f64().unwrap() >= 4.5, "{scheme}: {least}");
            pages.push(browser.text("getComputedStyle(document.body).backgroundColor"));
        }
        assert_ne!(pages[0], pages[1]);
    });
}

#[test]
fn every_control_and_bar_has_a_name_and_a_role() {
    on(sample::sample, |browser| {
        let tree = browser.call("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().unwrap();
        let role = |node: &Value| {
            node["role"]["value"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let name = |node: &Value| {
            node["name"]["value"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let seen: Vec<(String, String)> = nodes
            .iter()
            .filter(|node| node["ignored"] == false)
            .map(|node| (role(node), name(node)))
            .collect();
        for (role, name) in &seen {
            let control = [
                "button",
                "link",
                "searchbox",
                "combobox",
                "checkbox",
                "image",
                "img",
            ];
            assert!(
                !control.contains(&&**role) || !name.is_empty(),
                "a {role} without a name"
            );
        }
        let has = |wanted: &str, part: &str| {
            seen.iter()
                .any(|(role, name)| role == wanted && name.contains(part))
        };
        assert!(has("searchbox", "Search"), "{seen:?}");
        assert!(
            has(
                "link",
                "operation 1,213: cudaLaunchKernel, kernel saxpy(int"
            ),
            "{seen:?}"
        );
        assert!(has("link", "use of finding 1 (SC101)"), "{seen:?}");
        assert!(
            has("image", "operation 3: cudaMallocAsync") || has("img", "operation 3: "),
            "{seen:?}"
        );
        assert!(has("group", "9 operations on 3 lanes"), "{seen:?}");
        assert!(has("heading", "kernel saxpy on stream 2"), "{seen:?}");
    });
}
