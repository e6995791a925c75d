//! What a kernel does with the pointers among its parameters, read from its PTX.
//!
//! A kernel's signature says `const` at best; its code says whether a pointer is read,
//! written or only added to atomically, whether a value in a structure is looked at at
//! all, and whether an integer parameter moves the place, as in `data[offset + i]`. For
//! each register this finds out which parameters its value comes from, whatever the order
//! of the instructions, and for each access where its address comes from. A value that
//! goes where it cannot be followed (a call, memory, an instruction not known here)
//! *escapes*: nothing is said of it.
//!
//! Instructions are those of the PTX ISA reference, "Instruction Set".

use std::collections::{BTreeMap, HashMap};

use crate::Param;
use crate::ptx::Entry;

/// What is done with the value of an 8-byte slot of the parameters as an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// It is read through.
    pub reads: bool,
    /// It is written through.
    pub writes: bool,
    /// It is updated through atomically, or by the loads and stores that threads
    /// synchronize with.
    pub updates: bool,
    /// It goes where it cannot be followed.
    pub escapes: bool,
    /// Parameters that are added to it: with other values it means another place.
    pub shifts: Vec<Param>,
}

/// By the slot's place in the parameter buffer, in bytes. Slots that are not listed are not
/// used as addresses.
pub type Accesses = BTreeMap<usize, Access>;

/// How a parameter enters a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Times what is 0 in the grid's first thread.
    Scale,
    /// As a summand.
    Shift,
}

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Value {
    /// By place and size.
    slots: BTreeMap<(usize, usize), Part>,
    /// It depends on the thread's place in the grid, or on memory.
    varies: bool,
}

impl Value {
    fn join(&mut self, other: &Self) {
        for (slot, part) in &other.slots {
            let mine = self.slots.entry(*slot).or_insert(*part);
            *mine = (*mine).max(*part);
        }
        self.varies |= other.varies;
    }

    fn product(&self, other: &Self) -> Self {
        let mut product = Self {
            varies: self.varies || other.varies,
            ..Self::default()
        };
        for (one, by) in [(self, other), (other, self)] {
            for (slot, part) in &one.slots {
                let part = if by.varies { Part::Scale } else { *part };
                let mine = product.slots.entry(*slot).or_insert(part);
                *mine = (*mine).max(part);
            }
        }
        product
    }
}

/// An instruction: its name without modifiers, the whole, and its operands.
struct Instruction<'a> {
    name: &'a str,
    full: &'a str,
    operands: Vec<&'a str>,
}

/// What `entry` does with its parameters; `None` where that is not understood, or where it
/// uses none at all, as code for another architecture may be left empty.
pub(crate) fn accesses(entry: &Entry<'_>) -> Option<Accesses> {
    // Longer code than people write; what a generator made is not worth the time.
    const LONGEST: usize = 1 << 20;
    let params = entry
        .params
        .as_ref()
        .filter(|_| entry.body.len() <= LONGEST)?;
    let mut kernel = Kernel {
        params: params.iter().map(|(name, param)| (*name, *param)).collect(),
        registers: HashMap::new(),
        addresses: BTreeMap::new(),
        found: BTreeMap::new(),
    };
    let instructions: Vec<Instruction<'_>> = instructions(entry.body).collect();
    // Each pass adds parameters to registers, of which there are few.
    const PASSES: usize = 64;
    let settled = (0..PASSES).any(|_| {
        !instructions.iter().fold(false, |changed, instruction| {
            kernel.flow(instruction) | changed
        })
    });
    if !settled {
        return None;
    }
    for instruction in &instructions {
        kernel.access(instruction);
    }
    let used = kernel
        .found
        .values()
        .any(|access| access.reads || access.writes || access.updates || access.escapes);
    used.then_some(kernel.found)
}

struct Kernel<'a> {
    params: HashMap<&'a str, Param>,
    registers: HashMap<&'a str, Value>,
    /// Slots that are taken for addresses.
    addresses: BTreeMap<(usize, usize), ()>,
    found: Accesses,
}

impl<'a> Kernel<'a> {
    /// Where an operand's value comes from.
    fn value(&self, operand: &str) -> Value {
        let mut value = Value::default();
        for name in names(operand) {
            if let Some(known) = self.registers.get(name) {
                value.join(known);
            } else if let Some(special) = name.strip_prefix('%') {
                let special = special.split('.').next().unwrap_or_default();
                value.varies |= VARYING.contains(&special);
            }
        }
        value
    }

