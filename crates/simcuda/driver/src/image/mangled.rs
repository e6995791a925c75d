//! Parameter layouts from an Itanium-mangled kernel name: all there is where no device code was registered.

use super::Param;
use cpp_demangle::{DemangleOptions, Symbol};

/// The layout, or `None` where a parameter's type is not a builtin, a pointer or a reference.
pub(super) fn layout(name: &str) -> Option<Vec<Param>> {
    let options = DemangleOptions::new().no_return_type();
    let text = Symbol::new(name)
        .ok()?
        .demangle_with_options(&options)
        .ok()?;
    let params = parameter_list(&text)?;
    let mut end = 0;
    params
        .into_iter()
        .filter(|&param| param != "void")
        .map(|param| size_of_type(param).map(|size| place(&mut end, size)))
        .collect()
}

/// Places a parameter of a builtin type after `end`, as C's layout rules do.
fn place(end: &mut usize, size: usize) -> Param {
    let offset = end.next_multiple_of(size);
    *end = offset + size;
    Param { offset, size }
}

/// The top-level parameters of `f<…>(a, b(*)(c, d))`.
fn parameter_list(text: &str) -> Option<Vec<&str>> {
    let end = text.rfind(')')?;
    let mut depth = 0;
    let open = text[..=end].char_indices().rev().find_map(|(at, c)| {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })?;
    let list = &text[open + 1..end];
    if list.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut depth = 0;
    let params = list.split(|c| {
        match c {
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    Some(params.map(str::trim).collect())
}

fn size_of_type(text: &str) -> Option<usize> {
    if text.ends_with(['*', '&']) || text.contains("(*)") || text.ends_with("* const") {
        return Some(8);
    }
    Some(
        match text
            .trim_end_matches(" const")
            .trim_end_matches(" volatile")
        {
            "bool" | "char" | "signed char" | "unsigned char" => 1,
            "short" | "unsigned short" => 2,
            "int" | "unsigned int" | "float" => 4,
            "long" | "unsigned long" | "long long" | "unsigned long long" | "double"
            | "decltype(nullptr)" | "std::nullptr_t" => 8,
            _ => return None,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(name: &str) -> Option<Vec<(usize, usize)>> {
        layout(name).map(|params| {
            params
                .into_iter()
                .map(|param| (param.offset, param.size))
                .collect()
        })
    }

    #[test]
    fn builtin_types_have_a_layout() {
        assert_eq!(sizes("_Z5k_useP"), None, "cut short");
        assert_eq!(sizes("_Z5k_usePf"), Some(vec![(0, 8)]));
        assert_eq!(
            sizes("_Z5saxpyPfPKffi"),
            Some(vec![(0, 8), (8, 8), (16, 4), (20, 4)])
        );
        assert_eq!(sizes("_Z4nonev"), Some(vec![]));
        assert_eq!(
            sizes("_Z3mixcPvdhx"),
            Some(vec![(0, 1), (8, 8), (16, 8), (24, 1), (32, 8)])
        );
    }

    #[test]
    fn substitutions_templates_and_namespaces_are_followed() {
        assert_eq!(sizes("_Z3addPfS_i"), Some(vec![(0, 8), (8, 8), (16, 4)]));
        assert_eq!(
            sizes("_ZN2ns4fillIfEEvPT_S1_i"),
            Some(vec![(0, 8), (8, 4), (12, 4)])
        );
        assert_eq!(
            sizes("_ZN12_GLOBAL__N_14spinEPll"),
            Some(vec![(0, 8), (8, 8)])
        );
        assert_eq!(sizes("_Z4callPFviEi"), Some(vec![(0, 8), (8, 4)]));
    }

    #[test]
    fn a_struct_by_value_is_unknown_and_a_pointer_to_it_is_not() {
        assert_eq!(sizes("_Z4take4ViewPf"), None);
        assert_eq!(sizes("_Z4takeP4ViewPf"), Some(vec![(0, 8), (8, 8)]));
        assert_eq!(sizes("plain_c_name"), None);
    }
}
