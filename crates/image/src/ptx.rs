//! PTX text: `.entry` parameters, and `.global`/`.const` variables, of the module's outer scope.

use std::collections::BTreeMap;

use crate::{Global, Globals, Kernels, Param, checked};

/// What `text` declares.
pub(crate) fn kernels(text: &str) -> Kernels {
    let mut kernels = BTreeMap::new();
    // A mere declaration, which ends with a semicolon, may leave the parameters out.
    statements(text, |statement, opens| {
        if opens {
            read_entry(statement, &mut kernels);
        }
    });
    kernels
}

/// The variables that `text` declares, without their initial values.
pub(crate) fn globals(text: &str) -> Globals {
    let mut globals = BTreeMap::new();
    statements(text, |statement, opens| {
        // An initialiser's braces count as well: they too end before the next statement.
        if !opens || statement.contains('=') {
            read_global(statement, &mut globals);
        }
    });
    globals
}

/// Calls `each` with what stands in the outer scope before a semicolon or an opening brace, and
/// whether it was a brace.
fn statements(text: &str, mut each: impl FnMut(&str, bool)) {
    let text = without_comments(text);
    let mut depth = 0usize;
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['{', '}', ';']) {
        let statement = &rest[..at];
        match &rest[at..=at] {
            "{" => {
                if depth == 0 {
                    each(statement, true);
                }
                depth += 1;
            }
            "}" => depth = depth.saturating_sub(1),
            _ if depth == 0 => each(statement, false),
            _ => {}
        }
        rest = &rest[at + 1..];
    }
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        out.push_str(&rest[..at]);
        rest = rest[at..]
            .find("*/")
            .map_or("", |end| &rest[at + end + 2..]);
    }
    out.push_str(rest);
    out.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

fn read_entry(statement: &str, kernels: &mut Kernels) {
    let Some(at) = statement.find(".entry") else {
        return;
    };
    let signature = &statement[at + ".entry".len()..];
    let name = name(signature);
    let params = params(signature).map(|params| params.into_iter().map(|(_, param)| param));
    if !name.is_empty() {
        kernels.insert(
            name.to_owned(),
            params.and_then(|params| checked(params.collect())),
        );
    }
}

/// The name that stands after `.entry`.
fn name(signature: &str) -> &str {
    let ends = |letter: char| letter == '(' || letter.is_whitespace();
    let name = signature.trim_start().split(ends).next();
    name.unwrap_or_default()
}

/// The names and places of the parameters in a signature.
fn params(signature: &str) -> Option<Vec<(&str, Param)>> {
    let list = signature
        .find('(')
        .and_then(|open| Some(&signature[open + 1..open + signature[open..].find(')')?]));
    let mut end = 0;
    list.unwrap_or_default()
        .split(',')
        .filter(|param| param.contains(".param"))
        .map(|param| {
            let (name, size, align) = declaration(param)?;
            Some((name, place(&mut end, size, align)?))
        })
        .collect()
}

/// The definition of a kernel, from the word after `.entry` to its closing brace, without
/// comments.
pub(crate) fn entry(text: &str, wanted: &str) -> Option<String> {
    let definition = |(at, entry): (usize, &str)| {
        let rest = &text[at + entry.len()..];
        (name(rest) == wanted).then(|| until_closed(rest)).flatten()
    };
    text.match_indices(".entry").find_map(definition)
}

/// `text` up to the brace that closes its first one; `None` where a semicolon comes first.
fn until_closed(text: &str) -> Option<String> {
    let mut out = String::new();
    let (mut rest, mut depth) = (text, 0usize);
    while let Some(at) = rest.find(['{', '}', ';', '/']) {
        out.push_str(&rest[..at]);
        let here = &rest[at..];
        let length = match here.as_bytes() {
            [b'/', b'/', ..] => here.find('\n')?,
            [b'/', b'*', ..] => here.find("*/")? + 2,
            [letter, ..] => {
                out.push(char::from(*letter));
                match letter {
                    b'{' => depth += 1,
                    b'}' if depth <= 1 => return Some(out),
                    b'}' => depth -= 1,
                    b';' if depth == 0 => return None,
                    _ => {}
                }
                1
            }
            [] => return None,
        };
        rest = &here[length..];
    }
    None
}

/// A kernel's definition.
pub(crate) struct Entry<'a> {
    /// The names and places of its parameters, where they are understood.
    pub(crate) params: Option<Vec<(&'a str, Param)>>,
    /// What stands in its braces.
    pub(crate) body: &'a str,
}

impl<'a> Entry<'a> {
    /// Takes apart what [`entry`] found.
    pub(crate) fn parse(definition: &'a str) -> Option<Self> {
        let (signature, body) = definition.split_once('{')?;
        let params = params(signature).filter(|params| {
            let places = params.iter().map(|(_, param)| *param).collect();
            checked(places).is_some()
        });
        Some(Self {
            params,
            body: body.strip_suffix('}')?,
        })
    }
}