    fn assign(&mut self, operand: &'a str, value: &Value) -> bool {
        let mut changed = false;
        for name in names(operand) {
            let register = self.registers.entry(name).or_default();
            let before = register.clone();
            register.join(value);
            changed |= *register != before;
        }
        changed
    }

    /// Passes values on through one instruction; true if that told anything new.
    fn flow(&mut self, instruction: &Instruction<'a>) -> bool {
        let operands = &instruction.operands;
        let Some((&target, sources)) = operands.split_first() else {
            return false;
        };
        let memory = Value {
            varies: true,
            ..Value::default()
        };
        let value = match instruction.name {
            "ld" if instruction.full.starts_with("ld.param") => {
                return self.load_param(instruction, target, sources);
            }
            // No register is set, or only predicates are.
            "st" | "red" | "bra" | "bar" | "barrier" | "ret" | "exit" | "setp" | "prefetch"
            | "prefetchu" | "membar" | "fence" | "trap" | "cp" | "call" | "brx" => return false,
            "ld" | "ldu" | "atom" | "tex" | "tld4" | "suld" | "ldmatrix" | "shfl" | "vote"
            | "match" => memory,
            "mul" | "mad" | "shl" | "fma" => {
                let mut value = match sources {
                    [a, b, ..] => self.value(a).product(&self.value(b)),
                    _ => Value::default(),
                };
                if let [_, _, c] = sources {
                    value.join(&self.value(c));
                }
                value
            }
            "cvta" => {
                let value = self.value(sources.first().copied().unwrap_or_default());
                let mut told = false;
                for slot in value.slots.keys() {
                    told |= self.addresses.insert(*slot, ()).is_none();
                }
                return self.assign(target, &value) | told;
            }
            _ => {
                let mut value = Value::default();
                for source in sources {
                    value.join(&self.value(source));
                }
                value
            }
        };
        self.assign(target, &value)
    }

    /// `ld.param.v2.u64 {%rd1, %rd2}, [param+8]`.
    fn load_param(
        &mut self,
        instruction: &Instruction<'a>,
        target: &'a str,
        sources: &[&str],
    ) -> bool {
        let (name, offset) = sources
            .first()
            .map_or(("", Some(0)), |source| place(source));
        let Some(param) = self.params.get(name).copied() else {
            // What a call returned.
            let unknown = Value {
                varies: true,
                ..Value::default()
            };
            return self.assign(target, &unknown);
        };
        let size = size_of(instruction.full);
        let mut changed = false;
        for (index, register) in names(target).enumerate() {
            let mut value = Value::default();
            // Beyond the parameter there is nothing to load.
            let at = offset.zip(size).and_then(|(offset, size)| {
                let start = offset.checked_add(index * size)?;
                let end = start.checked_add(size)?;
                (end <= param.size).then_some((param.offset + start, size))
            });
            if let Some(slot) = at {
                value.slots.insert(slot, Part::Shift);
            }
            changed |= self.assign(register, &value);
        }
        changed
    }

    /// Notes what one instruction does with memory.
    fn access(&mut self, instruction: &Instruction<'a>) {
        let operands = &instruction.operands;
        let all = |kernel: &Self| {
            let mut value = Value::default();
            for operand in operands {
                value.join(&kernel.value(operand));
            }
            value
        };
        match (instruction.name, &operands[..]) {
            ("ld", [_, place, ..]) if instruction.full.starts_with("ld.param") => {
                // A place that is computed may be any of the parameter's.
                let named = names(place)
                    .next()
                    .is_some_and(|name| self.params.contains_key(name));
                if !named {
                    let value = self.value(place);
                    self.escape(&value);
                }
            }
            ("ld" | "ldu", [_, place, ..]) => {
                self.touch(place, |access| match is_strong(instruction) {
                    true => access.updates = true,
                    false => access.reads = true,
                });
            }
            ("st", [place, value, ..]) => {
                if !instruction.full.starts_with("st.param") {
                    self.touch(place, |access| match is_strong(instruction) {
                        true => access.updates = true,
                        false => access.writes = true,
                    });
                }
                let value = self.value(value);
                self.escape(&value);
            }
            ("atom", [_, place, rest @ ..]) | ("red", [place, rest @ ..]) => {
                self.touch(place, |access| access.updates = true);
                for operand in rest {
                    let value = self.value(operand);
                    self.escape(&value);
                }
            }
            ("cp", [_, place, ..]) if instruction.full.starts_with("cp.async.c") => {
                self.touch(place, |access| access.reads = true);
            }
            ("cp", _) if instruction.full.starts_with("cp.async.") && operands.len() < 2 => {}
            (name, _) if UNDERSTOOD.contains(&name) => {}
            _ => {
                let value = all(self);
                self.escape(&value);
            }
        }
        // Whoever takes a parameter's own address may look at all of it.
        let is_load = instruction.full.starts_with("ld.param");
        for operand in operands.iter().filter(|_| !is_load) {
            for name in names(operand) {
                if let Some(param) = self.params.get(name).copied() {
                    for at in (param.offset..param.offset + param.size).step_by(8) {
                        self.found.entry(at).or_default().escapes = true;
                    }
                }
            }
        }
    }

