//! What the command prints, word for word. After a wanted change:
//! `TRYCMD=overwrite cargo test -p streamcheck --test commands`, and read the difference.

#[test]
fn commands_print_what_their_pages_show() {
    trycmd::TestCases::new()
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1")
        .env("LC_ALL", "C.UTF-8")
        .case("tests/cmd/*.trycmd");
}