/// Places a parameter after `end`, as C's layout rules do.
fn place(end: &mut usize, size: usize, align: usize) -> Option<Param> {
    let offset = end.checked_next_multiple_of(align.max(1))?;
    *end = offset.checked_add(size)?;
    Some(Param { offset, size })
}

fn read_global(statement: &str, globals: &mut Globals) {
    let declared = statement.split('=').next().unwrap_or_default();
    // Directives such as `.version` have no semicolon and come before the first declaration.
    let Some(at) = [".global", ".const"]
        .iter()
        .find_map(|space| declared.rfind(space))
    else {
        return;
    };
    if declared[..at].contains(".extern")
        || declared.contains(".func")
        || declared.contains(".entry")
    {
        return;
    }
    if let Some((name, size, _)) = declaration(&declared[at..]) {
        globals.entry(name.to_owned()).or_insert(Global {
            size,
            init: Vec::new(),
        });
    }
}

/// Name, size and alignment of `.space .align 8 .b8 name[16]`.
fn declaration(text: &str) -> Option<(&str, usize, usize)> {
    let mut align = 0;
    let mut element = None;
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        if word == ".align" {
            // A pointer parameter states the alignment of what it points to after its type.
            let value = words.next()?.parse().ok()?;
            if element.is_none() {
                align = value;
            }
        } else if let Some(size) = element_size(word) {
            element = Some(size);
        } else if !word.starts_with('.') {
            let (name, extent) = word.split_once('[').unwrap_or((word, ""));
            let element = element?;
            let count = if extent.is_empty() {
                1
            } else {
                extent.trim_end_matches([']', '}']).parse().ok()?
            };
            return Some((name, element.checked_mul(count)?, align.max(element)));
        }
    }
    None
}

fn element_size(word: &str) -> Option<usize> {
    let bits = word
        .strip_prefix(['.'])
        .and_then(|word| word.strip_prefix(['u', 's', 'b', 'f']))?;
    match bits.parse::<usize>() {
        Ok(bits @ (8 | 16 | 32 | 64 | 128)) => Some(bits / 8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
.version 8.0
.target sm_75
.address_size 64
.const .align 4 .u32 c;
.global .align 4 .b8 g[64];
.global .attribute(.managed) .align 4 .u32 m;
.global .align 4 .b8 table[8] = {1, 0, 0, 0, 2, 0, 0, 0};
.extern .global .align 4 .b8 elsewhere[4];
/* .visible .entry commented(.param .u64 x) { } */
.visible .entry saxpy(
	.param .u64 .ptr .global .align 16 saxpy_param_0,
	.param .f32 saxpy_param_1, // a, by value
	.param .align 8 .b8 saxpy_param_2[16]
)
.maxntid 128, 1, 1
{
	.reg .f32 %f<4>;
	ld.param.u64 %rd1, [saxpy_param_0];
	{ mov.u32 %r1, 1; }
	ret;
}
.visible .entry none()
{ ret; }
.weak .entry _Z1kPi(.param .u64 p){ ret; }
";

    #[test]
    fn entries_and_their_layouts() {
        let kernels = kernels(TEXT);
        let names: Vec<&String> = kernels.keys().collect();
        assert_eq!(names, ["_Z1kPi", "none", "saxpy"]);
        let layout = [(0, 8), (8, 4), (16, 16)].map(|(offset, size)| Param { offset, size });
        assert_eq!(kernels["saxpy"].as_deref(), Some(&layout[..]));
        assert_eq!(kernels["none"].as_deref(), Some(&[][..]));
    }

    #[test]
    fn variables_and_their_sizes() {
        let globals = globals(TEXT);
        let sizes: Vec<(&str, usize)> = globals
            .iter()
            .map(|(name, global)| (name.as_str(), global.size))
            .collect();
        assert_eq!(sizes, [("c", 4), ("g", 64), ("m", 4), ("table", 8)]);
    }

    #[test]
    fn a_parameter_that_is_not_understood_leaves_the_layout_unknown() {
        for param in [
            ".param .b8 p[18446744073709551615]",
            ".param .b64 p[2305843009213693952]",
            ".param .b8 p[x]",
            ".param .align 18446744073709551615 .b8 a[2], .param .align 9223372036854775808 .b8 b[2]",
            ".param .texref p",
            ".param .b8 p[40000]",
        ] {
            let text = format!(".version 8.0\n.visible .entry k({param}) {{ ret; }}");
            assert_eq!(kernels(&text)["k"], None, "{param}");
        }
    }

    #[test]
    fn a_declaration_says_nothing() {
        let text = ".version 8.0 .entry k; .visible .entry k(.param .u64 p) { ret; } .entry k;
            .entry l .maxntid 1 { ret; }";
        let kernels = kernels(text);
        let layout = [Param { offset: 0, size: 8 }];
        assert_eq!(kernels["k"].as_deref(), Some(&layout[..]));
        assert_eq!(kernels["l"].as_deref(), Some(&[][..]));
    }
}