    /// Notes an access by the address in `[register+16]`.
    fn touch(&mut self, place: &str, note: impl Fn(&mut Access)) {
        let value = self.value(place);
        let wide: Vec<(usize, usize)> = value
            .slots
            .keys()
            .copied()
            .filter(|slot| slot.1 == 8)
            .collect();
        let known: Vec<(usize, usize)> = wide
            .iter()
            .copied()
            .filter(|slot| self.addresses.contains_key(slot))
            .collect();
        // Where nothing says which of several is the address, each may be.
        let bases = if known.is_empty() { &wide } else { &known };
        for base in bases {
            let access = self.found.entry(base.0).or_default();
            note(access);
            for (&(offset, size), part) in &value.slots {
                let shift = Param { offset, size };
                if *part == Part::Shift
                    && !bases.contains(&(offset, size))
                    && !access.shifts.contains(&shift)
                {
                    access.shifts.push(shift);
                }
            }
        }
    }

    fn escape(&mut self, value: &Value) {
        for &(offset, size) in value.slots.keys() {
            if size == 8 {
                self.found.entry(offset).or_default().escapes = true;
            }
        }
    }
}

/// Whether a load or store is *strong*: made to meet others at the same time (PTX ISA,
/// "Memory Consistency Model").
fn is_strong(instruction: &Instruction<'_>) -> bool {
    let strong = ["volatile", "relaxed", "acquire", "release", "mmio"];
    let mut modifiers = instruction.full.split('.');
    modifiers.any(|modifier| strong.contains(&modifier))
}

/// Special registers that differ from thread to thread, and begin at 0.
const VARYING: &[&str] = &[
    "tid",
    "laneid",
    "warpid",
    "ctaid",
    "smid",
    "clusterid",
    "cluster_ctaid",
    "cluster_ctarank",
];

/// Instructions that only compute, or that do nothing with an address.
const UNDERSTOOD: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "addc",
    "and",
    "bar",
    "barrier",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "bra",
    "brev",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "createpolicy",
    "cvt",
    "cvta",
    "div",
    "dp2a",
    "dp4a",
    "elect",
    "ex2",
    "exit",
    "fence",
    "fma",
    "fns",
    "getctarank",
    "griddepcontrol",
    "isspacep",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "mapa",
    "match",
    "max",
    "membar",
    "min",
    "mma",
    "mov",
    "movmatrix",
    "mul",
    "mul24",
    "nanosleep",
    "neg",
    "not",
    "or",
    "pmevent",
    "popc",
    "prefetch",
    "prefetchu",
    "prmt",
    "rcp",
    "redux",
    "rem",
    "ret",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "sub",
    "subc",
    "szext",
    "tanh",
    "testp",
    "trap",
    "vote",
    "wgmma",
    "xor",
];

/// The instructions of a kernel's body, in the order of the text.
fn instructions(body: &str) -> impl Iterator<Item = Instruction<'_>> {
    body.split(';').filter_map(|statement| {
        let mut text = statement;
        loop {
            text = text.trim_start_matches(|letter: char| {
                letter.is_whitespace() || matches!(letter, '{' | '}')
            });
            if text.starts_with(".loc") || text.starts_with(".file") {
                text = text.split_once('\n')?.1;
            } else if let Some(rest) = text.strip_prefix('@') {
                text = rest.split_once(char::is_whitespace)?.1;
            } else if let Some((label, rest)) = text.split_once(':')
                && label
                    .chars()
                    .all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '$' | '%'))
            {
                text = rest;
            } else {
                break;
            }
        }
        if text.starts_with('.') {
            return None;
        }
        let (full, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let name = full.split('.').next().unwrap_or_default();
        (!name.is_empty()).then(|| Instruction {
            name,
            full,
            operands: split_operands(operands),
        })
    })
}

/// The operands between commas outside of braces, brackets and parentheses.
fn split_operands(text: &str) -> Vec<&str> {
    let (mut operands, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                operands.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        operands.push(last);
    }
    operands
}

/// The registers and symbols in an operand.
fn names(operand: &str) -> impl Iterator<Item = &str> {
    operand
        .split(|letter: char| {
            letter.is_whitespace()
                || matches!(
                    letter,
                    ',' | '{' | '}' | '[' | ']' | '(' | ')' | '+' | '!' | '|'
                )
        })
        .filter(|name| {
            name.starts_with(|first: char| {
                first.is_alphabetic() || matches!(first, '%' | '_' | '$')
            })
        })
}

/// Symbol and offset of `[symbol+8]`; no offset where it is not a number.
fn place(operand: &str) -> (&str, Option<usize>) {
    let inner = operand.trim_start_matches('[').trim_end_matches(']').trim();
    match inner.split_once('+') {
        Some((name, offset)) => (name.trim(), offset.trim().parse().ok()),
        None => (inner, Some(0)),
    }
}

/// Bytes of one element, from the type at the end of `ld.param.v2.u64`.
fn size_of(full: &str) -> Option<usize> {
    let bits = full.rsplit('.').next()?.get(1..)?.parse::<usize>().ok()?;
    (bits % 8 == 0).then_some(bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx;

    fn of(params: &str, body: &str) -> Option<Accesses> {
        let text = format!(".version 8.0\n.visible .entry k({params})\n{{\n{body}\nret;\n}}\n");
        accesses(&Entry::parse(&ptx::entry(&text, "k")?)?)
    }

    const TWO: &str = ".param .u64 k_param_0, .param .u64 k_param_1, .param .u32 k_param_2";
    /// `%rd3` and `%rd4` are the pointers, `%r2` the integer, `%rd5` the thread's place.
    const LOADED: &str = "ld.param.u64 %rd1, [k_param_0];\nld.param.u64 %rd2, [k_param_1];
        ld.param.u32 %r2, [k_param_2];\ncvta.to.global.u64 %rd3, %rd1;\ncvta.to.global.u64 %rd4, %rd2;
        mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd5, %r1, 4;\nadd.s64 %rd6, %rd3, %rd5;\n";

    fn two(body: &str) -> Accesses {
        of(TWO, &format!("{LOADED}{body}")).unwrap()
    }

    #[test]
    fn reads_writes_and_updates_are_told_apart() {
        let found = two("ld.global.f32 %f1, [%rd6];\nst.global.f32 [%rd4+4], %f1;");
        assert!(found[&0].reads && !found[&0].writes && found[&0].shifts.is_empty());
        assert!(found[&8].writes && !found[&8].reads && !found[&8].escapes);
        let found =
            two("@%p1 red.global.add.u32 [%rd6], 1;\natom.global.add.u32 %r9, [%rd4], %r2;");
        assert!(found[&0].updates && !found[&0].writes && found[&8].updates);
        let found = two("ld.global.v2.f32 {%f1, %f2}, [%rd6];");
        assert!(
            found[&0].reads && !found.contains_key(&8),
            "the second is not used"
        );
    }

    #[test]
    fn loads_and_stores_that_threads_synchronize_with_are_updates() {
        let found =
            two("ld.acquire.gpu.global.u32 %r9, [%rd6];\nst.volatile.global.u32 [%rd4], %r2;");
        assert!(found[&0].updates && !found[&0].reads && found[&8].updates && !found[&8].writes);
    }

    #[test]
    fn an_integer_that_is_added_moves_the_place() {
        let shift = vec![Param {
            offset: 16,
            size: 4,
        }];
        let found = two(
            "add.s32 %r3, %r1, %r2;\nmul.wide.s32 %rd7, %r3, 4;\nadd.s64 %rd8, %rd3, %rd7;\nst.global.u32 [%rd8], 0;",
        );
        assert_eq!(found[&0].shifts, shift);
        let found = two(
            "mov.u32 %r5, %ntid.x;\nmad.lo.s32 %r3, %r5, %r2, %r1;\nmul.wide.s32 %rd7, %r3, 4;\nadd.s64 %rd8, %rd3, %rd7;\nst.global.u32 [%rd8], 0;",
        );
        assert_eq!(found[&0].shifts, shift, "times what is the same everywhere");
        let found = two(
            "mad.lo.s32 %r3, %r1, %r2, %r1;\nmul.wide.s32 %rd7, %r3, 4;\nadd.s64 %rd8, %rd3, %rd7;\nst.global.u32 [%rd8], 0;",
        );
        assert!(
            found[&0].shifts.is_empty(),
            "the first thread's place stays"
        );
    }

    #[test]
    fn loops_are_followed() {
        let found = two(
            "$L__BB0_1:\nst.global.u32 [%rd9], 0;\nadd.s64 %rd9, %rd10, 4;\nmov.u64 %rd10, %rd9;\nmov.u64 %rd10, %rd6;\n@%p1 bra $L__BB0_1;",
        );
        assert!(found[&0].writes);
    }

    #[test]
    fn what_cannot_be_followed_escapes() {
        let call = "{ // callseq\n.param .b64 param0;\nst.param.b64 [param0+0], %rd1;\ncall.uni helper, (param0);\n}";
        assert!(two(call)[&0].escapes);
        assert!(two("st.local.u64 [%rd20], %rd3;")[&0].escapes);
        assert!(two("st.global.u64 [%rd4], %rd3;")[&0].escapes);
        assert!(two("multimem.red.global.add.u32 [%rd6], 1;")[&0].escapes);
        assert!(two("cp.async.bulk.shared.global [%r9], [%rd6], 16, [%r8];")[&0].escapes);
        assert!(two("cp.async.ca.shared.global [%r9], [%rd6], 16;\ncp.async.wait_all;")[&0].reads);
    }

    #[test]
    fn structures_are_told_by_slot() {
        let params = ".param .align 8 .b8 k_param_0[24], .param .u32 k_param_1";
        let found = of(params, "ld.param.u64 %rd1, [k_param_0+16];\ncvta.to.global.u64 %rd2, %rd1;\nst.global.u32 [%rd2], 0;").unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), [&16]);
        // A place that is computed.
        let found = of(params, "mov.b64 %rd1, k_param_0;\nadd.s64 %rd2, %rd1, %rd9;\nld.param.u64 %rd3, [%rd2];\nst.u32 [%rd3], 0;").unwrap();
        assert!([0, 8, 16].iter().all(|slot| found[slot].escapes));
        let found = of(
            params,
            "ld.param.v2.u64 {%rd1, %rd2}, [k_param_0];\nld.u32 %r1, [%rd1];\nst.u32 [%rd2], %r1;",
        )
        .unwrap();
        assert!(found[&0].reads && found[&8].writes);
    }

    #[test]
    fn code_that_uses_nothing_says_nothing() {
        assert_eq!(of(TWO, "trap;"), None);
        assert_eq!(of(TWO, ""), None);
    }

    #[test]
    fn the_order_of_the_text_is_no_matter() {
        // A loop's head uses what its end computes.
        let found = two(
            "$L__BB0_1:\nmul.lo.s32 %r4, %r3, %r9;\nmul.wide.s32 %rd7, %r4, 4;\nadd.s64 %rd8, %rd3, %rd7;\n\
             st.global.u32 [%rd8], 0;\nmov.u32 %r9, 3;\nadd.s32 %r3, %r2, 1;\n@%p1 bra $L__BB0_1;",
        );
        assert_eq!(
            found[&0].shifts,
            [Param {
                offset: 16,
                size: 4
            }]
        );
    }

    #[test]
    fn nothing_lies_beyond_a_parameter() {
        for place in [
            "k_param_0+8",
            "k_param_0+18446744073709551615",
            "k_param_0+1",
        ] {
            let body = format!(
                "ld.param.u64 %rd1, [{place}];\nst.global.u32 [%rd1], 0;\nst.global.u32 [%rd2], 0;\nld.param.u64 %rd2, [k_param_1];"
            );
            let found = of(TWO, &body).unwrap();
            assert_eq!(found.keys().collect::<Vec<_>>(), [&8], "{place}");
        }
        let endless = ".param .align 8 .b8 k_param_0[1152921504606846976]";
        assert_eq!(
            of(endless, "mov.b64 %rd1, k_param_0;\nst.u64 [%rd1], %rd1;"),
            None
        );
    }
}
